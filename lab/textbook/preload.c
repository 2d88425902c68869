// SPDX-License-Identifier: Apache-2.0
/* The preloadable allocator: one heap, one lock, and the malloc family of glue/family.h over them.
 *
 * IMAS_FIT_STATS=1 in the environment prints the statistics on stderr at exit. A child of fork
 * goes on from its parent's figures. Programs that leave by _exit or a signal print nothing.
 */
#include "heap.h"
#include "lock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct heap heap; /* all zero is a heap without segments: no call needs an initialisation */
static bool statistics_wanted;

#define RAW_REFUSES_ABSURD 1 /* block_units_for: FIT_UNITS_MAX is less */
#define RAW_TRIM 1

static inline void *raw_malloc(size_t size)
{
    fit_lock();
    void *block = heap_allocate(&heap, size);
    fit_unlock();
    return block;
}

static inline void raw_free(void *block)
{
    fit_lock();
    heap_release(&heap, block);
    fit_unlock();
}

static inline void *raw_realloc(void *block, size_t size)
{
    fit_lock();
    void *resized = heap_resize(&heap, block, size);
    fit_unlock();
    return resized;
}

static inline void *raw_aligned(size_t alignment, size_t size)
{
    fit_lock();
    void *block = heap_allocate_aligned(&heap, alignment, size);
    fit_unlock();
    return block;
}

static inline size_t raw_usable(void *block)
{
    fit_lock();
    size_t bytes = heap_usable(&heap, block);
    fit_unlock();
    return bytes;
}

static inline int raw_trim(void)
{
    fit_lock();
    bool given = heap_trim(&heap, 0);
    fit_unlock();
    return given;
}

#include "../../allocators/glue/family.h"

static void after_fork_in_child(void)
{
    fit_lock_alone();
    fit_unlock();
}

__attribute__((constructor)) static void start(void)
{
    const char *wanted = secure_getenv("IMAS_FIT_STATS");
    statistics_wanted = wanted && strcmp(wanted, "1") == 0;
    /* Refused only when libc has no memory for the record: fork then is as unsafe as without. */
    pthread_atfork(fit_lock, fit_unlock, after_fork_in_child);
}

__attribute__((destructor)) static void finish(void)
{
    if (!statistics_wanted)
        return;
    fit_lock();
    struct statistics statistics = heap_statistics(&heap);
    fit_unlock();
    statistics_print(&statistics, STDERR_FILENO);
}
