// SPDX-License-Identifier: Apache-2.0
/* shown - prints what a process got from its start, on standard output; on standard error, which allocators
 * it has mapped. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

extern char **environ;

static void show_signals(void) {
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int i = 1; i < 65; i++) {
        struct sigaction action = {0};
        sigaction(i, NULL, &action);
        if (sigismember(&mask, i) == 1 || action.sa_handler == SIG_IGN)
            printf("signal %d blocked %d ignored %d\n", i, sigismember(&mask, i), action.sa_handler == SIG_IGN);
    }
}

static void show_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        int fd = atoi(entry->d_name);
        struct stat about;
        if (entry->d_name[0] == '.' || fd == dirfd(folder) || fstat(fd, &about) != 0)
            continue;
        printf("fd %d mode %o flags %x cloexec %d\n", fd, about.st_mode, fcntl(fd, F_GETFL), fcntl(fd, F_GETFD));
    }
    closedir(folder);
}

static void show_file(const char *path) {
    char text[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = read(fd, text, sizeof text);
    close(fd);
    printf("%s: ", path);
    fwrite(text, 1, got > 0 ? (size_t)got : 0, stdout);
    puts("");
}

static void show_limits(void) {
    for (int i = 0; i < RLIMIT_NLIMITS; i++) {
        struct rlimit limit;
        getrlimit(i, &limit);
        printf("limit %d %lx %lx\n", i, (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
    }
}

static void show_state(void) {
    char cwd[4096];
    struct itimerval timer;
    int death = -1;
    cpu_set_t cpus;
    getitimer(ITIMER_REAL, &timer);
    prctl(PR_GET_PDEATHSIG, &death);
    sched_getaffinity(0, sizeof cpus, &cpus);
    mode_t mask = umask(0);
    printf("cwd %s\numask %o\nnice %d\nparent %d leader %d session %d\n", getcwd(cwd, sizeof cwd), mask, getpriority(PRIO_PROCESS, 0),
           getppid() > 0, getpgrp() == getpid(), getsid(0) == getpid());
    printf("uid %d %d gid %d %d secure %lu\n", getuid(), geteuid(), getgid(), getegid(), getauxval(AT_SECURE));
    printf("timer %d death %d personality %x new-privileges %d dumpable %d cpus %d policy %d\n", timer.it_value.tv_sec > 0, death,
           personality(0xffffffff), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_DUMPABLE), CPU_COUNT(&cpus),
           sched_getscheduler(0));
    printf("execfn %s\n", (const char *)getauxval(AT_EXECFN));
}

static void show_allocators(void) {
    char line[8192], last[8192] = "";
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        char *name = strstr(line, "/allocators/lib");
        if (name == NULL)
            name = strstr(line, "/libimas");
        if (name != NULL && strcmp(last, name) != 0)
            fprintf(stderr, "%s", strcpy(last, name));
    }
    fclose(maps);
}

int main(int argc, char **argv) {
    for (int i = 0; i < argc; i++)
        printf("argument %d %s\n", i, argv[i]);
    for (char **entry = environ; *entry != NULL; entry++)
        printf("variable %s\n", *entry);
    show_file("/proc/self/comm");
    show_file("/proc/self/cmdline");
    show_file("/proc/self/oom_score_adj");
    show_state();
    show_signals();
    show_descriptors();
    show_limits();
    show_allocators();
    return argc > 1 && strcmp(argv[1], "fail") == 0 ? 3 : 0;
}
