// SPDX-License-Identifier: Apache-2.0
/*
 * allocator_stats.h - the allocator's own figures of the memory it holds: mallinfo2 of the object whose
 * malloc serves, where that is glibc or one of our allocators, or mallctl of a jemalloc. Of other allocators
 * nothing is known.
 */
#ifndef IMAS_HOOK_ALLOCATOR_STATS_H
#define IMAS_HOOK_ALLOCATOR_STATS_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes, each counted once. Together: what the allocator took from the system and has not given back. */
struct allocator_stats {
    uint64_t in_use; /* in live blocks, with their headers; glibc's includes what its thread caches hold */
    uint64_t cached; /* free blocks: thread caches, bins, holes in pages in use */
    uint64_t dirty;  /* pages that hold nothing live; of glibc's only the top of the main heap, and that may never have been touched */
    uint64_t own;    /* its bookkeeping; 0 where it does not report that */
};

/* Looks up the function to call and notes the signals blocked at the start. Only from the constructor: a
 * failed look-up allocates. */
void allocator_stats_find(void);

/*
 * Reads the figures. False where the allocator has none, or where it is not safe now. `retry` is set in that
 * second case.
 *
 * The allocator takes its locks to answer. A signal handler may have interrupted a call that holds them, and
 * would wait for ever. A handler runs with its signal blocked: so nothing is read while more signals are
 * blocked than always were, and signals are blocked while it is read. Call it after a finished malloc of the
 * program, never at the program's end: a handler may call _exit.
 */
bool allocator_stats_read(struct allocator_stats *stats, bool *retry);

#endif
