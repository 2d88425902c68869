// SPDX-License-Identifier: Apache-2.0
// Hoard, through hoard_heap.cpp.
#include "hoard_heap.h"

#define RAW_NULL_FREE 1

static inline void *raw_malloc(size_t size)
{
    return hoard_malloc(size);
}

static inline void raw_free(void *block)
{
    hoard_free(block);
}

static inline void *raw_realloc(void *block, size_t size)
{
    return hoard_realloc(block, size);
}

static inline void *raw_aligned(size_t alignment, size_t size)
{
    return hoard_aligned(alignment, size);
}

static inline size_t raw_usable(void *block)
{
    return hoard_usable(block);
}

#include "family.h"
