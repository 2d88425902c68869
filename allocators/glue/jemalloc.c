// SPDX-License-Identifier: Apache-2.0
// jemalloc, built with the prefix je_.
#define NAME_MALLOC je_malloc
#define NAME_FREE je_free
#define NAME_REALLOC je_realloc
#define NAME_ALIGNED je_memalign
#define NAME_USABLE je_malloc_usable_size
#define NAME_CALLOC je_calloc
#include "primitives.h"

#include "jemalloc_info.h"

extern int je_mallctl(const char *name, void *old, size_t *old_length, void *new_value, size_t new_length);

// Sizes up to 8 bytes are a class of their own, aligned to 8.
#define RAW_SMALL_UNALIGNED 1
// Sizes above PTRDIFF_MAX exceed its largest class; refusals set ENOMEM (imalloc's error path).
#define RAW_REFUSES_ABSURD 1
#define RAW_SETS_ENOMEM 1
#define RAW_NULL_FREE 1
#define RAW_TRIM 1

// The calling thread's cache first, or the pages under it stay in use. 4096 is jemalloc's
// MALLCTL_ARENAS_ALL, "every arena".
static inline int raw_trim(void)
{
    je_mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    return je_mallctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0;
}

static inline struct mallinfo2 raw_info(void)
{
    return jemalloc_info(je_mallctl);
}

#include "family_info.h"
