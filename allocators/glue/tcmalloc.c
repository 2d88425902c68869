// SPDX-License-Identifier: Apache-2.0
// gperftools' TCMalloc (minimal), by its tc_ names.
#define NAME_MALLOC tc_malloc
#define NAME_FREE tc_free
#define NAME_REALLOC tc_realloc
#define NAME_ALIGNED tc_memalign
#define NAME_USABLE tc_malloc_size
#define NAME_CALLOC tc_calloc
#include "primitives.h"

extern void MallocExtension_ReleaseFreeMemory(void);

// Sizes up to 8 bytes are a class of their own, aligned to 8.
#define RAW_SMALL_UNALIGNED 1
// Sizes that do not fit the page heap are refused with ENOMEM (only its calloc's overflow is not,
// and that one never reaches it).
#define RAW_REFUSES_ABSURD 1
#define RAW_SETS_ENOMEM 1
#define RAW_NULL_FREE 1
#define RAW_TRIM 1

static inline int raw_trim(void)
{
    MallocExtension_ReleaseFreeMemory();
    return 1;
}

#include "family.h"
