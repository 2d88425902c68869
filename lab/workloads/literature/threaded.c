// SPDX-License-Identifier: Apache-2.0
// Like glibc's bench-malloc-thread: each thread has an array of blocks and replaces a random one by a block whose size is drawn from a
// distribution in which small blocks are far more frequent (an inverse power of the size).
// threaded [-t THREADS] [-n STEPS] [-k BLOCKS] [-s SEED]
#include "common.h"

struct task {
    unsigned long steps, count;
    uint64_t random, freed;
};

static size_t size_of(uint64_t *random)
{
    uint64_t uniform = (next_random(random) >> 52) + 1; // 1 to 4096
    size_t size = 65536 / uniform;
    return size < 16 ? 16 + below(random, 48) : size > 32768 ? 32768 : size;
}

static void *work(void *argument)
{
    struct task *task = argument;
    void **blocks = calloc(task->count, sizeof *blocks);
    if (blocks == NULL) fail("calloc returned NULL");
    for (unsigned long step = 0; step < task->steps; step++) {
        void **slot = &blocks[below(&task->random, task->count)];
        task->freed += checked_free(*slot);
        *slot = stamped(size_of(&task->random));
    }
    for (unsigned long i = 0; i < task->count; i++) task->freed += checked_free(blocks[i]);
    free(blocks);
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned long threads = option(argc, argv, 't', 4);
    struct task *tasks = calloc(threads, sizeof *tasks);
    if (tasks == NULL) fail("calloc returned NULL");
    for (unsigned long t = 0; t < threads; t++)
        tasks[t] = (struct task){ option(argc, argv, 'n', 6000000), option(argc, argv, 'k', 1024), seeded(option(argc, argv, 's', 1), t), 0 };
    in_threads(threads, work, tasks, sizeof *tasks);
    uint64_t freed = 0;
    for (unsigned long t = 0; t < threads; t++) freed += tasks[t].freed;
    printf("threaded %lu threads: %llu bytes\n", threads, (unsigned long long)freed);
    free(tasks);
    return 0;
}
