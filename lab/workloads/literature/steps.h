// SPDX-License-Identifier: Apache-2.0
// What the programs share whose threads make and free blocks in many steps.
#ifndef IMAS_LITERATURE_STEPS_H
#define IMAS_LITERATURE_STEPS_H

#include "common.h"

struct task {
    unsigned long steps, count;
    uint64_t random, freed;
};

static inline void **no_blocks(unsigned long count)
{
    void **blocks = calloc(count, sizeof *blocks);
    if (blocks == NULL) fail("calloc returned NULL");
    return blocks;
}

static inline void free_all(struct task *task, void **blocks)
{
    for (unsigned long i = 0; i < task->count; i++) task->freed += checked_free(blocks[i]);
    free(blocks);
}

// The whole program; `threads`, `steps` and `count` hold where no option says otherwise.
static inline int in_steps(int argc, char **argv, const char *name, void *(*work)(void *), unsigned long threads, unsigned long steps,
                           unsigned long count)
{
    threads = option(argc, argv, 't', threads);
    struct task *tasks = calloc(threads, sizeof *tasks);
    if (tasks == NULL) fail("calloc returned NULL");
    for (unsigned long t = 0; t < threads; t++)
        tasks[t] = (struct task){ option(argc, argv, 'n', steps), option(argc, argv, 'k', count), seeded(option(argc, argv, 's', 1), t), 0 };
    in_threads(threads, work, tasks, sizeof *tasks);
    uint64_t freed = 0;
    for (unsigned long t = 0; t < threads; t++) freed += tasks[t].freed;
    printf("%s %lu threads: %llu bytes\n", name, threads, (unsigned long long)freed);
    free(tasks);
    return 0;
}

#endif
