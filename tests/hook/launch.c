// SPDX-License-Identifier: Apache-2.0
/*
 * launch - starts a program under the hook or the guard as `imas run` does, for the tests of hook/.
 *
 * launch [-g] [-f] [-t] [-w] -p PAGE -l LIBRARIES [-s NAME=VALUE]... -- PROGRAM ARGUMENTS...
 *   -g  flight page (guard), else trial page     -f  IMAS_FOLLOW=1     -t  IMAS_TREE=1
 *   -w  run as a child and print how it ended: "exit N" or "signal N core"
 *   -s  set in the environment, as a candidate's settings are
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../abi/imas_abi.h"

extern char **environ;

struct options {
    bool flight, follow, tree, wait;
    const char *page, *libraries;
    const char *settings[16];
    int setting_count;
};

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "launch: %s: %s\n", what, strerror(errno));
    exit(125);
}

static unsigned long long start_ticks(void) {
    char text[1024] = "";
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        fail("/proc/self/stat");
    close(fd);
    char *at = strrchr(text, ')') + 2;
    for (int field = 3; field < 22; field++)
        at = strchr(at, ' ') + 1;
    return strtoull(at, NULL, 10);
}

static void fill(struct imas_page_header *header, const struct options *options, const char *program) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    header->magic = IMAS_PAGE_MAGIC;
    header->version = IMAS_PAGE_VERSION;
    header->kind = options->flight ? IMAS_PAGE_FLIGHT : IMAS_PAGE_TRIAL;
    header->page_bytes = options->flight ? IMAS_HEADER_BYTES : IMAS_TRIAL_PAGE_BYTES;
    header->pid = (uint32_t)getpid();
    header->uid = geteuid();
    header->process_start_ticks = start_ticks();
    header->made_unix_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    snprintf(header->trial_id, sizeof header->trial_id, "test-%d", (int)getpid());
    snprintf(header->candidate, sizeof header->candidate, "test");
    snprintf(header->program, sizeof header->program, "%s", program);
    header->armed = 1;
}

static void make_page(const struct options *options, const char *program) {
    int fd = open(options->page, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    size_t bytes = options->flight ? IMAS_HEADER_BYTES : IMAS_TRIAL_PAGE_BYTES;
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        fail(options->page);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        fail("mmap");
    fill(at, options, program);
    munmap(at, bytes);
    close(fd);
}

static char unset[4096];

/* Sets NAME=VALUE as the launcher does: remembers what was there. */
static void change(const char *name, const char *value) {
    char was[256];
    const char *old = getenv(name);
    if (old != NULL) {
        snprintf(was, sizeof was, IMAS_ENV_WAS "%s", name);
        setenv(was, old, 1);
    } else {
        snprintf(unset + strlen(unset), sizeof unset - strlen(unset), "%s%s", *unset ? ":" : "", name);
    }
    setenv(name, value, 1);
}

/* Whether no allocator follows our libraries. */
static bool ends_with_ours(const char *libraries) {
    const char *last = strrchr(libraries, '/');
    return last != NULL && strncmp(last, "/libimas", 8) == 0 && strncmp(last, "/libimas-fit", 12) != 0;
}

static void set_environment(const struct options *options) {
    char preload[8192];
    int inherited = 0;
    while (environ[inherited] != NULL)
        inherited++;
    const char *old = getenv("LD_PRELOAD");
    snprintf(preload, sizeof preload, "%s%s%s", options->libraries, old ? ":" : "", old ? old : "");
    for (int i = 0; i < options->setting_count; i++) {
        char *pair = strdup(options->settings[i]);
        char *value = strchr(pair, '=');
        *value = '\0';
        change(pair, value + 1);
    }
    change("LD_PRELOAD", preload);
    if (options->follow)
        change(IMAS_ENV_FOLLOW, "1");
    if (options->follow && ends_with_ours(options->libraries))
        setenv(IMAS_ENV_ALONE, "1", 1);
    if (options->tree)
        change(IMAS_ENV_TREE, "1");
    if (options->page != NULL)
        setenv(IMAS_ENV_PAGE, options->page, 1);
    setenv(IMAS_ENV_UNSET, unset, 1);
    int added = 0;
    for (char **entry = environ; *entry != NULL; entry++)
        added++;
    if (options->follow ? options->page != NULL : (added - inherited) % 2 != 0)
        setenv(IMAS_ENV_PAD, "", 1);
}

static int wait_and_tell(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) < 0)
        fail("waitpid");
    if (WIFSIGNALED(status))
        printf("signal %d core %d\n", WTERMSIG(status), WCOREDUMP(status) != 0);
    else
        printf("exit %d\n", WEXITSTATUS(status));
    return 0;
}

int main(int argc, char **argv) {
    struct options options = {0};
    for (int option; (option = getopt(argc, argv, "+gftwp:l:s:")) != -1;) {
        switch (option) {
        case 'g': options.flight = true; break;
        case 'f': options.follow = true; break;
        case 't': options.tree = true; break;
        case 'w': options.wait = true; break;
        case 'p': options.page = optarg; break;
        case 'l': options.libraries = optarg; break;
        case 's': options.settings[options.setting_count++] = optarg; break;
        default: return 125;
        }
    }
    if (optind >= argc)
        return 125;
    pid_t child = options.wait ? fork() : 0;
    if (child > 0)
        return wait_and_tell(child);
    if (options.page != NULL)
        make_page(&options, argv[optind]);
    if (options.libraries != NULL)
        set_environment(&options);
    execvp(argv[optind], argv + optind);
    fail(argv[optind]);
}
