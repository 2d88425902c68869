// SPDX-License-Identifier: Apache-2.0
// Large blocks, after the tests of that kind in rptest and mimalloc-bench: blocks of 32 KiB to 8 MiB are made, written page by page, grown and freed.
// large [-t THREADS] [-n STEPS] [-k BLOCKS] [-s SEED]
#include "common.h"

struct task {
    unsigned long steps, count;
    uint64_t random, freed;
};

static size_t size_of(uint64_t *random)
{
    uint64_t doubled = below(random, 8);
    return ((size_t)32 << (10 + doubled)) + below(random, 30000);
}

static void touch(unsigned char *block, size_t size)
{
    for (size_t at = sizeof size; at + 1 < size; at += 4096) block[at] = (unsigned char)at;
}

static void *work(void *argument)
{
    struct task *task = argument;
    void **blocks = calloc(task->count, sizeof *blocks);
    if (blocks == NULL) fail("calloc returned NULL");
    for (unsigned long step = 0; step < task->steps; step++) {
        void **slot = &blocks[below(&task->random, task->count)];
        if (*slot != NULL && step % 4 == 0) {
            size_t old, size = size_of(&task->random);
            memcpy(&old, *slot, sizeof old);
            unsigned char *block = realloc(*slot, size);
            if (block == NULL || memcmp(block, &old, sizeof old) != 0) fail("realloc lost what was in the block");
            memcpy(block, &size, sizeof size);
            block[size - 1] = (unsigned char)(size * 31 + 7);
            *slot = block;
            continue;
        }
        task->freed += checked_free(*slot);
        size_t size = size_of(&task->random);
        *slot = stamped(size);
        touch(*slot, size);
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
        tasks[t] = (struct task){ option(argc, argv, 'n', 3000), option(argc, argv, 'k', 40), seeded(option(argc, argv, 's', 1), t), 0 };
    in_threads(threads, work, tasks, sizeof *tasks);
    uint64_t freed = 0;
    for (unsigned long t = 0; t < threads; t++) freed += tasks[t].freed;
    printf("large %lu threads: %llu bytes\n", threads, (unsigned long long)freed);
    free(tasks);
    return 0;
}
