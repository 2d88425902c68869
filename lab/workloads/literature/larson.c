// SPDX-License-Identifier: Apache-2.0
// A server as Larson and Krishnan describe it (ISMM 1998): each thread replaces random blocks of its array by blocks of a random size;
// after a while it hands the array on to a thread of its own making and ends, so that blocks are freed by others than made them.
// larson [-t THREADS] [-n ROUNDS] [-k BLOCKS] [-l LARGEST] [-s SEED]
#include "common.h"

#include <semaphore.h>

struct state {
    void **blocks;
    unsigned long count, rounds, largest;
    uint64_t random, freed;
};

enum { REPLACED_BY_ONE_THREAD = 20000 };

static sem_t ended; // posted by the last thread of each state

static void *serve(void *argument);

// Detached: who ends is gone at once, and what the allocator keeps for a thread goes back or to the next one.
static void hand_on(struct state *s)
{
    pthread_attr_t detached;
    pthread_t successor;
    if (pthread_attr_init(&detached) != 0 || pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) != 0 ||
        pthread_create(&successor, &detached, serve, s) != 0)
        fail("no thread could be made");
    pthread_attr_destroy(&detached);
}

static void *serve(void *argument)
{
    struct state *s = argument;
    for (int i = 0; i < REPLACED_BY_ONE_THREAD; i++) {
        unsigned long at = below(&s->random, s->count);
        s->freed += checked_free(s->blocks[at]);
        s->blocks[at] = stamped(16 + below(&s->random, s->largest - 15));
    }
    if (--s->rounds == 0)
        sem_post(&ended);
    else
        hand_on(s);
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned long threads = option(argc, argv, 't', 2), rounds = option(argc, argv, 'n', 40);
    unsigned long count = option(argc, argv, 'k', 2000), largest = option(argc, argv, 'l', 1000);
    struct state *states = calloc(threads, sizeof *states);
    if (states == NULL || largest < 16) fail("unusable options");
    for (unsigned long t = 0; t < threads; t++) {
        states[t] = (struct state){ calloc(count, sizeof(void *)), count, rounds, largest, seeded(option(argc, argv, 's', 1), t), 0 };
        if (states[t].blocks == NULL) fail("calloc returned NULL");
        for (unsigned long i = 0; i < count; i++) states[t].blocks[i] = stamped(16 + below(&states[t].random, largest - 15));
    }
    if (sem_init(&ended, 0, 0) != 0) fail("no semaphore");
    for (unsigned long t = 0; t < threads; t++) hand_on(&states[t]);
    for (unsigned long t = 0; t < threads; t++)
        while (sem_wait(&ended) != 0) continue;
    uint64_t freed = 0;
    for (unsigned long t = 0; t < threads; t++) {
        for (unsigned long i = 0; i < count; i++) states[t].freed += checked_free(states[t].blocks[i]);
        freed += states[t].freed;
        free(states[t].blocks);
    }
    free(states);
    printf("larson %lu threads: %llu bytes\n", threads, (unsigned long long)freed);
    return 0;
}
