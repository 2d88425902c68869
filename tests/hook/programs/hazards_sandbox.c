// SPDX-License-Identifier: Apache-2.0
/* Hazards of sandboxes: filters of system calls, and a counter that may not be read. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hazards.h"

/* Ends the process at a system call that neither libc nor the program makes below. */
static struct sock_filter deadly[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 5, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 4, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 3, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigpending, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};
static struct sock_filter no_threads[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

/* What hardly any program asks for. */
static struct sock_filter narrow[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigpending, 3, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};

#define PROGRAM(filter) &(struct sock_fprog){sizeof filter / sizeof *filter, filter}

static void *leaves(void *unused) {
    pthread_exit(unused);
}

static void allow_filters(void) {
    pthread_join(start(leaves), NULL); /* libc opens a library at the first pthread_exit */
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/* What a program may go on to do in its sandbox. The clock is that of the vDSO: no system call. */
static void live_in_sandbox(void) {
    churn(SECONDS);
    pthread_join(start(leaves), NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    int status;
    waitpid(child, &status, 0);
    printf("child %x\n", status);
    say("unshare", unshare(0));
}

void sandboxed_thread(void) {
    pthread_t thread = start(rest);
    tell_pacer("with a thread");
    allow_filters();
    say("filter for all threads", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, PROGRAM(deadly)));
    live_in_sandbox();
    join(thread);
    puts("alive");
}

void sandboxed_alone(void) {
    puts("begin"); /* libc asks once about the file */
    churn(1);
    allow_filters();
    say("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PROGRAM(deadly), 0, 0));
    live_in_sandbox();
    puts("alive");
}

/* A program that starts so dies in ld.so. The clock reads the counter too, so none is read. */
void counter_forbidden(void) {
    churn(1);
#ifdef __x86_64__
    say("no counter", prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0));
#endif
    for (int i = 0; i < SECONDS; i++)
        poll(NULL, 0, 1000);
    puts("alive");
}

void threads_forbidden(void) {
    puts("begin");
    allow_filters();
    say("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PROGRAM(no_threads), 0, 0));
    start(rest);
    churn(SECONDS);
    puts("alive");
}

/* `hazards under-filter COMMAND...`: what it starts was never asked. */
int start_under_filter(char **command) {
    allow_filters();
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PROGRAM(narrow), 0, 0) == 0)
        execv(command[0], command);
    return 2;
}

void filtered(void) {
    churn(SECONDS);
    pthread_t thread = start(rest);
    churn(SECONDS);
    bool named;
    const char *expects = getenv("EXPECT_PACER"); /* under the filter it cannot take its name */
    int expected = 2 + (expects != NULL && strcmp(expects, "1") == 0);
    puts(count_tasks(&named) == expected ? "threads as expected" : "threads not as expected");
    join(thread);
    puts("alive");
}
