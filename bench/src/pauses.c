// SPDX-License-Identifier: Apache-2.0
/*
 * pauses MIB SECONDS - how long malloc and free of two threads take while pages are given back. A heap of MIB is filled
 * with small blocks; each round frees most of them, so that the free pages lie between blocks in use, and fills it
 * again. Prints a histogram of the calls of the two threads (bucket b: 2^b ns and more), the resident memory at the
 * fullest and the least, and the CPU time of the process and of the thread imas-give-back.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_BYTES 256
#define PINNED 64
#define BUCKETS 40
#define THREADS 2

static volatile int over;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *measure(void *argument) {
    uint64_t *calls = argument;
    void *kept[64] = {NULL};
    for (uint64_t i = 0; !over; i++) {
        uint64_t before = clock_ns(CLOCK_MONOTONIC);
        free(kept[i % 64]);
        kept[i % 64] = malloc(64 + i % 4000);
        uint64_t took = clock_ns(CLOCK_MONOTONIC) - before;
        calls[63 - __builtin_clzll(took | 1)]++;
        if (i % 64 == 0)
            usleep(100); /* a server waits, too */
    }
    return NULL;
}

static char **blocks;

static void fill(size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (blocks[i] != NULL)
            continue;
        blocks[i] = malloc(BLOCK_BYTES - 16);
        memset(blocks[i], 1, BLOCK_BYTES - 16);
    }
}

static void empty(size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (i % PINNED == 0)
            continue;
        free(blocks[i]);
        blocks[i] = NULL;
    }
}

static uint64_t read_number(const char *path, int which) {
    char text[256] = "";
    int file = open(path, O_RDONLY);
    if (file < 0 || read(file, text, sizeof text - 1) < 0)
        return 0;
    close(file);
    char *at = text;
    uint64_t value = 0;
    for (int i = 0; i <= which; i++)
        value = strtoull(at, &at, 10);
    return value;
}

static uint64_t resident_kib(void) {
    return read_number("/proc/self/statm", 1) * 4;
}

static uint64_t pacer_ns(void) {
    DIR *tasks = opendir("/proc/self/task");
    uint64_t ns = 0;
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        int file = open(path, O_RDONLY);
        if (file < 0 || read(file, name, sizeof name - 1) < 0)
            name[0] = '\0';
        close(file);
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", task->d_name);
        if (strcmp(name, "imas-give-back\n") == 0)
            ns = read_number(path, 0);
    }
    closedir(tasks);
    return ns;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    size_t count = (size_t)atol(argv[1]) * 1048576 / BLOCK_BYTES;
    double seconds = atof(argv[2]);
    static uint64_t calls[THREADS][BUCKETS];
    pthread_t threads[THREADS];
    blocks = calloc(count, sizeof *blocks);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, measure, calls[i]);
    uint64_t most = 0, least = UINT64_MAX, until = clock_ns(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9);
    do {
        fill(count);
        uint64_t full = resident_kib();
        most = full > most ? full : most;
        empty(count);
        for (int i = 0; i < 60 && clock_ns(CLOCK_MONOTONIC) < until; i++) {
            uint64_t now = resident_kib();
            least = now < least ? now : least;
        }
    } while (clock_ns(CLOCK_MONOTONIC) < until);
    printf("resident %lu %lu\ncpu %lu %lu\n", most, least, clock_ns(CLOCK_PROCESS_CPUTIME_ID), pacer_ns());
    over = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int bucket = 0; bucket < BUCKETS; bucket++)
        printf("calls %d %lu\n", bucket, calls[0][bucket] + calls[1][bucket]);
    return 0;
}
