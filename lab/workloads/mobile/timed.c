// SPDX-License-Identifier: Apache-2.0
// Like tlsf-test: allocates until a given time is up and prints the mean time of malloc, realloc and free, in nanoseconds of CPU time.
// The clock is read around batches, since reading it takes longer than a malloc; sizes and victims are drawn outside of them.
// timed [-d MILLISECONDS] [-s SEED]
#include "figures.h"

enum { SLOTS = 16384, BATCH = 1024, LARGEST = 4096 };

struct times {
    double allocate, resize, release;
    uint64_t batches;
};

static void *slots[SLOTS];
static uint32_t chosen[BATCH], sizes[BATCH];

// Different slots: a window of a walk with an odd stride visits each once before it comes round.
static void draw(uint64_t *random)
{
    uint32_t start = (uint32_t)below(random, SLOTS), stride = (uint32_t)below(random, SLOTS / 2) * 2 + 1;
    for (uint32_t i = 0; i < BATCH; i++) {
        chosen[i] = (start + i * stride) % SLOTS;
        sizes[i] = 16 + (uint32_t)below(random, 1 + below(random, LARGEST));
    }
}

static void touched(void *block)
{
    if (block == NULL) fail("an allocation returned NULL");
    *(volatile unsigned char *)block = 1;
}

static void release(void)
{
    for (uint32_t i = 0; i < BATCH; i++) free(slots[chosen[i]]);
}

static void allocate(void)
{
    for (uint32_t i = 0; i < BATCH; i++) touched(slots[chosen[i]] = malloc(sizes[i]));
}

static void resize(void)
{
    for (uint32_t i = 0; i < BATCH; i++) touched(slots[chosen[i]] = realloc(slots[chosen[i]], sizes[i]));
}

static double timed(void (*batch)(void))
{
    double start = cpu_seconds();
    batch();
    return cpu_seconds() - start;
}

int main(int argc, char **argv)
{
    double until = (double)option(argc, argv, 'd', 300) / 1e3;
    uint64_t random = seeded(option(argc, argv, 's', 1), 0);
    struct times times = { 0 };
    for (uint32_t i = 0; i < SLOTS; i++) touched(slots[i] = malloc(16 + below(&random, LARGEST)));
    double start = cpu_seconds();
    while (cpu_seconds() - start < until) {
        draw(&random);
        times.release += timed(release);
        times.allocate += timed(allocate);
        draw(&random);
        times.resize += timed(resize);
        times.batches++;
    }
    double calls = (double)times.batches * BATCH;
    figure("malloc", times.allocate * 1e9 / calls);
    figure("realloc", times.resize * 1e9 / calls);
    figure("free", times.release * 1e9 / calls);
    end_of_figures();
    for (uint32_t i = 0; i < SLOTS; i++) free(slots[i]);
    return 0;
}
