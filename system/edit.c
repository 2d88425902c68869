// SPDX-License-Identifier: Apache-2.0
#include "edit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hold.h"

#define CHECK_SECONDS 120
#define LOOK_AGAIN_NS 20000000L

static struct text old_text, new_text, backup;

static int ended_by_force(pid_t child) {
    kill(-child, SIGKILL);
    waitpid(child, NULL, 0);
    return -1;
}

/* Waits for the check: -1 if it hangs or a signal ends the wait. Both count as a failure. */
static int wait_for(pid_t child) {
    for (int i = 0; i < CHECK_SECONDS * 50; i++) {
        int status;
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) {
            return status;
        }
        if (ended < 0 && errno != EINTR) {
            say_error(NULL, "the check could not be waited for: %s", strerror(errno));
            return -1;
        }
        if (hold_wait(LOOK_AGAIN_NS)) {
            say_error(NULL, "interrupted while the check was running");
            return ended_by_force(child);
        }
    }
    say_error(NULL, "the check did not end within %d s", CHECK_SECONDS);
    return ended_by_force(child);
}

static _Noreturn void be_check(char *const *check) {
    extern char **environ;
    setpgid(0, 0);
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) {
        dup2(nothing, STDIN_FILENO);
    }
    hold_release();
    execve(check[0], check, environ);
    say_error("give the check's absolute path", "%s: %s", check[0], strerror(errno));
    _exit(127);
}

static bool check_passes(char *const *check) {
    signal(SIGCHLD, SIG_DFL); /* inherited SIG_IGN would make the kernel drop the exit status of the check */
    pid_t child = fork();
    if (child == 0) {
        be_check(check);
    }
    if (child < 0) {
        say_error(NULL, "the check could not be started: %s", strerror(errno));
        return false;
    }
    setpgid(child, child); /* the child does the same: whichever comes first, the group exists from now on */
    int status = wait_for(child);
    if (status == -1) {
        return false;
    }
    if (WIFSIGNALED(status)) {
        say_error(NULL, "the check died of signal %d", WTERMSIG(status));
    } else if (WEXITSTATUS(status) != 0) {
        say_error(NULL, "the check ended with status %d", WEXITSTATUS(status));
    }
    return status == 0;
}

static enum answer take_back(struct file *file, bool existed) {
    bool back = existed ? file_replace(file, &old_text) : file_delete(file);
    if (!back) {
        return say_error("take the entry out by hand, or boot with init=/usr/sbin/imas-rescue",
                         "%s: THE CHECK FAILED AND THE OLD CONTENT COULD NOT BE PUT BACK", file->path);
    }
    file_drop_backup(file);
    say_error(NULL, "%s: taken back: the check failed; everything is as it was", file->path);
    return NO;
}

enum answer edit_add(struct file *file, const char *entry, char *const *check) {
    if (!file_read(file, &old_text)) {
        return UNABLE;
    }
    bool existed = file->old >= 0;
    if (entries_find(&old_text, entries_is, entry)) {
        say("%s: %s is there already", file->path, entry);
        return DONE;
    }
    new_text = old_text;
    if (!entries_add(&new_text, entry)) {
        return say_error(NULL, "%s: not touched: no room for another entry", file->path);
    }
    if (!existed) {
        file_drop_backup(file); /* of a file that was deleted since */
    }
    if ((existed && !file_back_up(file, &old_text)) || !file_replace(file, &new_text)) {
        return UNABLE;
    }
    if (check && !check_passes(check)) {
        return take_back(file, existed);
    }
    say("%s: added %s", file->path, entry);
    return DONE;
}

static bool same(const struct text *one, const struct text *other) {
    return one->length == other->length && memcmp(one->bytes, other->bytes, one->length) == 0;
}

/* Our entry was preceded by a newline if the last line of the file had none. */
static void take_newline_back(struct text *text) {
    text->length--;
    if (text->bytes[text->length] != '\n' || !same(text, &backup)) {
        text->length++;
    }
}

enum answer edit_remove(struct file *file, entries_wanted *wanted, const void *what, size_t *removed) {
    *removed = 0;
    if (!file_read(file, &old_text)) {
        return UNABLE;
    }
    bool backed_up = file_read_backup(file, &backup);
    new_text = old_text;
    *removed = entries_remove(&new_text, wanted, what);
    if (backed_up && *removed > 0 && new_text.length > 0) {
        take_newline_back(&new_text);
    }
    bool as_before = backed_up && same(&new_text, &backup);
    bool gone = !backed_up && *removed > 0 && entries_blank(&new_text);
    if (*removed > 0 && !(gone ? file_delete(file) : file_replace(file, &new_text))) {
        return UNABLE;
    }
    if (as_before) {
        file_drop_backup(file);
    } else if (backed_up) {
        say("note: %s has changed since: the backup %s stays", file->path, file->backup_name);
    }
    if (*removed == 0) {
        say("%s: no such entry", file->path);
    } else if (gone) {
        say("%s: deleted; nothing but our entry stood there", file->path);
    } else {
        say("%s: took our entry out; %zu left", file->path, entries_count(&new_text));
    }
    return DONE;
}
