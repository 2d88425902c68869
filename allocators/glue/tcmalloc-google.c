// SPDX-License-Identifier: Apache-2.0
// Google's TCMalloc, by its internal names. A child of fork finds its locks as other threads left
// them: hence the gate.
#include <stddef.h>

extern void *TCMallocInternalMalloc(size_t size);
extern void TCMallocInternalFree(void *block);
extern void *TCMallocInternalRealloc(void *block, size_t size);
extern size_t TCMallocInternalMallocSize(void *block);
extern void *TCMallocInternalMemalign(size_t alignment, size_t size);

#define NAME_MALLOC TCMallocInternalMalloc
#define NAME_FREE TCMallocInternalFree
#define NAME_CALLOC TCMallocInternalCalloc
#define NAME_REALLOC TCMallocInternalRealloc
#define NAME_ALIGNED TCMallocInternalMemalign
#define NAME_USABLE TCMallocInternalMallocSize
#include "gated.h"

extern int TCMallocInternalMallocTrim(size_t keep);

#define RAW_SMALL_UNALIGNED 1
#define RAW_NULL_FREE 1
#define RAW_TRIM 1
// Its locks wait with futex(2), and its per-CPU caches make system calls, whose failures set errno.
#define RAW_FREE_SETS_ERRNO 1

static inline int raw_trim(void)
{
    gate_enter();
    int given = TCMallocInternalMallocTrim(0);
    gate_leave();
    return given;
}

#include "family.h"
