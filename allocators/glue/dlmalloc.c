// SPDX-License-Identifier: Apache-2.0
// dlmalloc, with USE_DL_PREFIX.
#include <stddef.h>

// Neither this block's nor the previous one's in-use bit.
#define SHIFTED_IS_MAPPED(head, previous) (((head) & 3) == 0)
#define SHIFTED_OFFSET(previous) (previous)
#include "shifted_chunk.h"

extern void *dlmalloc(size_t size);
extern void dlfree(void *block);
extern void *dlrealloc(void *block, size_t size);
extern size_t dlmalloc_usable_size(void *block);

void *resize(void *block, size_t size);
void *resize(void *block, size_t size)
{
    if (__builtin_expect(shifted_chunk(block), 0))
        return shifted_move(block, dlmalloc_usable_size(block), size, dlmalloc, dlfree);
    return dlrealloc(block, size);
}

#define NAME_MALLOC dlmalloc
#define NAME_FREE dlfree
#define NAME_REALLOC resize
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
