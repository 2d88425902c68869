// SPDX-License-Identifier: Apache-2.0
// Threads that work one after the other and live on: each frees nearly all of its blocks, and glibc keeps the memory
// in the arena of each. One arena for all takes a small part of it.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 8, BLOCKS = 6000, BYTES = 1000, KEPT = 200, ROUNDS = 2 };

static pthread_barrier_t turn_over, all_over;

static void *work(void *unused)
{
    (void)unused;
    char **blocks = calloc(BLOCKS, sizeof *blocks);
    for (int round = 0; blocks != NULL && round < ROUNDS; round++) {
        for (int index = 0; index < BLOCKS; index++) {
            if (blocks[index] == NULL && (blocks[index] = malloc(BYTES)) != NULL)
                memset(blocks[index], 1, BYTES);
        }
        for (int index = 0; index < BLOCKS; index++) {
            if (index % KEPT != 0) {
                free(blocks[index]);
                blocks[index] = NULL;
            }
        }
    }
    pthread_barrier_wait(&turn_over);
    pthread_barrier_wait(&all_over);
    return blocks;
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&turn_over, NULL, 2);
    pthread_barrier_init(&all_over, NULL, THREADS + 1);
    for (int index = 0; index < THREADS; index++) {
        if (pthread_create(&threads[index], NULL, work, NULL) != 0)
            return 1;
        pthread_barrier_wait(&turn_over);
    }
    usleep(300000);
    pthread_barrier_wait(&all_over);
    for (int index = 0; index < THREADS; index++)
        pthread_join(threads[index], NULL);
    return 0;
}
