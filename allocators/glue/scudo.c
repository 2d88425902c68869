// SPDX-License-Identifier: Apache-2.0
// Scudo, through scudo_heap.cpp.
#define NAME_MALLOC scudo_malloc
#define NAME_FREE scudo_free
#define NAME_REALLOC scudo_realloc
#define NAME_ALIGNED scudo_memalign
#define NAME_USABLE scudo_malloc_usable_size
#define NAME_CALLOC scudo_calloc
#include "primitives.h"

extern void scudo_release_to_os(void);

// Its block of size 0 has no usable byte.
#define RAW_ZERO_EMPTY 1
#define RAW_NULL_FREE 1
#define RAW_TRIM 1
// Its mutex waits with futex(2), whose failures set errno.
#define RAW_FREE_SETS_ERRNO 1

static inline int raw_trim(void)
{
    scudo_release_to_os();
    return 1;
}

#include "family.h"
