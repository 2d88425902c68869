// SPDX-License-Identifier: Apache-2.0
// Like t-test1: threads that each fill and empty bins with blocks of random sizes by malloc, calloc, realloc and memalign; a thread that has
// done its part ends and another takes its place, as the original has it. Nanoseconds an operation, of CPU time and elapsed.
// threads [-t THREADS] [-n OPERATIONS] [-k BLOCKS] [-s SEED]
#include "figures.h"

#include <malloc.h>

enum { GENERATIONS = 4, LARGEST = 10000 };

struct task {
    unsigned long blocks, operations;
    uint64_t random, done;
};

struct bin {
    unsigned char *block;
    size_t size;
};

// Small sizes are more frequent: the upper limit is drawn first.
static size_t size_of(uint64_t *random) { return 1 + below(random, 1 + below(random, LARGEST)); }

static void mark(struct bin *bin)
{
    if (bin->block == NULL) fail("an allocation returned NULL");
    bin->block[0] = (unsigned char)bin->size;
    bin->block[bin->size - 1] = (unsigned char)bin->size;
}

static void check(const struct bin *bin)
{
    if (bin->block[bin->size - 1] != (unsigned char)bin->size) fail("a block was overwritten");
}

static void renew(struct bin *bin, uint64_t *random)
{
    uint64_t dice = below(random, 100);
    size_t size = size_of(random);
    if (bin->block != NULL && dice < 15) {
        check(bin);
        bin->block = realloc(bin->block, size);
    } else {
        if (bin->block != NULL) check(bin);
        free(bin->block);
        bin->block = dice < 30 ? calloc(1, size) : dice < 33 ? memalign(64, size) : malloc(size);
    }
    bin->size = size;
    mark(bin);
}

static void *work(void *argument)
{
    struct task *task = argument;
    struct bin *bins = calloc(task->blocks, sizeof *bins);
    if (bins == NULL) fail("calloc returned NULL");
    for (unsigned long i = 0; i < task->operations; i++) {
        renew(&bins[below(&task->random, task->blocks)], &task->random);
        task->done++;
    }
    for (unsigned long i = 0; i < task->blocks; i++) free(bins[i].block);
    free(bins);
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned long threads = option(argc, argv, 't', 1), seed = option(argc, argv, 's', 1);
    unsigned long operations = option(argc, argv, 'n', 200000), blocks = option(argc, argv, 'k', 1000);
    struct task *tasks = calloc(threads, sizeof *tasks);
    if (tasks == NULL) fail("calloc returned NULL");
    for (unsigned long i = 0; i < threads; i++)
        tasks[i] = (struct task){ blocks, operations / GENERATIONS + 1, seeded(seed, i), 0 };
    double cpu = cpu_seconds(), elapsed = seconds_of(CLOCK_MONOTONIC);
    for (int generation = 0; generation < GENERATIONS; generation++) in_threads(threads, work, tasks, sizeof *tasks);
    cpu = cpu_seconds() - cpu;
    elapsed = seconds_of(CLOCK_MONOTONIC) - elapsed;
    uint64_t done = 0;
    for (unsigned long i = 0; i < threads; i++) done += tasks[i].done;
    figure("cpu", cpu * 1e9 / (double)done);
    figure("elapsed", elapsed * 1e9 / (double)done);
    end_of_figures();
    free(tasks);
    return 0;
}
