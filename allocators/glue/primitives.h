// SPDX-License-Identifier: Apache-2.0
//
// The raw_ functions of family.h for an allocator whose own functions have the usual signatures. The
// glue file defines NAME_MALLOC, NAME_FREE, NAME_REALLOC, NAME_ALIGNED (alignment, size) and
// NAME_USABLE as the allocator's names, and NAME_CALLOC where there is one; then includes this.
#ifndef IMAS_PRIMITIVES_H
#define IMAS_PRIMITIVES_H

#include <stddef.h>

extern void *NAME_MALLOC(size_t size);
extern void NAME_FREE(void *block);
extern void *NAME_REALLOC(void *block, size_t size);
extern void *NAME_ALIGNED(size_t alignment, size_t size);
extern size_t NAME_USABLE(void *block);

static inline void *raw_malloc(size_t size)
{
    return NAME_MALLOC(size);
}

static inline void raw_free(void *block)
{
    NAME_FREE(block);
}

static inline void *raw_realloc(void *block, size_t size)
{
    return NAME_REALLOC(block, size);
}

static inline void *raw_aligned(size_t alignment, size_t size)
{
    return NAME_ALIGNED(alignment, size);
}

static inline size_t raw_usable(void *block)
{
    return NAME_USABLE(block);
}

#ifdef NAME_CALLOC
#define RAW_CALLOC 1

extern void *NAME_CALLOC(size_t count, size_t size);

static inline void *raw_calloc(size_t count, size_t size)
{
    return NAME_CALLOC(count, size);
}
#endif

#endif
