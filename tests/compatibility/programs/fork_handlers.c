// SPDX-License-Identifier: Apache-2.0
/* A library whose constructor registers fork handlers that allocate. With -DPROGRAM the program that is
 * linked with it: one more argument starts a second thread before the fork. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PROGRAM
static void work(void) {
    void *volatile small = malloc(40), *volatile large = malloc(100000);
    free(small);
    free(large);
}

__attribute__((constructor)) static void begin(void) { pthread_atfork(work, work, work); }
void touch(void);
void touch(void) {}
#else
void touch(void);
static void *idle(void *nothing) {
    pause();
    return nothing;
}

int main(int count, char **words) {
    (void)words;
    pthread_t thread;
    touch();
    if (count > 1)
        pthread_create(&thread, NULL, idle, NULL);
    free(malloc(10));
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (child == 0) {
            free(malloc(10));
            _exit(i);
        }
        int status;
        waitpid(child, &status, 0);
        printf("%d\n", WEXITSTATUS(status));
    }
    return 0;
}
#endif
