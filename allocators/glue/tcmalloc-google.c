// SPDX-License-Identifier: Apache-2.0
//
// Google's TCMalloc, by its internal names. A child of fork finds its locks as other threads left them:
// hence the gate. It ends the process when asked for an alignment above its huge page: those
// blocks are mapped apart.
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "apart.h"

extern void *TCMallocInternalMalloc(size_t size);
extern void TCMallocInternalFree(void *block);
extern void *TCMallocInternalRealloc(void *block, size_t size);
extern size_t TCMallocInternalMallocSize(void *block);
extern void *TCMallocInternalMemalign(size_t alignment, size_t size);
extern size_t MallocExtension_Internal_ReleaseMemoryToSystem(size_t bytes);

// libm's log2 got a new version in 2.29, without the errors of System V (matherr): this is the first one.
#if defined(__x86_64__)
__asm__(".symver first_log2, log2@GLIBC_2.2.5");
#else
__asm__(".symver first_log2, log2@GLIBC_2.17");
#endif
extern double first_log2(double number);
__attribute__((visibility("hidden"))) double log2(double number);

double log2(double number)
{
    return first_log2(number);
}

#define HUGE_PAGE ((size_t)1 << 21)
// What a block mapped apart is aligned to at least. TCMalloc's own may lie there too, by chance.
#define APART_ALIGNMENT (2 * HUGE_PAGE)

// All blocks mapped apart, linked by their notes' last word: few, and looked for only at such addresses.
static void *apart_blocks;
// Its holder never forks: the list is touched behind the gate only.
static pthread_mutex_t apart_mutex = PTHREAD_MUTEX_INITIALIZER;

static void *next_apart(void *block)
{
    return (void *)apart_note_of(block)->unused;
}

static void *new_apart(size_t alignment, size_t size)
{
    void *block = apart_map(alignment, size);
    if (block == NULL)
        return NULL;
    pthread_mutex_lock(&apart_mutex);
    apart_note_of(block)->unused = (size_t)apart_blocks;
    apart_blocks = block;
    pthread_mutex_unlock(&apart_mutex);
    return block;
}

static int is_listed(const void *block)
{
    pthread_mutex_lock(&apart_mutex);
    void *each = apart_blocks;
    while (each != NULL && each != block)
        each = next_apart(each);
    pthread_mutex_unlock(&apart_mutex);
    return each != NULL;
}

static inline int may_be_apart(const void *block)
{
    return __builtin_expect(((uintptr_t)block & (APART_ALIGNMENT - 1)) == 0, 0) && block != NULL;
}

static inline int is_apart(const void *block)
{
    return may_be_apart(block) && is_listed(block);
}

static void end_apart(void *block)
{
    pthread_mutex_lock(&apart_mutex);
    if (apart_blocks == block) {
        apart_blocks = next_apart(block);
    } else {
        void *before = apart_blocks;
        while (next_apart(before) != block)
            before = next_apart(before);
        apart_note_of(before)->unused = (size_t)next_apart(block);
    }
    pthread_mutex_unlock(&apart_mutex);
    apart_unmap(block);
}

static inline void google_free(void *block)
{
    if (__builtin_expect(is_apart(block), 0))
        end_apart(block);
    else
        TCMallocInternalFree(block);
}

static inline void *google_aligned(size_t alignment, size_t size)
{
    return alignment <= HUGE_PAGE ? TCMallocInternalMemalign(alignment, size) : new_apart(alignment, size);
}

static inline void *google_realloc(void *block, size_t size)
{
    if (!is_apart(block))
        return TCMallocInternalRealloc(block, size);
    size_t usable = apart_usable(block);
    void *moved = TCMallocInternalMalloc(size);
    if (moved == NULL)
        return NULL;
    memcpy(moved, block, usable < size ? usable : size);
    end_apart(block);
    return moved;
}

#define NAME_MALLOC TCMallocInternalMalloc
#define NAME_FREE google_free
#define NAME_CALLOC TCMallocInternalCalloc
#define NAME_REALLOC google_realloc
#define NAME_ALIGNED google_aligned
#define NAME_USABLE google_usable
#include "gated_keys.h"
#include "fork_gate.h"

// gated.h does not pass the gate to ask for a size, but the list may be read only inside it.
static inline size_t google_usable(void *block)
{
    if (!may_be_apart(block))
        return TCMallocInternalMallocSize(block);
    gate_enter();
    size_t usable = is_listed(block) ? apart_usable(block) : TCMallocInternalMallocSize(block);
    gate_leave();
    return usable;
}

#include "gated.h"

#define RAW_SMALL_UNALIGNED 1
#define RAW_NULL_FREE 1
#define RAW_TRIM 1
// Its locks wait with futex(2), and its per-CPU caches make system calls, whose failures set errno.
#define RAW_FREE_SETS_ERRNO 1

// Its own malloc_trim asks for 0 bytes, which its releaser takes as "a little".
static inline int raw_trim(void)
{
    gate_enter();
    size_t released = MallocExtension_Internal_ReleaseMemoryToSystem((size_t)1 << 40);
    gate_leave();
    return released != 0;
}

#include "family.h"
