// SPDX-License-Identifier: Apache-2.0
/*
 * told.h - what the allocator itself says about the memory it holds: mallinfo2 of the object whose malloc serves, if that is
 * glibc or one of our allocators, or a jemalloc's mallctl. Of all others nothing is told, and nothing guessed.
 */
#ifndef IMAS_HOOK_TOLD_H
#define IMAS_HOOK_TOLD_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes, without overlap: together what the allocator holds of the system, less what it gave back. */
struct told {
    uint64_t in_use; /* in live blocks, with their headers; glibc's includes what its thread caches hold */
    uint64_t cached; /* free blocks: thread caches, bins, holes in pages in use */
    uint64_t dirty;  /* pages that hold nothing live; of glibc's only the top of the main heap, and that may never have been touched */
    uint64_t own;    /* its bookkeeping; 0 where it is not told */
};

/* Finds out whom to ask, and which signals are blocked at the start. Only from the constructor: a failed search allocates. */
void told_find(void);

/*
 * Asks. False when nobody tells, or when now is no time: whoever is asked takes the allocator's locks, and a signal handler
 * may have interrupted a call that holds them. A handler runs with its signal blocked, so while more is blocked than always
 * was nothing is asked, and while it is asked no handler may come in between. The caller stands behind a finished malloc of
 * the program's own, never at its end: _exit may be called from a handler. `later` is set where another moment may do.
 */
bool told_now(struct told *told, bool *later);

#endif
