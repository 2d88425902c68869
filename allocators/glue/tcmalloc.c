// SPDX-License-Identifier: Apache-2.0
// gperftools' TCMalloc (minimal), by its tc_ names.
#define NAME_MALLOC tc_malloc
#define NAME_FREE tc_free
#define NAME_REALLOC tc_realloc
#define NAME_ALIGNED tc_memalign
#define NAME_USABLE tc_malloc_size
#define NAME_CALLOC tc_calloc
#include "primitives.h"

#include <malloc.h>
#include <stdlib.h>

extern void MallocExtension_ReleaseFreeMemory(void);
extern int MallocExtension_GetNumericProperty(const char *property, size_t *value);

// Sizes up to 8 bytes are a class of their own, aligned to 8.
#define RAW_SMALL_UNALIGNED 1
// Sizes that do not fit the page heap are refused with ENOMEM (only its calloc's overflow is not,
// and that one never reaches it).
#define RAW_REFUSES_ABSURD 1
#define RAW_SETS_ENOMEM 1
#define RAW_NULL_FREE 1
#define RAW_TRIM 1
// The user may have it take a folder of huge pages.
#define RAW_MAPS_FILES (getenv("TCMALLOC_MEMFS_MALLOC_PATH") != NULL)

static inline int raw_trim(void)
{
    MallocExtension_ReleaseFreeMemory();
    return 1;
}

static inline size_t ask(const char *property)
{
    size_t value = 0;
    return MallocExtension_GetNumericProperty(property, &value) != 0 ? value : 0;
}

// What it holds of the system is in live blocks, in its three kinds of cache, in free pages, or given back.
static inline struct mallinfo2 raw_info(void)
{
    size_t in_use = ask("generic.current_allocated_bytes"), pages = ask("tcmalloc.pageheap_free_bytes");
    size_t cached = ask("tcmalloc.current_total_thread_cache_bytes") + ask("tcmalloc.central_cache_free_bytes") +
        ask("tcmalloc.transfer_cache_free_bytes");
    return (struct mallinfo2){ .arena = in_use + cached + pages,
        .uordblks = in_use,
        .fsmblks = cached,
        .fordblks = cached + pages,
        .keepcost = pages };
}

#include "family_info.h"
