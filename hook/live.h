// SPDX-License-Identifier: Apache-2.0
/*
 * live.h - an estimate of the usable bytes in live blocks, without asking for a size when one is freed.
 *
 * A block of n requested bytes is entered with probability 1 - exp(-n/S) (sample.h) together with the usable
 * size it was given, and its share, usable size over probability, is added to the running sum; when it is
 * freed the share is subtracted. When more than LIVE_LIMIT blocks are entered, S doubles and each stays with
 * the probability that makes it a sample under the new S: the relative standard error of the sum is sqrt(S /
 * live bytes), 1.3 to 1.8 % then.
 *
 * No locks: an entry has one owner at a time, by compare-and-swap of its key. free first looks into a filter
 * of one byte per pointer hash; zero there means that the block is not entered.
 */
#ifndef IMAS_HOOK_LIVE_H
#define IMAS_HOOK_LIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "sample.h"
#include "sys.h"

#define LIVE_LIMIT 6144u /* of 16,384 places: with half of them taken, one block in 400 finds its sixteen full */
#define LIVE_FILTER_BITS 17

/* How many entered blocks hash here; LIVE_STICKY stays for ever: a block of the bootstrap arena, or too
 * many. */
HIDDEN extern unsigned char live_filter[1u << LIVE_FILTER_BITS];
#define LIVE_STICKY 255

/* Neighbours in memory are neighbours in the filter, so that it stays in cache with the blocks; the
 * multiplier mixes in higher bits, and makes two instructions of what would be three. */
static inline uint32_t live_hash(const void *block) {
    return (uint32_t)(uintptr_t)block * 0x811u >> (32 - LIVE_FILTER_BITS);
}

static inline bool live_maybe(const void *block) {
    return live_filter[live_hash(block)] != 0;
}

/* What is known of an entered block. */
struct live_block {
    uint64_t requested, usable;
    uint64_t share; /* bytes it stands for in the sum */
    uint64_t share_requested;
    unsigned shift; /* log2 of the S it was entered with */
};

/* log2 of the current S. */
HIDDEN extern unsigned live_current_shift;
static inline unsigned live_shift(void) {
    return get_relaxed(live_current_shift);
}

/* How a block came to be sampled. */
struct live_chance {
    unsigned shift;      /* log2 of the S then */
    probability bytes;   /* by its bytes alone */
    probability sampled; /* in all */
};

/* Enters a sampled block if chance wants it. May double S. */
void live_enter(const void *block, uint64_t requested, uint64_t usable, const struct live_chance *chance, uint64_t *random);

/* Whether such a block was certain to be entered: all such frees are seen, and timed, those of the others by
 * chance. */
static inline bool live_was_certain(const struct live_block *block) {
    return block->requested >> block->shift >= 8;
}

/* Removes a block before it is freed. Fills `taken` and returns true if it was entered. */
bool live_take(const void *block, struct live_block *taken);

/* Enters again a block that live_take took: its realloc failed, it lives on. */
void live_put_back(const void *block, const struct live_block *taken);

/* Doubles S although few blocks are entered: the program's blocks are so large that too many calls are
 * sampled. */
void live_coarsen(uint64_t *random);

/* Marks a block of the bootstrap arena in the filter, so that free asks whose it is. */
void live_mark_boot(const void *block);

/* In a child: a thread of the parent may have been changing the table. */
void live_after_fork(void);

#endif
