// SPDX-License-Identifier: Apache-2.0
// Producers and consumers, after Lever and Boreham's xmalloc test (2000): half of the threads only allocate, the other half only free
// what the first half made; batches change hands through a bounded queue.
// prodcons [-t PAIRS] [-n BATCHES] [-s SEED]
#include "common.h"

enum { BATCH = 120, ROOM = 16 };

struct pair {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void **queue[ROOM];
    unsigned long head, tail, batches;
    uint64_t random, made, freed;
};

static void *produce(struct pair *p)
{
    for (unsigned long n = 0; n < p->batches; n++) {
        void **batch = malloc(BATCH * sizeof *batch);
        if (batch == NULL) fail("malloc returned NULL");
        for (int i = 0; i < BATCH; i++) {
            size_t size = 16 + below(&p->random, i % 10 == 0 ? 4000 : 240);
            batch[i] = stamped(size);
            p->made += size;
        }
        pthread_mutex_lock(&p->lock);
        while (p->tail - p->head == ROOM) pthread_cond_wait(&p->changed, &p->lock);
        p->queue[p->tail++ % ROOM] = batch;
        pthread_cond_signal(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
    return NULL;
}

static void *consume(struct pair *p)
{
    for (unsigned long n = 0; n < p->batches; n++) {
        pthread_mutex_lock(&p->lock);
        while (p->tail == p->head) pthread_cond_wait(&p->changed, &p->lock);
        void **batch = p->queue[p->head++ % ROOM];
        pthread_cond_signal(&p->changed);
        pthread_mutex_unlock(&p->lock);
        for (int i = 0; i < BATCH; i++) p->freed += checked_free(batch[i]);
        free(batch);
    }
    return NULL;
}

struct side {
    struct pair *pair;
    int consumes;
};

static void *work(void *argument)
{
    struct side *side = argument;
    return side->consumes ? consume(side->pair) : produce(side->pair);
}

int main(int argc, char **argv)
{
    unsigned long pairs = option(argc, argv, 't', 1), batches = option(argc, argv, 'n', 20000);
    struct pair *all = calloc(pairs, sizeof *all);
    struct side *sides = calloc(2 * pairs, sizeof *sides);
    if (all == NULL || sides == NULL) fail("calloc returned NULL");
    for (unsigned long i = 0; i < pairs; i++) {
        pthread_mutex_init(&all[i].lock, NULL);
        pthread_cond_init(&all[i].changed, NULL);
        all[i].batches = batches;
        all[i].random = seeded(option(argc, argv, 's', 1), i);
        sides[2 * i] = (struct side){ &all[i], 0 };
        sides[2 * i + 1] = (struct side){ &all[i], 1 };
    }
    in_threads(2 * pairs, work, sides, sizeof *sides);
    uint64_t bytes = 0;
    for (unsigned long i = 0; i < pairs; i++) {
        if (all[i].made != all[i].freed) fail("not all that was made came to be freed");
        bytes += all[i].freed;
    }
    printf("prodcons %lu pairs: %llu bytes\n", pairs, (unsigned long long)bytes);
    free(sides);
    free(all);
    return 0;
}
