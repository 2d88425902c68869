// SPDX-License-Identifier: Apache-2.0
// Passive false sharing, after the test in Berger et al., Hoard (ASPLOS 2000): the main thread makes one small block for each thread; a
// thread frees the block it was given, then allocates blocks of the same size and writes to them over and over. An allocator that hands
// out neighbouring blocks again to different threads makes them share cache lines.
// cache-scratch [-t THREADS] [-n REPETITIONS] [-k WRITES]
#include "common.h"

struct task {
    char *given;
    unsigned long repetitions, writes;
    uint64_t sum;
};

enum { SIZE = 8 };

static void *work(void *argument)
{
    struct task *task = argument;
    free(task->given);
    for (unsigned long n = 0; n < task->repetitions; n++) {
        volatile char *block = malloc(SIZE);
        if (block == NULL) fail("malloc returned NULL");
        for (int i = 0; i < SIZE; i++) block[i] = (char)n;
        for (unsigned long w = 0; w < task->writes; w++) block[w % SIZE] = (char)(block[w % SIZE] + 1);
        for (int i = 0; i < SIZE; i++) task->sum += (unsigned char)block[i];
        free((void *)block);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned long threads = option(argc, argv, 't', 2);
    struct task *tasks = calloc(threads, sizeof *tasks);
    if (tasks == NULL) fail("calloc returned NULL");
    for (unsigned long t = 0; t < threads; t++)
        tasks[t] = (struct task){ malloc(SIZE), option(argc, argv, 'n', 400), option(argc, argv, 'k', 200000), 0 };
    in_threads(threads, work, tasks, sizeof *tasks);
    for (unsigned long t = 1; t < threads; t++)
        if (tasks[t].sum != tasks[0].sum) fail("threads wrote into each other's blocks");
    printf("cache-scratch %lu threads: %llu\n", threads, (unsigned long long)tasks[0].sum);
    free(tasks);
    return 0;
}
