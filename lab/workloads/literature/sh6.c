// SPDX-License-Identifier: Apache-2.0
// Like MicroQuill's SmartHeap test 6: each thread keeps a list of blocks of 1 to 1,000 bytes, small ones being more frequent; it fills the
// list, frees runs of neighbours in it in the order they were made, and fills the gaps again.
// sh6 [-t THREADS] [-n PASSES] [-k BLOCKS] [-s SEED]
#include "common.h"

struct task {
    unsigned long passes, count;
    uint64_t random, freed;
};

static size_t size_of(uint64_t *random)
{
    // Three of four below 100 bytes.
    return below(random, 4) < 3 ? 16 + below(random, 84) : 100 + below(random, 901);
}

static void *work(void *argument)
{
    struct task *task = argument;
    void **blocks = calloc(task->count, sizeof *blocks);
    if (blocks == NULL) fail("calloc returned NULL");
    for (unsigned long pass = 0; pass < task->passes; pass++) {
        for (unsigned long i = 0; i < task->count; i++)
            if (blocks[i] == NULL) blocks[i] = stamped(size_of(&task->random));
        unsigned long at = below(&task->random, task->count / 2), run = task->count / 4;
        for (unsigned long i = at; i < at + run; i++) {
            task->freed += checked_free(blocks[i]);
            blocks[i] = NULL;
        }
    }
    for (unsigned long i = 0; i < task->count; i++) task->freed += checked_free(blocks[i]);
    free(blocks);
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned long threads = option(argc, argv, 't', 1);
    struct task *tasks = calloc(threads, sizeof *tasks);
    if (tasks == NULL) fail("calloc returned NULL");
    for (unsigned long t = 0; t < threads; t++)
        tasks[t] = (struct task){ option(argc, argv, 'n', 2000), option(argc, argv, 'k', 20000), seeded(option(argc, argv, 's', 1), t), 0 };
    in_threads(threads, work, tasks, sizeof *tasks);
    uint64_t freed = 0;
    for (unsigned long t = 0; t < threads; t++) freed += tasks[t].freed;
    printf("sh6 %lu threads: %llu bytes\n", threads, (unsigned long long)freed);
    free(tasks);
    return 0;
}
