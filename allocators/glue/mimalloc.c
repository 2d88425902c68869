// SPDX-License-Identifier: Apache-2.0
// mimalloc, version 2 or 3: both have the same C interface. Built as one unit with the sources.
#include <stddef.h>

extern void *mi_malloc_aligned(size_t size, size_t alignment);
extern size_t mi_usable_size(const void *block);
extern void mi_collect(_Bool force);

static inline void *aligned(size_t alignment, size_t size)
{
    return mi_malloc_aligned(size, alignment);
}

static inline size_t usable(void *block)
{
    return mi_usable_size(block);
}

#define NAME_MALLOC mi_malloc
#define NAME_FREE mi_free
#define NAME_REALLOC mi_realloc
#define NAME_ALIGNED aligned
#define NAME_USABLE usable
#define NAME_CALLOC mi_calloc
#include "primitives.h"

// A page of 8-byte blocks is aligned to 8.
#define RAW_SMALL_UNALIGNED 1
#define RAW_NULL_FREE 1
#define RAW_TRIM 1

// In a thread that has never allocated mi_collect does nothing, not even for what all threads share.
static inline int raw_trim(void)
{
    mi_free(mi_malloc(1));
    mi_collect(1);
    return 1;
}

#include "family.h"
