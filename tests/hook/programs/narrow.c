// SPDX-License-Identifier: Apache-2.0
/* narrow thread|signal PROGRAM: starts the program by each kind of function from a small stack, and prints how it ended. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIGNAL_STACK ((size_t)8192) /* SIGSTKSZ, as it was for long */
#define PAGE ((size_t)4096)

extern char **environ;
static char *program;

static int status_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

static void start_all(int signal) {
    char *arguments[] = {program, NULL};
    int status[3] = {0};
    (void)signal;
    pid_t child = fork();
    if (child == 0) {
        execvp(program, arguments);
        _exit(127);
    }
    status[0] = status_of(child);
    child = vfork();
    if (child == 0) {
        execlp(program, program, (char *)NULL);
        _exit(127);
    }
    status[1] = status_of(child);
    status[2] = posix_spawnp(&child, program, NULL, NULL, arguments, environ) == 0 ? status_of(child) : -1;
    for (int i = 0; i < 3; i++)
        if (write(1, status[i] == 0 ? "started\n" : "failed\n", status[i] == 0 ? 8 : 7) < 0)
            return;
}

static void *in_thread(void *argument) {
    start_all(0);
    return argument;
}

static int by_thread(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
    return pthread_create(&thread, &attributes, in_thread, NULL) != 0 || pthread_join(thread, NULL) != 0;
}

/* The page below the stack is nobody's: what overflows is seen. */
static int by_signal(void) {
    char *memory = mmap(NULL, PAGE + SIGNAL_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = memory + PAGE, .ss_size = SIGNAL_STACK};
    struct sigaction action = {.sa_handler = start_all, .sa_flags = SA_ONSTACK};
    return memory == MAP_FAILED || mprotect(memory, PAGE, PROT_NONE) != 0 || sigaltstack(&stack, NULL) != 0 ||
           sigaction(SIGUSR1, &action, NULL) != 0 || raise(SIGUSR1) != 0;
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    program = arguments[2];
    return strcmp(arguments[1], "thread") == 0 ? by_thread() : by_signal();
}
