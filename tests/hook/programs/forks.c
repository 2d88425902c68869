// SPDX-License-Identifier: Apache-2.0
/* fork in threads while others allocate; each child allocates, frees its parent's blocks and ends in another
 * way. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop;
static int good[4];

static void *churn(void *argument) {
    (void)argument;
    void *block[64] = {0};
    for (unsigned i = 0; !stop; i++) {
        free(block[i % 64]);
        block[i % 64] = malloc(16 + i * 7 % 3000);
    }
    for (int i = 0; i < 64; i++)
        free(block[i]);
    return NULL;
}

static void child(int number, char *inherited) {
    free(inherited);
    for (int i = 0; i < 2000; i++)
        free(calloc(1, (size_t)i));
    if (number % 2)
        _exit(10 + number % 5);
    exit(10 + number % 5);
}

static void *fork_often(void *argument) {
    int *count = argument;
    for (int i = 0; i < 30; i++) {
        char *block = malloc(1000);
        memset(block, i, 1000);
        pid_t pid = fork();
        if (pid == 0)
            child(i, block);
        int status;
        if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 10 + i % 5)
            ++*count;
        free(block);
    }
    return NULL;
}

int main(void) {
    pthread_t churning[2], forking[4];
    for (int i = 0; i < 2; i++)
        pthread_create(&churning[i], NULL, churn, NULL);
    for (int i = 0; i < 4; i++)
        pthread_create(&forking[i], NULL, fork_often, &good[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(forking[i], NULL);
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(churning[i], NULL);
    printf("%d %d %d %d\n", good[0], good[1], good[2], good[3]);
    return 0;
}
