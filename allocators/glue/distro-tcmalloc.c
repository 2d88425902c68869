// SPDX-License-Identifier: Apache-2.0
// The distribution's gperftools TCMalloc (minimal), by its tc_ names. Debian's refers weakly to pthread_atfork, which nothing
// defines since glibc 2.34: it has no fork handlers. Hence the gate.
#define _GNU_SOURCE // dl_iterate_phdr, of family_fork.h
#include <stddef.h>
#include <stdlib.h>

extern void *tc_malloc(size_t size);
extern void tc_free(void *block);
extern void *tc_realloc(void *block, size_t size);
extern void *tc_memalign(size_t alignment, size_t size);
extern size_t tc_malloc_size(void *block);
extern void MallocExtension_ReleaseFreeMemory(void);

#define NAME_MALLOC tc_malloc
#define NAME_FREE tc_free
#define NAME_CALLOC tc_calloc
#define NAME_REALLOC tc_realloc
#define NAME_ALIGNED tc_memalign
#define NAME_USABLE tc_malloc_size
#include "gated_keys.h"
#include "gated.h"

// As in tcmalloc.c.
#define RAW_SMALL_UNALIGNED 1
#define RAW_NULL_FREE 1
#define RAW_TRIM 1
#define RAW_FREE_SETS_ERRNO 1
#define RAW_MAPS_FILES (getenv("TCMALLOC_MEMFS_MALLOC_PATH") != NULL)

static inline int raw_trim(void)
{
    gate_enter();
    MallocExtension_ReleaseFreeMemory();
    gate_leave();
    return 1;
}

#define FORK_ORDER_WRAPS tc_malloc
#include "family.h"
#include "wrapped_keys.h"
