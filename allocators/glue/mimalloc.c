// SPDX-License-Identifier: Apache-2.0
// mimalloc, version 2 or 3: both have the same C interface. Built as one unit with the sources.
#include <stddef.h>
#include <stdint.h>

extern void *mi_malloc(size_t size);
extern void *mi_calloc(size_t count, size_t size);
extern void *mi_realloc(void *block, size_t size);
extern void mi_free(void *block);
extern void *mi_malloc_aligned(size_t size, size_t alignment);
extern size_t mi_usable_size(const void *block);
extern void mi_collect(_Bool force);

// A page of 8-byte blocks is aligned to 8.
#define RAW_SMALL_UNALIGNED 1
#define RAW_NULL_FREE 1
#define RAW_CALLOC 1
#define RAW_TRIM 1

static inline void *raw_malloc(size_t size)
{
    return mi_malloc(size);
}

static inline void raw_free(void *block)
{
    mi_free(block);
}

static inline void *raw_realloc(void *block, size_t size)
{
    return mi_realloc(block, size);
}

static inline void *raw_aligned(size_t alignment, size_t size)
{
    return mi_malloc_aligned(size, alignment);
}

static inline size_t raw_usable(void *block)
{
    return mi_usable_size(block);
}

static inline void *raw_calloc(size_t count, size_t size)
{
    return mi_calloc(count, size);
}

// In a thread that has never allocated mi_collect does nothing, not even for what all threads share.
static inline int raw_trim(void)
{
    mi_free(mi_malloc(1));
    mi_collect(1);
    return 1;
}

#include "family.h"
