// SPDX-License-Identifier: Apache-2.0
/*
 * nested_fork.c - a signal handler that forks, while two threads fork and a third allocates. An allocator
 * whose fork handlers raise that signal (foreign.c with SIGNAL_IN_FORK) has it come between its locking and
 * its unlocking.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKERS = 2, ROUNDS = 100, CHILD_SECONDS = 20 };

static int failed, stopping;

static void use_heap(void) {
    for (size_t size = 10; size < 200000; size *= 3) {
        void *volatile block = malloc(size);
        memset(block, 1, size);
        free(block);
    }
}

/* The child's status must be 0: a heap that was torn hangs it (SIGALRM) or crashes it. */
static void wait_for(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0)
        __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
}

static void fork_here(int signal) {
    static __thread int nested; /* the fork here raises the signal, too */
    (void)signal;
    if (nested)
        return;
    nested = 1;
    pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_SECONDS);
        use_heap();
        _exit(0);
    }
    wait_for(child);
    nested = 0;
}

static void *fork_often(void *unused) {
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(CHILD_SECONDS);
            use_heap();
            _exit(0);
        }
        wait_for(child);
    }
    return unused;
}

static void *churn(void *unused) {
    while (!__atomic_load_n(&stopping, __ATOMIC_RELAXED))
        use_heap();
    return unused;
}

int main(void) {
    struct sigaction action = {.sa_handler = fork_here, .sa_flags = SA_NODEFER};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t forkers[FORKERS], churner;
    pthread_create(&churner, NULL, churn, NULL);
    for (int i = 0; i < FORKERS; i++)
        pthread_create(&forkers[i], NULL, fork_often, NULL);
    for (int i = 0; i < FORKERS; i++)
        pthread_join(forkers[i], NULL);
    stopping = 1;
    pthread_join(churner, NULL);
    printf("%d failed\n", failed);
    return failed != 0;
}
