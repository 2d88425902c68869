// SPDX-License-Identifier: Apache-2.0
// hardened_malloc, with H_MALLOC_PREFIX. Its light configuration is a candidate of its own.
#define NAME_MALLOC h_malloc
#define NAME_FREE h_free
#define NAME_REALLOC h_realloc
#define NAME_ALIGNED h_memalign
#define NAME_USABLE h_malloc_usable_size
#define NAME_CALLOC h_calloc
#include "primitives.h"

extern int h_malloc_trim(size_t keep);

// Its blocks of size 0 have no byte that may be used.
#define RAW_ZERO_EMPTY 1
#define RAW_NULL_FREE 1
#define RAW_TRIM 1
// Its child handler draws new random numbers.
#define FORK_ORDER_CHILD_ALWAYS 1

static inline int raw_trim(void)
{
    return h_malloc_trim(0);
}

#include "family.h"
