// SPDX-License-Identifier: Apache-2.0
// The distribution's jemalloc, by the names that are its alone: malloc and free are ours here. Its mallctl names every
// function of jemalloc's "non-standard API" in jemalloc(3).
#define _GNU_SOURCE // dladdr, of family_fork.h
#include <stddef.h>
#include <strings.h>

#include "jemalloc_info.h"

extern void *mallocx(size_t size, int flags);
extern void *rallocx(void *block, size_t size, int flags);
extern void dallocx(void *block, int flags);
extern size_t sallocx(const void *block, int flags);
extern int mallctl(const char *name, void *old, size_t *old_length, void *new_value, size_t new_length);

// MALLOCX_ZERO, and MALLOCX_ALIGN: the alignment's logarithm in the low six bits.
enum { CLEARED = 0x40 };

static inline void *raw_malloc(size_t size)
{
    return mallocx(size, 0);
}

static inline void raw_free(void *block)
{
    dallocx(block, 0);
}

static inline void *raw_realloc(void *block, size_t size)
{
    return rallocx(block, size, 0);
}

static inline void *raw_aligned(size_t alignment, size_t size)
{
    return mallocx(size, ffsll((long long)alignment) - 1);
}

static inline size_t raw_usable(void *block)
{
    return sallocx(block, 0);
}

static inline void *raw_calloc(size_t count, size_t size)
{
    return mallocx(count * size, CLEARED);
}

// As in jemalloc.c.
static inline int raw_trim(void)
{
    mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    return mallctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0;
}

// Sizes up to 8 bytes are a class of their own, aligned to 8; that covers size 0 too, which mallocx does not define.
#define RAW_SMALL_UNALIGNED 1
#define RAW_CALLOC 1
#define RAW_TRIM 1
#define RAW_FREE_SETS_ERRNO 1
#define FORK_ORDER_WRAPS mallocx

static inline struct mallinfo2 raw_info(void)
{
    return jemalloc_info(mallctl);
}

#include "family_info.h"
