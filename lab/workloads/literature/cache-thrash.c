// SPDX-License-Identifier: Apache-2.0
// Active false sharing, after the test in Berger et al., Hoard (ASPLOS 2000): all threads allocate small blocks at the same time and write
// to them; an allocator that gives one cache line to several threads makes each write expensive.
// cache-thrash [-t THREADS] [-n REPETITIONS] [-k WRITES]
#include "common.h"

struct task {
    pthread_barrier_t *start;
    unsigned long repetitions, writes;
    uint64_t sum;
};

enum { SIZE = 8 };

static void *work(void *argument)
{
    struct task *task = argument;
    pthread_barrier_wait(task->start);
    for (unsigned long n = 0; n < task->repetitions; n++) {
        volatile char *block = malloc(SIZE);
        if (block == NULL) fail("malloc returned NULL");
        memset((void *)block, (int)n, SIZE);
        for (unsigned long w = 0; w < task->writes; w++) block[w % SIZE] = (char)(block[w % SIZE] + 1);
        for (int i = 0; i < SIZE; i++) task->sum += (unsigned char)block[i];
        free((void *)block);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned long threads = option(argc, argv, 't', 2);
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    struct task *tasks = calloc(threads, sizeof *tasks);
    if (tasks == NULL) fail("calloc returned NULL");
    for (unsigned long t = 0; t < threads; t++)
        tasks[t] = (struct task){ &start, option(argc, argv, 'n', 400), option(argc, argv, 'k', 200000), 0 };
    in_threads(threads, work, tasks, sizeof *tasks);
    for (unsigned long t = 1; t < threads; t++)
        if (tasks[t].sum != tasks[0].sum) fail("threads wrote into each other's blocks");
    printf("cache-thrash %lu threads: %llu\n", threads, (unsigned long long)tasks[0].sum);
    pthread_barrier_destroy(&start);
    free(tasks);
    return 0;
}
