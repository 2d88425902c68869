// SPDX-License-Identifier: Apache-2.0
/* Threads with large stacks and hardly a heap: stacks are not heap. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS 24
static pthread_barrier_t all_there, all_done;

static void *work(void *argument) {
    free(malloc(100));
    pthread_barrier_wait(&all_there);
    pthread_barrier_wait(&all_done);
    return argument;
}

int main(void) {
    pthread_t thread[THREADS];
    pthread_attr_t odd;
    pthread_attr_init(&odd);
    pthread_attr_setstacksize(&odd, 3 << 20);
    pthread_barrier_init(&all_there, NULL, THREADS + 1);
    pthread_barrier_init(&all_done, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], i % 2 ? &odd : NULL, work, NULL) != 0)
            return 1;
    pthread_barrier_wait(&all_there);
    puts("all there");
    exit(0); /* the exit snapshot sees them all */
}
