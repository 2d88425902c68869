// SPDX-License-Identifier: Apache-2.0
// rpmalloc, whose threads must announce themselves (upstream's own preload build interposes
// pthread_create for that) and which guards single spans by values in them: hence the gate.
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "apart.h"

extern int rpmalloc_initialize(void);
extern void rpmalloc_thread_initialize(void);
extern void rpmalloc_thread_finalize(int release_caches);

// rpmalloc guards its list of heaps with a spin lock and maps memory while it holds it. A holder that loses its CPU
// then lets every other thread that begins or ends spin for its whole time slice: minutes for 2,000 threads. Under
// this mutex they sleep. Whoever holds it is inside the gate, so it is free at every fork.
static pthread_mutex_t heaps = PTHREAD_MUTEX_INITIALIZER;

static inline void give_heap(void)
{
    pthread_mutex_lock(&heaps);
    rpmalloc_thread_initialize();
    pthread_mutex_unlock(&heaps);
}

// The caches go to the shared heap: no thread of ours comes back for them.
static inline void take_heap_back(void)
{
    pthread_mutex_lock(&heaps);
    rpmalloc_thread_finalize(1);
    pthread_mutex_unlock(&heaps);
}

static inline void begin_thread(void)
{
    static int initialized;
    if (!initialized) {
        initialized = 1;
        rpmalloc_initialize();
    }
    give_heap();
}

#define GATE_BEGIN_THREAD() begin_thread()
#define GATE_END_THREAD() take_heap_back()

// A thread past its end gets a heap for each single call.
#define GATE_BEGIN_ENDED() give_heap()
#define GATE_LEAVE_ENDED() take_heap_back()

extern void *rpmalloc(size_t size);
extern void *rpmemalign(size_t alignment, size_t size);
extern void *rprealloc(void *block, size_t size);
extern void rpfree(void *block);
extern size_t rpmalloc_usable_size(void *block);

// Every span begins with a header on a 64 KiB boundary, so no block of rpmalloc's own begins there, and it
// refuses alignments of that size: those blocks are mapped apart. NULL counts too.
#define SPAN ((size_t)65536)

static inline int is_apart(const void *block)
{
    return ((uintptr_t)block & (SPAN - 1)) == 0;
}

static inline void span_free(void *block)
{
    if (__builtin_expect(!is_apart(block), 1))
        rpfree(block);
    else if (block != NULL)
        apart_unmap(block);
}

static inline void *span_aligned(size_t alignment, size_t size)
{
    return alignment < SPAN / 2 ? rpmemalign(alignment, size) : apart_map(alignment < SPAN ? SPAN : alignment, size);
}

static inline size_t span_usable(void *block)
{
    return is_apart(block) ? apart_usable(block) : rpmalloc_usable_size(block);
}

static inline void *span_realloc(void *block, size_t size)
{
    if (!is_apart(block))
        return rprealloc(block, size);
    size_t usable = apart_usable(block);
    void *moved = rpmalloc(size);
    if (moved == NULL)
        return NULL;
    memcpy(moved, block, usable < size ? usable : size);
    apart_unmap(block);
    return moved;
}

#define NAME_MALLOC rpmalloc
#define NAME_FREE span_free
#define NAME_CALLOC rpcalloc
#define NAME_REALLOC span_realloc
#define NAME_ALIGNED span_aligned
#define NAME_USABLE span_usable
#include "gated.h"

// ENABLE_VALIDATE_ARGS refuses absurd sizes, with EINVAL: the family refuses them first.
#define RAW_NULL_FREE 1

#include "family.h"
