// SPDX-License-Identifier: Apache-2.0
/*
 * full.h - exact figures beside the sampled ones, for `bench/all IMAS --only truth`. The product contains
 * none of it.
 *
 * `make full` builds the hook twice more: with IMAS_FULL_TIME each call is timed, with IMAS_FULL_LIVE the
 * usable size of each block is added when it is made and taken off when it is freed. The samples are taken as
 * usual, in the same process. Their figures are in the page, the exact ones in the file that IMAS_FULL_FILE
 * names.
 */
#ifndef IMAS_HOOK_FULL_H
#define IMAS_HOOK_FULL_H

#include "next.h"

#if defined(IMAS_FULL_TIME) || defined(IMAS_FULL_LIVE)

#include "../abi/imas_abi.h"
#include "boot.h"

#define FULL_ENV_FILE "IMAS_FULL_FILE"
#define FULL_MOMENTS 512u

/* Live bytes of one moment, from four sources. */
struct full_moment {
    int64_t estimate;       /* the page's */
    int64_t exact;          /* usable bytes, added up */
    int64_t blocks;         /* live blocks, added up */
    uint64_t allocator;     /* mallinfo2: uordblks + hblkhd; jemalloc: stats.allocated; 0 where it does not report */
    uint64_t cached;        /* part of it in jemalloc's thread caches */
    uint64_t mapped_blocks; /* mallinfo2: hblks */
};

/* Times by log2 of their ticks, the empty pair not yet subtracted. */
struct full_times {
    uint64_t weight[IMAS_LATENCY_BUCKETS];
    uint64_t ticks[IMAS_LATENCY_BUCKETS]; /* times weight */
    uint64_t plausible_weight;             /* of those that enter a mean (plausible.h) */
    uint64_t plausible_ticks;
};

/* What IMAS_FULL_FILE holds; bench/lib/truth.py reads it. */
struct full_record {
    struct full_times all[IMAS_OPS];     /* each call with weight 1 */
    struct full_times sampled[IMAS_OPS]; /* as the page adds them up */
    int64_t live, blocks;                /* usable bytes and number of live blocks, now */
    uint64_t kind; /* of `allocator`: 0 mallinfo2, 1 jemalloc */
    uint64_t moments;
    struct full_moment moment[FULL_MOMENTS];
};

/* Maps the file as the record; without a file a private record is filled in that nobody reads. */
void full_begin(char **environment);
/* Adds one call, which took `ticks`, to the totals. */
void full_timed(enum imas_op op, uint64_t bytes, uint64_t ticks);
/* Adds a sampled call to the sampled ones, with the weight that it has in the page. */
void full_noted(enum imas_op op, uint64_t bytes, uint64_t ticks, uint64_t weight);
/* After each sampled malloc: with IMAS_FULL_LIVE, notes the moment now and then, so that FULL_MOMENTS reach
 * to the end. */
void full_look(void);

#ifdef IMAS_FULL_TIME

/* Between the clock reads there is the call alone; a sampled call is timed by its caller. */
#define full_call(op, old, bytes, call)                \
    ({                                                 \
        uint64_t full_start = ticks_now();             \
        void *full_block = (call);                     \
        full_timed(op, bytes, ticks_now() - full_start); \
        full_block;                                    \
    })
#define full_sampled(op, old, bytes, call) (call)
#define full_free_sampled(block) next.free(block)

static inline void full_free(void *block) {
    uint64_t start = ticks_now();
    next.free(block);
    full_timed(IMAS_OP_FREE, 0, ticks_now() - start);
}

#else

/* What a block was before it is changed. */
struct full_before {
    uint64_t usable;
    bool block;
};
/* Reads it from `old`; NULL and blocks of the bootstrap arena (boot.h) count as none. */
struct full_before full_before(void *old);
/* Adds what became of it: `block`, or nothing (`block` NULL with `bytes` 0: freed; with more: refused, `old`
 * lives on). */
void full_after(const struct full_before *before, void *block, size_t bytes);

#define full_call(op, old, bytes, call)                       \
    ({                                                        \
        struct full_before full_was = full_before(old);       \
        void *full_block = (call);                            \
        full_after(&full_was, full_block, bytes);             \
        full_block;                                           \
    })
#define full_sampled full_call
#define full_free_sampled full_free

static inline void full_free(void *block) {
    struct full_before before = full_before(block);
    next.free(block);
    full_after(&before, NULL, 0);
}

#endif

#else

#define full_begin(environment) ((void)0)
#define full_call(op, old, bytes, call) (call)
#define full_sampled(op, old, bytes, call) (call)
#define full_timed(op, bytes, ticks) ((void)0)
#define full_noted(op, bytes, ticks, weight) ((void)0)
#define full_look() ((void)0)
#define full_free(block) next.free(block)
#define full_free_sampled(block) next.free(block)

#endif
#endif
