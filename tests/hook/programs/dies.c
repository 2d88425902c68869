// SPDX-License-Identifier: Apache-2.0
/* dies HOW: by a fault, by a signal sent, or by its own will. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int overflow(int depth) {
    volatile char frame[4096];
    frame[0] = (char)depth;
    return overflow(depth + 1) + frame[0];
}

static void own_handler(int signal) {
    (void)signal;
    _exit(33);
}

static void segv(void) { *(volatile int *)8 = 1; }
#if defined(__aarch64__) /* where a division by zero is 0, and a trap of the compiler another signal */
static void fpe(void) { raise(SIGFPE); }
static void ill(void) { __asm__ volatile("udf #0"); }
#else
static volatile int zero, seven = 7;
static void fpe(void) { printf("%d", seven / zero); }
static void ill(void) { __builtin_trap(); }
#endif
static void killed_by_itself(void) { kill(getpid(), SIGSEGV); pause(); }
static void stack(void) { overflow(0); }
static void handled(void) { signal(SIGSEGV, own_handler); segv(); }
static void ignored(void) { signal(SIGFPE, SIG_IGN); raise(SIGFPE); exit(6); }
static void bus(void) {
    char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(tmpfile()), 0);
    *at = 1;
}
static void child_dies(void) {
    int status;
    pid_t pid = fork();
    if (pid == 0)
        abort();
    waitpid(pid, &status, 0);
    exit(WTERMSIG(status));
}
static void plain_exit(void) { exit(21); }
static void quick(void) { quick_exit(22); }
static void under_exit(void) { _exit(23); }
static void big_exit(void) { _Exit(24); }
static void terminated(void) { raise(SIGTERM); }
static void vforked(void) {
    pid_t pid = vfork();
    if (pid == 0)
        _exit(9);
    waitpid(pid, NULL, 0);
    raise(SIGKILL);
}
/* The usual one: what it was to start is not there. */
static void vforked_in_vain(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/nowhere", "nowhere", NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
    raise(SIGKILL);
}
static void reset(void) {
    signal(SIGABRT, SIG_DFL);
    abort();
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*die)(void); } ways[] = {
        {"segv", segv}, {"fpe", fpe}, {"ill", ill}, {"kill", killed_by_itself}, {"stack", stack},
        {"handled", handled}, {"ignored", ignored}, {"bus", bus}, {"child", child_dies}, {"exit", plain_exit},
        {"quick", quick}, {"_exit", under_exit}, {"_Exit", big_exit}, {"term", terminated}, {"abort", abort},
        {"reset", reset}, {"vforked", vforked}, {"in-vain", vforked_in_vain},
    };
    free(malloc(10));
    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].name, argv[1]) == 0)
            ways[i].die();
    return 2;
}
