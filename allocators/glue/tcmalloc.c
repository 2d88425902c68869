// SPDX-License-Identifier: Apache-2.0
// gperftools' TCMalloc (minimal), reached by its tc_ names.
#include <stddef.h>
#include <stdint.h>

extern void *tc_malloc(size_t size);
extern void *tc_calloc(size_t count, size_t size);
extern void *tc_realloc(void *block, size_t size);
extern void tc_free(void *block);
extern void *tc_memalign(size_t alignment, size_t size);
extern size_t tc_malloc_size(void *block);
extern void MallocExtension_ReleaseFreeMemory(void);

// Sizes up to 8 bytes are a class of their own, aligned to 8.
#define RAW_SMALL_UNALIGNED 1
// Sizes that do not fit the page heap are refused with ENOMEM (only its calloc's overflow is not,
// and that one never reaches it).
#define RAW_REFUSES_ABSURD 1
#define RAW_SETS_ENOMEM 1
#define RAW_NULL_FREE 1
#define RAW_CALLOC 1
#define RAW_TRIM 1

static inline void *raw_malloc(size_t size)
{
    return tc_malloc(size);
}

static inline void raw_free(void *block)
{
    tc_free(block);
}

static inline void *raw_realloc(void *block, size_t size)
{
    return tc_realloc(block, size);
}

static inline void *raw_aligned(size_t alignment, size_t size)
{
    return tc_memalign(alignment, size);
}

static inline size_t raw_usable(void *block)
{
    return tc_malloc_size(block);
}

static inline void *raw_calloc(size_t count, size_t size)
{
    return tc_calloc(count, size);
}

static inline int raw_trim(void)
{
    MallocExtension_ReleaseFreeMemory();
    return 1;
}

#include "family.h"
