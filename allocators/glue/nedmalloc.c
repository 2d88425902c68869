// SPDX-License-Identifier: Apache-2.0
// nedmalloc. Upstream leaves a thread's cache behind when the thread ends.
#include <stddef.h>

// The in-use bit of the previous block is clear and its place holds a marked offset.
#define SHIFTED_IS_MAPPED(head, previous) (((head) & 1) == 0 && ((previous) & 1) != 0)
#define SHIFTED_OFFSET(previous) ((previous) & ~(size_t)1)
#include "shifted_chunk.h"
#include "thread_end.h"

extern void *nedmalloc(size_t size);
extern void *nedcalloc(size_t count, size_t size);
extern void *nedrealloc(void *block, size_t size);
extern void nedfree(void *block);
extern void *nedmemalign(size_t alignment, size_t size);
extern size_t nedblksize(void *block);
extern void neddisablethreadcache(void *pool);
extern int nedmalloc_trim(size_t keep);

#define RAW_CALLOC 1
#define RAW_TRIM 1

static __thread int thread_known;

static void end_thread(void)
{
    neddisablethreadcache(NULL);
}

static __attribute__((noinline, cold)) void begin_thread(void)
{
    static int prepared;
    thread_known = 1;
    // The first call of a process comes before a second thread can exist.
    if (!prepared) {
        prepared = 1;
        thread_end_prepare();
    }
    thread_end_arm(end_thread);
}

// A free makes a cache as well.
static inline void know_thread(void)
{
    if (__builtin_expect(!thread_known, 0))
        begin_thread();
}

static inline void *raw_malloc(size_t size)
{
    know_thread();
    return nedmalloc(size);
}

static inline void *raw_calloc(size_t count, size_t size)
{
    know_thread();
    return nedcalloc(count, size);
}

static inline void raw_free(void *block)
{
    know_thread();
    nedfree(block);
}

static inline void *raw_realloc(void *block, size_t size)
{
    know_thread();
    if (__builtin_expect(shifted_chunk(block), 0))
        return shifted_move(block, nedblksize(block), size, nedmalloc, nedfree);
    return nedrealloc(block, size);
}

static inline void *raw_aligned(size_t alignment, size_t size)
{
    know_thread();
    return nedmemalign(alignment, size);
}

static inline size_t raw_usable(void *block)
{
    return nedblksize(block);
}

static inline int raw_trim(void)
{
    return nedmalloc_trim(0);
}

#include "family.h"
