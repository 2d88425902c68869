// SPDX-License-Identifier: Apache-2.0
/*
 * thread.h - what each thread keeps for itself, and the page all threads count into.
 *
 * All bytes zero is the state of a thread that has not called us yet: both purses are empty, so its first
 * call takes the slow path, which notices it. The fast path needs no other check.
 */
#ifndef IMAS_HOOK_THREAD_H
#define IMAS_HOOK_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "../abi/imas_abi.h"
#include "sample.h"
#include "sys.h"

/* How a thread's calls are counted. */
enum thread_mode {
    THREAD_NEW = 0,
    THREAD_OWN,    /* in a slot of its own, by plain stores */
    THREAD_SHARED, /* in a slot with others: purses stay empty, so that every call takes the slow path and adds atomically */
    THREAD_IDLE,   /* not counted: the slot is one that nobody reads */
};

struct thread {
    uint64_t gap;           /* bytes left until the next sampled allocation, and 1 */
    uint64_t toll;          /* bytes that each call pays besides its size: S/128 + 1 */
    struct imas_slot *slot; /* set unless THREAD_NEW */
    uint32_t free_gap;      /* frees left until the next sampled one */
    uint32_t shared_free_gap;
    uint64_t shared_gap; /* the purses of a THREAD_SHARED */
    uint64_t random;
    uint64_t calls_at_check; /* allocating calls when the rate of samples was last looked at */
    uint16_t samples;        /* since then */
    uint8_t shift;           /* log2 of the S that `gap` was drawn with */
    uint8_t mode;            /* enum thread_mode */
};
_Static_assert(sizeof(struct thread) <= 128, "static TLS is scarce");

/* On average one free in this many is timed. */
#define THREAD_FREE_MEAN 128u

HIDDEN extern __thread struct thread thread_self;

/* Where everything is counted: the trial page, or a private one that nobody reads. Never NULL. */
HIDDEN extern struct imas_page *thread_page;

/* Whether calls are counted at all; set by the constructor, cleared in a forked child. */
HIDDEN extern bool thread_counting;

/* Gives the calling thread a slot. Only after next_found. */
void thread_enter(struct thread *thread);

/* What `toll` is of a thread with a purse. */
static inline uint64_t thread_toll(const struct thread *thread) {
    return (UINT64_C(1) << (thread->shift - SAMPLE_TOLL_SHIFT)) + 1;
}

/* Draws new purses with the current S. */
void thread_refill(struct thread *thread);
void thread_refill_free(struct thread *thread);

/* Starts counting into `page`, with the calling thread first. */
void thread_start(struct imas_page *page);

/* In a forked child: its one thread counts into `page` from nothing, or nowhere when `page` is NULL. */
void thread_restart_in_child(struct imas_page *page);

/* Whether `address` lies in the control block of a thread that has a slot, which distinguishes a thread's stack from
 * the heap. `end` receives the end of what belongs to the thread. */
bool thread_stack_end(uintptr_t start, uintptr_t limit, uintptr_t *end);

#endif
