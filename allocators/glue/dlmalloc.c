// SPDX-License-Identifier: Apache-2.0
// dlmalloc, with USE_DL_PREFIX.
#define NAME_MALLOC dlmalloc
#define NAME_FREE dlfree
#define NAME_REALLOC dlrealloc
#define NAME_ALIGNED dlmemalign
#define NAME_USABLE dlmalloc_usable_size
#define NAME_CALLOC dlcalloc
#include "primitives.h"

extern int dlmalloc_trim(size_t keep);

#define RAW_NULL_FREE 1
#define RAW_TRIM 1

static inline int raw_trim(void)
{
    return dlmalloc_trim(0);
}

#include "family.h"
