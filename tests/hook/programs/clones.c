// SPDX-License-Identifier: Apache-2.0
/* A child made by the bare clone system call, for which no fork handler runs: it must not count for its
 * parent. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELD 16

int main(void) {
    void *held[HELD];
    free(malloc(10));
    for (int i = 0; i < HELD; i++)
        held[i] = malloc(1 << 20);
    long pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        for (int i = 0; i < HELD; i++)
            free(i % 2 == 0 ? held[i] : realloc(held[i], 3 << 20));
        for (int i = 0; i < 1000000; i++)
            free(malloc(100));
        abort();
    }
    int status = 0;
    waitpid((pid_t)pid, &status, 0);
    printf("%d\n", WTERMSIG(status));
    return 0;
}
