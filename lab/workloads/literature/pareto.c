// SPDX-License-Identifier: Apache-2.0
// Like OLogN's alloc-test: each thread has many slots; a slot is chosen by a Pareto distribution (a few are in use all the time), is freed if it
// is full, and gets a block of a Pareto-distributed size if it is empty. Sizes and lifetimes are those of long-running programs.
// pareto [-t THREADS] [-n STEPS] [-k SLOTS] [-s SEED]
#include "common.h"

struct task {
    unsigned long steps, slots;
    uint64_t random, freed, made;
};

// Pareto with exponent 1: inverse of a uniform number, cut at `limit`; integers only, the same everywhere.
static uint64_t pareto(uint64_t *random, uint64_t smallest, uint64_t limit)
{
    uint64_t uniform = (next_random(random) >> 44) + 1; // 1 to 2^20
    uint64_t value = smallest * ((UINT64_C(1) << 20) / uniform);
    return value >= limit ? below(random, limit) : value;
}

static void *work(void *argument)
{
    struct task *task = argument;
    void **slots = calloc(task->slots, sizeof *slots);
    if (slots == NULL) fail("calloc returned NULL");
    for (unsigned long step = 0; step < task->steps; step++) {
        // Multiplying by an odd number spreads the frequent slots over the array.
        unsigned long at = pareto(&task->random, 1, task->slots) * UINT64_C(2654435761) % task->slots;
        if (slots[at] != NULL) {
            task->freed += checked_free(slots[at]);
            slots[at] = NULL;
        } else {
            size_t size = 16 + pareto(&task->random, 8, 32768);
            slots[at] = stamped(size);
            task->made += size;
        }
    }
    for (unsigned long i = 0; i < task->slots; i++) task->freed += checked_free(slots[i]);
    free(slots);
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned long threads = option(argc, argv, 't', 2);
    struct task *tasks = calloc(threads, sizeof *tasks);
    if (tasks == NULL) fail("calloc returned NULL");
    for (unsigned long t = 0; t < threads; t++)
        tasks[t] = (struct task){ option(argc, argv, 'n', 8000000), option(argc, argv, 'k', 100000), seeded(option(argc, argv, 's', 1), t), 0, 0 };
    in_threads(threads, work, tasks, sizeof *tasks);
    uint64_t freed = 0;
    for (unsigned long t = 0; t < threads; t++) {
        if (tasks[t].freed != tasks[t].made) fail("not all that was made was freed");
        freed += tasks[t].freed;
    }
    printf("pareto %lu threads: %llu bytes\n", threads, (unsigned long long)freed);
    free(tasks);
    return 0;
}
