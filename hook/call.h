// SPDX-License-Identifier: Apache-2.0
/*
 * call.h - the slow path of the malloc family: calls before the constructor, the first call of a thread,
 * sampled calls, calls of a thread that shares a slot, and rare kinds of calls.
 */
#ifndef IMAS_HOOK_CALL_H
#define IMAS_HOOK_CALL_H

#include <stddef.h>
#include <stdint.h>

#include "sys.h"

enum call_kind {
    CALL_MALLOC,
    CALL_CALLOC,
    CALL_REALLOC,
    CALL_MEMALIGN,
    CALL_POSIX_MEMALIGN,
    CALL_ALIGNED_ALLOC,
    CALL_VALLOC,
    CALL_PVALLOC,
};

struct call {
    enum call_kind kind;
    void *old;        /* realloc */
    size_t alignment; /* memalign, posix_memalign, aligned_alloc */
    size_t count;     /* calloc */
    size_t size;
    size_t bytes; /* requested in all: what is counted */
    int error;    /* what posix_memalign returns */
};

/* Makes the call, counts it, samples it if the purse is empty. */
void *call_make(struct call *call);

/* The same for a call that has just emptied the purse. */
void *call_overdrawn(struct call *call);

/* free of a block that the filter lists: it may belong to the bootstrap arena, or be entered in the live
 * table. */
void call_free_marked(void *block);

/* free that has just emptied the purse of frees. */
void call_free_overdrawn(void *block);

/* Cost of two clock reads with nothing between, in ticks; set by the constructor. */
HIDDEN extern uint64_t call_empty_pair;

#endif
