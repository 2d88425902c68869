// SPDX-License-Identifier: Apache-2.0
// holes MIB: fills so much in blocks of 1,000 bytes and frees all but every hundredth, so that whole free pages lie between
// blocks in use. Then its first thread waits for a byte on standard input, and a second one frees and takes blocks. Prints
// "ready", and for each byte the longest call of the second thread since the last one, ns.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_ulong longest;

static unsigned long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long)now.tv_sec * 1000000000 + (unsigned long)now.tv_nsec;
}

static void *busy(void *unused)
{
    (void)unused;
    void *blocks[64] = {0};
    const struct timespec pause = {.tv_nsec = 50000};
    for (unsigned long turn = 0;; turn++) {
        unsigned long begin = now_ns();
        free(blocks[turn % 64]);
        blocks[turn % 64] = malloc(2000 + turn % 1000); // more than a thread's own cache takes
        unsigned long took = now_ns() - begin;
        if (took > atomic_load(&longest))
            atomic_store(&longest, took);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

int main(int count, char **words)
{
    size_t blocks = (count > 1 ? strtoul(words[1], NULL, 10) : 64) << 10;
    char **all = malloc(blocks * sizeof *all);
    for (size_t at = 0; at < blocks; at++)
        memset(all[at] = malloc(1000), 1, 1000);
    for (size_t at = 0; at < blocks; at++)
        if (at % 100)
            free(all[at]);
    pthread_t thread;
    if (pthread_create(&thread, NULL, busy, NULL))
        return 1;
    puts("ready");
    fflush(stdout);
    for (char byte; read(0, &byte, 1) == 1;) {
        printf("%lu\n", atomic_exchange(&longest, 0));
        fflush(stdout);
    }
}
