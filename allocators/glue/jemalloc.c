// SPDX-License-Identifier: Apache-2.0
// jemalloc, built with the prefix je_.
#include <stddef.h>
#include <stdint.h>

extern void *je_malloc(size_t size);
extern void *je_calloc(size_t count, size_t size);
extern void *je_realloc(void *block, size_t size);
extern void je_free(void *block);
extern void *je_memalign(size_t alignment, size_t size);
extern size_t je_malloc_usable_size(void *block);
extern int je_mallctl(const char *name, void *old, size_t *old_length, void *new_value, size_t new_length);

// Sizes up to 8 bytes are a class of their own, aligned to 8.
#define RAW_SMALL_UNALIGNED 1
// Sizes above PTRDIFF_MAX exceed its largest class; refusals set ENOMEM (imalloc's error path).
#define RAW_REFUSES_ABSURD 1
#define RAW_SETS_ENOMEM 1
#define RAW_NULL_FREE 1
#define RAW_CALLOC 1
#define RAW_TRIM 1

static inline void *raw_malloc(size_t size)
{
    return je_malloc(size);
}

static inline void raw_free(void *block)
{
    je_free(block);
}

static inline void *raw_realloc(void *block, size_t size)
{
    return je_realloc(block, size);
}

static inline void *raw_aligned(size_t alignment, size_t size)
{
    return je_memalign(alignment, size);
}

static inline size_t raw_usable(void *block)
{
    return je_malloc_usable_size(block);
}

static inline void *raw_calloc(size_t count, size_t size)
{
    return je_calloc(count, size);
}

// The calling thread's cache first, or the pages under it stay in use. 4096 is jemalloc's
// MALLCTL_ARENAS_ALL, "every arena".
static inline int raw_trim(void)
{
    je_mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    return je_mallctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0;
}

#include "family.h"
