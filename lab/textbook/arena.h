// SPDX-License-Identifier: Apache-2.0
/* 64 KiB arenas for the free-list study: three allocators over one mmap each, first fit.
 *
 * After Öberg, "Malloc" (KTH, ID1206, 2021), section 3. The versions differ in what config.h's
 * parameters make of block.c; each is a library of its own that exports one `struct arena_version`.
 */
#ifndef IMAS_FIT_ARENA_H
#define IMAS_FIT_ARENA_H

#include "block.h"

enum { ARENA_BYTES = 64 * 1024 };

/* The caller's; `memory` is the mapping. */
struct arena {
    struct blocks list;
    struct segment segment;
    void *memory;
};

/* Free blocks are counted with the payload they would give, as the paper does (65,488 at first). */
struct arena_view {
    size_t free_blocks;
    size_t free_payload_bytes;
    size_t used_blocks;
};

struct arena_version {
    const char *name;        /* "plain", "merging", "small-head" */
    size_t header_bytes;     /* of every block */
    size_t request_min;      /* smallest size the paper's workload asks this version for */
    bool merges;

    /* Maps a fresh arena. False with errno set when the system refuses. */
    bool (*open)(struct arena *arena);
    void (*close)(struct arena *arena);
    /* A block of at least `bytes`, a multiple of 8; NULL when no free block is large enough. */
    void *(*allocate)(struct arena *arena, size_t bytes);
    void (*release)(struct arena *arena, void *payload);
    struct arena_view (*view)(const struct arena *arena);
};

extern const struct arena_version arena_plain;
extern const struct arena_version arena_merging;
extern const struct arena_version arena_small_head;

#endif
