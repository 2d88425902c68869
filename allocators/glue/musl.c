// SPDX-License-Identifier: Apache-2.0
// musl's malloc, new (mallocng) or old: both have these names (musl_port.h).
#define NAME_MALLOC __libc_malloc_impl
#define NAME_FREE __libc_free
#define NAME_REALLOC __libc_realloc
#define NAME_ALIGNED musl_aligned_alloc
#define NAME_USABLE musl_usable_size
#define NAME_CALLOC musl_calloc

#include <pthread.h>
#include <stddef.h>
#include <string.h>

extern void *__libc_malloc_impl(size_t size);
extern int __malloc_allzerop(void *block);
extern void __malloc_atfork(int who);
extern void *musl_calloc(size_t count, size_t size);

// Fresh mappings are zero, and touching them would cost their memory.
void *musl_calloc(size_t count, size_t size)
{
    size_t total = count * size;
    void *block = __libc_malloc_impl(total);
    if (block == NULL || __malloc_allzerop(block))
        return block;
    return memset(block, 0, total);
}

static void before_fork(void)
{
    __malloc_atfork(-1);
}

static void parent_after_fork(void)
{
    __malloc_atfork(0);
}

static void child_after_fork(void)
{
    __malloc_atfork(1);
}

static __attribute__((constructor)) void survive_fork(void)
{
    pthread_atfork(before_fork, parent_after_fork, child_after_fork);
}

#include "primitives.h"

// mallocng's block of size 0 has no usable byte.
#define RAW_ZERO_EMPTY 1
#define RAW_NULL_FREE 1

#include "family.h"
