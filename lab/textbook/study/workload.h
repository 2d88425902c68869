// SPDX-License-Identifier: Apache-2.0
/* What the fit tests have in common: a seeded source of numbers, a table of live blocks, the heap
 * as seen through the break, and "key value" lines on stdout.
 *
 * Each test takes a seed as its only argument (1 without). They print once before their work, as
 * the paper's programs do, so that stdio's buffer is the first block of the heap. No request
 * reaches 128 KiB: glibc would serve it outside the break.
 */
#ifndef IMAS_FIT_WORKLOAD_H
#define IMAS_FIT_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 20000, MIX_SLOTS = 2000 };

struct workload {
    struct random_data random;
    char random_state[128];
    uintptr_t start_break;
    uintptr_t last_break;
    size_t break_moves;
    size_t live_bytes;
    size_t peak_live_bytes;
    size_t operations;
    void *slot[SLOTS];
    size_t slot_bytes[SLOTS];
};

static inline void workload_start(struct workload *w, int argc, char **argv, const char *purpose)
{
    unsigned seed = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
    w->start_break = w->last_break = (uintptr_t)sbrk(0);
    printf("Running %s\n", purpose);
    initstate_r(seed, w->random_state, sizeof w->random_state, &w->random);
}

/* Uniform in [least, most]. */
static inline size_t workload_draw(struct workload *w, size_t least, size_t most)
{
    int32_t number;
    random_r(&w->random, &number);
    return least + (size_t)number % (most - least + 1);
}

static inline void workload_note_break(struct workload *w)
{
    uintptr_t now = (uintptr_t)sbrk(0);
    w->break_moves += now != w->last_break;
    w->last_break = now;
}

static inline void workload_allocate(struct workload *w, size_t at, size_t bytes)
{
    w->slot[at] = malloc(bytes);
    if (!w->slot[at]) {
        fputs("imas: fit test: out of memory\n", stderr);
        exit(1);
    }
    memset(w->slot[at], (int)at, bytes);
    w->slot_bytes[at] = bytes;
    w->live_bytes += bytes;
    if (w->live_bytes > w->peak_live_bytes)
        w->peak_live_bytes = w->live_bytes;
    w->operations++;
    workload_note_break(w);
}

/* The last byte is looked at, so that a block that was handed out twice shows. */
static inline void workload_release(struct workload *w, size_t at)
{
    const unsigned char *bytes = w->slot[at];
    if (bytes[w->slot_bytes[at] - 1] != (unsigned char)at) {
        fputs("imas: fit test: a block was overwritten\n", stderr);
        exit(1);
    }
    free(w->slot[at]);
    w->slot[at] = NULL;
    w->live_bytes -= w->slot_bytes[at];
    w->operations++;
}

/* Nine small requests to a large one, as programs ask. */
static inline size_t workload_mixed_size(struct workload *w)
{
    bool small = workload_draw(w, 1, 10) < 10;
    return small ? workload_draw(w, 16, 512) : workload_draw(w, 1024, 16384);
}

/* `steps` times: a random slot is filled if it is empty, emptied if it is full. */
static inline void workload_mix(struct workload *w, size_t steps)
{
    for (size_t i = 0; i < steps; i++) {
        size_t at = workload_draw(w, 0, MIX_SLOTS - 1);
        if (w->slot[at])
            workload_release(w, at);
        else
            workload_allocate(w, at, workload_mixed_size(w));
    }
}

static inline size_t workload_heap_bytes(const struct workload *w)
{
    return w->last_break - w->start_break;
}

static inline void report(const char *key, size_t value)
{
    printf("%s %zu\n", key, value);
}

#endif
