// SPDX-License-Identifier: Apache-2.0
// Like mleak: thousands of threads are made one after the other; each allocates a little, frees it or leaves it to the main thread, and ends.
// An allocator that does not take a dead thread's memory back grows with each.
// threadleak [-n THREADS] [-k BLOCKS] [-s SEED]
#include "common.h"

struct task {
    unsigned long count;
    uint64_t random, freed;
    void *left;
};

static void *work(void *argument)
{
    struct task *task = argument;
    void **blocks = calloc(task->count, sizeof *blocks);
    if (blocks == NULL) fail("calloc returned NULL");
    for (unsigned long i = 0; i < task->count; i++) blocks[i] = stamped(16 + below(&task->random, i % 50 == 0 ? 40000 : 700));
    for (unsigned long i = 1; i < task->count; i++) task->freed += checked_free(blocks[i]);
    task->left = blocks[0];
    free(blocks);
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned long threads = option(argc, argv, 'n', 8000);
    struct task task = { option(argc, argv, 'k', 300), seeded(option(argc, argv, 's', 1), 0), 0, NULL };
    for (unsigned long n = 0; n < threads; n++) {
        in_threads(1, work, &task, sizeof task);
        task.freed += checked_free(task.left);
    }
    printf("threadleak %lu threads: %llu bytes\n", threads, (unsigned long long)task.freed);
    return 0;
}
