// SPDX-License-Identifier: Apache-2.0
// What the programs share: options, random numbers, stamps on blocks, threads. Header only, so that each program is one file.
#ifndef IMAS_LITERATURE_COMMON_H
#define IMAS_LITERATURE_COMMON_H

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Value of "-LETTER NUMBER"; an option that no program knows is an error of the caller, reported by the last check.
static inline unsigned long option(int argc, char **argv, char letter, unsigned long otherwise)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (argv[i][0] == '-' && argv[i][1] == letter && argv[i][2] == '\0') {
            char *end;
            errno = 0;
            unsigned long value = strtoul(argv[i + 1], &end, 10);
            if (errno != 0 || *end != '\0' || value == 0) {
                fprintf(stderr, "-%c %s: not a number above 0\n", letter, argv[i + 1]);
                exit(2);
            }
            return value;
        }
    }
    return otherwise;
}

static inline void fail(const char *what)
{
    fprintf(stderr, "failed: %s\n", what);
    exit(1);
}

// xorshift64*: the same numbers on every machine.
static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

static inline uint64_t seeded(unsigned long seed, unsigned long stream)
{
    uint64_t state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (stream + 1) * UINT64_C(0xbf58476d1ce4e5b9);
    state = state ? state : 1;
    for (int i = 0; i < 8; i++) next_random(&state);
    return state;
}

static inline uint64_t below(uint64_t *state, uint64_t limit) { return next_random(state) % limit; }

// A block that knows its own size; its first and last bytes are written and checked, as a program that uses it would.
static inline void *stamped(size_t size)
{
    size = size < 16 ? 16 : size;
    unsigned char *block = malloc(size);
    if (block == NULL) fail("malloc returned NULL");
    if ((uintptr_t)block % 16 != 0) fail("a block is not aligned to 16 bytes");
    memcpy(block, &size, sizeof size);
    block[size - 1] = (unsigned char)(size * 31 + 7);
    return block;
}

static inline size_t checked_free(void *block)
{
    if (block == NULL) return 0;
    size_t size;
    memcpy(&size, block, sizeof size);
    // A block of 16 bytes has its size in the first 8 and the stamp in the last.
    if (((unsigned char *)block)[size - 1] != (unsigned char)(size * 31 + 7)) fail("a block was overwritten");
    free(block);
    return size;
}

static inline void start_threads(pthread_t *threads, unsigned long count, void *(*work)(void *), void *arguments, size_t size)
{
    for (unsigned long i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, (char *)arguments + i * size) != 0) fail("no thread could be made");
}

static inline void join_threads(pthread_t *threads, unsigned long count)
{
    for (unsigned long i = 0; i < count; i++)
        if (pthread_join(threads[i], NULL) != 0) fail("a thread could not be waited for");
}

// Runs `work` in `count` threads, each with its own of the `arguments`, and waits.
static inline void in_threads(unsigned long count, void *(*work)(void *), void *arguments, size_t size)
{
    pthread_t *threads = calloc(count, sizeof *threads);
    if (threads == NULL) fail("calloc returned NULL");
    start_threads(threads, count, work, arguments, size);
    join_threads(threads, count);
    free(threads);
}

#endif
