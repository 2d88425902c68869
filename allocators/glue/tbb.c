// SPDX-License-Identifier: Apache-2.0
// oneTBB's scalable allocator. A child of fork finds its locks as other threads left them: hence the gate.
// FORK_ORDER_WRAPS is defined where the library is the distribution's.
#define _GNU_SOURCE // dl_iterate_phdr, of family_fork.h
#include <stddef.h>

extern void *scalable_malloc(size_t size);
extern void scalable_free(void *block);
extern void *scalable_realloc(void *block, size_t size);
extern size_t scalable_msize(void *block);
extern void *scalable_aligned_malloc(size_t size, size_t alignment);
extern int scalable_allocation_command(int command, void *parameter);

// TBB's own has its arguments the other way round.
static inline void *aligned(size_t alignment, size_t size)
{
    return scalable_aligned_malloc(size, alignment);
}

#define NAME_MALLOC scalable_malloc
#define NAME_FREE scalable_free
#define NAME_CALLOC scalable_calloc
#define NAME_REALLOC scalable_realloc
#define NAME_ALIGNED aligned
#define NAME_USABLE scalable_msize
#include "gated_keys.h"
#include "gated.h"

#define RAW_SMALL_UNALIGNED 1
#define RAW_NULL_FREE 1
#define RAW_TRIM 1

// TBBMALLOC_CLEAN_ALL_BUFFERS of tbb/scalable_allocator.h.
enum { CLEAN_ALL_BUFFERS = 0 };

static inline int raw_trim(void)
{
    gate_enter();
    int status = scalable_allocation_command(CLEAN_ALL_BUFFERS, NULL);
    gate_leave();
    return status == 0;
}

#include "family.h"
#ifdef FORK_ORDER_WRAPS
#include "wrapped_keys.h"
#endif
