// SPDX-License-Identifier: Apache-2.0
/*
 * imas-rescue - disables IMAS on a machine on which no dynamic program starts any more: it removes every
 * entry libimas*.so from /etc/ld.so.preload and makes /run/imas/disabled. It is run by hand, by
 * imas-emergency.service, or as `init=` on the kernel's command line; then it executes the real init. Static;
 * needs neither /proc nor a writable root at its start.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "edit.h"
#include "hold.h"

static const char usage[] = "imas-rescue [--file FILE] [--run-dir DIR] [--reason FILE]\n"
                            "\n"
                            "Takes every entry libimas*.so out of /etc/ld.so.preload and switches IMAS off until the next boot\n"
                            "(/run/imas/disabled). --reason: says what stands in FILE. As process 1 (kernel command line\n"
                            "init=/usr/sbin/imas-rescue) it does that, then starts the real init. See imas-rescue(8).\n"
                            "Exit status: 0 done; 2 could not.\n";

struct words {
    const char *file, *run_dir, *reason;
};

static bool parse(int count, char **words, struct words *options) {
    for (int i = 1; i < count; i += 2) {
        const char **to = strcmp(words[i], "--file") == 0      ? &options->file
                          : strcmp(words[i], "--run-dir") == 0 ? &options->run_dir
                          : strcmp(words[i], "--reason") == 0  ? &options->reason
                                                               : NULL;
        if (!to || i + 1 == count) {
            return false;
        }
        *to = words[i + 1];
    }
    return true;
}

/* The daemon's text is not trusted: one line of plain characters of it is printed. */
static void say_reason(const char *path) {
    char text[401];
    int from = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t length = from >= 0 ? read(from, text, sizeof text - 1) : -1;
    if (from >= 0) {
        close(from);
    }
    if (length <= 0) {
        return;
    }
    text[length] = 0;
    text[strcspn(text, "\n")] = 0;
    for (char *c = text; *c; c++) {
        if (*c < ' ' || *c > '~') {
            *c = '?';
        }
    }
    say("why: %s", text);
}

static enum answer remove_entries(const char *path) {
    struct file file;
    size_t removed;
    if (!file_open(&file, path) || !file_lock(&file)) {
        return UNABLE;
    }
    enum answer answer = edit_remove(&file, entries_is_ours, NULL, &removed);
    file_close(&file);
    return answer;
}

/* The stub does nothing in processes that start from now on, even where the entry is still read. */
static enum answer disable(const char *run_dir) {
    char flag[4096];
    if (snprintf(flag, sizeof flag, "%s/disabled", run_dir) >= (int)sizeof flag) {
        return say_error(NULL, "%s: too long a path", run_dir);
    }
    mkdir(run_dir, 0755); /* usually there already; if it fails, open reports why */
    int made = open(flag, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (made < 0) {
        return say_error(NULL, "%s: %s", flag, strerror(errno));
    }
    close(made);
    say("%s: made; IMAS stays off until it is deleted or the machine starts anew", flag);
    return DONE;
}

static enum answer rescue(const struct words *options) {
    hold_signals(); /* the reader of our output may be gone */
    if (options->reason) {
        say_reason(options->reason);
    }
    enum answer removed = remove_entries(options->file);
    enum answer disabled = disable(options->run_dir);
    hold_release();
    return removed == DONE ? disabled : removed;
}

/* /run is often not mounted yet; a flag in the folder below the mount would be hidden by it. */
static bool is_mounted(const char *folder) {
    struct stat it, root;
    return stat(folder, &it) == 0 && stat("/", &root) == 0 && it.st_dev != root.st_dev;
}

/* The root is mounted read-only at this point of most boots, and init expects it so. */
static void rescue_at_boot(const struct words *options) {
    struct statvfs root;
    bool read_only = statvfs("/", &root) == 0 && root.f_flag & ST_RDONLY;
    if (read_only && mount("none", "/", NULL, MS_REMOUNT, NULL) != 0) {
        say_error("boot with init=/bin/sh on another root, or edit the file from a rescue system",
                  "the root could not be made writable: %s", strerror(errno));
    }
    remove_entries(options->file);
    if (is_mounted("/run")) {
        disable(options->run_dir);
    }
    sync();
    if (read_only && mount("none", "/", NULL, MS_REMOUNT | MS_RDONLY, NULL) != 0) {
        say("note: the root stays writable: %s", strerror(errno));
    }
}

/* Executes the real init with the kernel's arguments. Returns if there is none. */
static int go_on(char **words) {
    extern char **environ;
    static const char *const inits[] = {"/sbin/init", "/usr/lib/systemd/systemd", "/etc/init", "/bin/init", "/bin/sh"};
    for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) {
        words[0] = (char *)inits[i];
        say("imas-rescue: going on with %s", inits[i]);
        execve(inits[i], words, environ);
    }
    return say_error(NULL, "no init could be started: %s", strerror(errno));
}

int main(int count, char **words) {
    struct words options = {.file = "/etc/ld.so.preload", .run_dir = "/run/imas"};
    say_name = "imas-rescue";
    if (getpid() == 1) {
        rescue_at_boot(&options);
        return go_on(words);
    }
    if (count == 2 && strcmp(words[1], "--version") == 0) {
        say("imas-rescue " IMAS_VERSION);
        return DONE;
    }
    if (count == 2 && strcmp(words[1], "--help") == 0) {
        return write(STDOUT_FILENO, usage, sizeof usage - 1) < 0 ? UNABLE : DONE;
    }
    if (!parse(count, words, &options)) {
        return say_error("imas-rescue --help", "these words are not understood");
    }
    return rescue(&options);
}
