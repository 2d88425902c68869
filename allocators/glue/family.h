// SPDX-License-Identifier: Apache-2.0
//
// The malloc family with glibc 2.36's semantics, made from the few primitives that an allocator has.
//
// A glue file (one per allocator) defines, as `static inline`, and then includes this header:
//
//   void  *raw_malloc(size_t size)               NULL on refusal
//   void   raw_free(void *block)
//   void  *raw_realloc(void *block, size_t size) block != NULL, size > 0; NULL leaves block untouched
//   void  *raw_aligned(size_t alignment, size_t size)   alignment a power of two >= 32
//   size_t raw_usable(void *block)               block != NULL
//
// and, where the allocator has them, with the macro of the same name in capitals defined as 1:
//
//   RAW_CALLOC  void *raw_calloc(size_t count, size_t size)   count * size does not overflow
//   RAW_TRIM    int   raw_trim(void)              gives free memory back; 1 if it may have given any
//
// Traits, each 0 unless the glue defines it as 1. They exist to keep checks off the fast path where
// the allocator makes them itself:
//
//   RAW_SMALL_UNALIGNED   blocks of 1..8 bytes may be only 8-byte aligned: they are asked for as 16
//   RAW_ZERO_EMPTY        raw_malloc(0) gives NULL or a block with no usable byte: asked for as 1
//   RAW_REFUSES_ABSURD    raw_malloc refuses sizes above PTRDIFF_MAX by itself
//   RAW_SETS_ENOMEM       raw_malloc sets errno to ENOMEM on every refusal
//   RAW_NULL_FREE         raw_free(NULL) does nothing
//   RAW_FREE_SETS_ERRNO   raw_free may change errno in spite of keep_errno.h
//   RAW_MAPS_FILES        its memory may be a file's, which has no zeroed pages to give (an expression)
//
// A large calloc never reaches raw_calloc: large_calloc.h.
//
// How its fork handlers are run: family_fork.h and fork_order.h.
//
// The contract is the GNU C Library manual's ("Replacing malloc", "Unconstrained Allocation") and what
// glibc 2.36 was seen to do; tests/conformance holds each fact. reallocarray, strdup and operator
// new are left out on purpose: glibc's and libstdc++'s own reach these functions through the PLT.
#ifndef IMAS_FAMILY_H
#define IMAS_FAMILY_H

#include <errno.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "family_fork.h"
#include "large_calloc.h"

#ifndef IMAS_ALLOCATOR_NAME
#error "the recipe passes the allocator's name and version as IMAS_ALLOCATOR_NAME"
#endif

#ifndef RAW_CALLOC
#define RAW_CALLOC 0
#endif
#ifndef RAW_TRIM
#define RAW_TRIM 0
#endif
#ifndef RAW_SMALL_UNALIGNED
#define RAW_SMALL_UNALIGNED 0
#endif
#ifndef RAW_ZERO_EMPTY
#define RAW_ZERO_EMPTY 0
#endif
#ifndef RAW_REFUSES_ABSURD
#define RAW_REFUSES_ABSURD 0
#endif
#ifndef RAW_SETS_ENOMEM
#define RAW_SETS_ENOMEM 0
#endif
#ifndef RAW_NULL_FREE
#define RAW_NULL_FREE 0
#endif
#ifndef RAW_FREE_SETS_ERRNO
#define RAW_FREE_SETS_ERRNO 0
#endif
#ifndef RAW_MAPS_FILES
#define RAW_MAPS_FILES 0
#endif
#ifndef FAMILY_KEEPS_EMPTY
#define FAMILY_KEEPS_EMPTY 0 // musl_types.h
#endif

#define FAMILY_EXPORT __attribute__((visibility("default")))
#define FAMILY_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define FAMILY_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

// What every block is aligned to, whatever its size (x86-64 and AArch64 psABI: max_align_t).
#define FAMILY_ALIGNMENT ((size_t)16)
#define FAMILY_PAGE ((size_t)getpagesize())

// Tests read this symbol to prove which allocator answers. "NAME VERSION".
FAMILY_EXPORT extern const char imas_allocator_name[];
const char imas_allocator_name[] = IMAS_ALLOCATOR_NAME;

// Out of line, so that the fast path carries only a jump to it.
static __attribute__((noinline, cold)) void *family_refuse(void)
{
    errno = ENOMEM;
    return NULL;
}

static inline size_t family_request(size_t size)
{
#if RAW_SMALL_UNALIGNED
    return size <= 8 ? 16 : size;
#elif RAW_ZERO_EMPTY
    return size + (size == 0);
#else
    return size;
#endif
}

static inline int family_is_absurd(size_t size)
{
    return size > (size_t)PTRDIFF_MAX;
}

static inline void *family_answer(void *block)
{
    if (!RAW_SETS_ENOMEM && FAMILY_UNLIKELY(block == NULL))
        return family_refuse();
    return block;
}

static inline void *family_malloc(size_t size)
{
    if (!RAW_REFUSES_ABSURD && FAMILY_UNLIKELY(family_is_absurd(size)))
        return family_refuse();
    return family_answer(raw_malloc(family_request(size)));
}

static inline void family_free(void *block)
{
    if (!RAW_NULL_FREE && FAMILY_UNLIKELY(block == NULL))
        return;
#if RAW_FREE_SETS_ERRNO
    int saved = errno;
    raw_free(block);
    errno = saved;
#else
    raw_free(block);
#endif
}

// alignment: a power of two.
static inline void *family_aligned(size_t alignment, size_t size)
{
    if (alignment <= FAMILY_ALIGNMENT)
        return family_malloc(size);
    if (FAMILY_UNLIKELY(alignment > (size_t)PTRDIFF_MAX || size > (size_t)PTRDIFF_MAX - alignment))
        return family_refuse();
    // A block smaller than its alignment is where allocators forget the alignment.
    size_t request = size < FAMILY_ALIGNMENT ? FAMILY_ALIGNMENT : size;
    void *block = raw_aligned(alignment, request);
    return FAMILY_LIKELY(block != NULL) ? block : family_refuse();
}

static inline int family_is_power_of_two(size_t number)
{
    return number != 0 && (number & (number - 1)) == 0;
}

// glibc rounds any alignment up to the next power of two.
static size_t family_power_above(size_t alignment)
{
    size_t power = FAMILY_ALIGNMENT;
    while (power < alignment)
        power <<= 1;
    return power;
}

FAMILY_EXPORT void *malloc(size_t size)
{
    return family_malloc(size);
}

FAMILY_EXPORT void free(void *block)
{
    family_free(block);
}

// Out of line: the one comparison that leads here is the one that refuses absurd sizes too.
static __attribute__((noinline, cold)) void *family_large_calloc(size_t total)
{
    void *block = family_malloc(total);
    if (block == NULL)
        return NULL;
    if (RAW_MAPS_FILES)
        memset(block, 0, total);
    else
        large_calloc_clear(block, total);
    return block;
}

FAMILY_EXPORT void *calloc(size_t count, size_t size)
{
    size_t total;
    if (FAMILY_UNLIKELY(__builtin_mul_overflow(count, size, &total)))
        return family_refuse();
    if (FAMILY_UNLIKELY(total >= LARGE_CALLOC))
        return family_large_calloc(total);
    total = family_request(total);
#if RAW_CALLOC
    return family_answer(raw_calloc(1, total));
#else
    void *block = family_answer(raw_malloc(total));
    return FAMILY_LIKELY(block != NULL) ? memset(block, 0, total) : NULL;
#endif
}

FAMILY_EXPORT void *realloc(void *block, size_t size)
{
    if (block == NULL)
        return family_malloc(size);
    if (!FAMILY_KEEPS_EMPTY && FAMILY_UNLIKELY(size == 0)) {
        family_free(block);
        return NULL;
    }
    if (FAMILY_UNLIKELY(family_is_absurd(size)))
        return family_refuse();
    return family_answer(raw_realloc(block, family_request(size + (FAMILY_KEEPS_EMPTY && size == 0))));
}

FAMILY_EXPORT void *memalign(size_t alignment, size_t size)
{
    // The largest power of two a size_t holds; above it there is nothing to round up to.
    if (FAMILY_UNLIKELY(alignment > SIZE_MAX / 2 + 1)) {
        errno = EINVAL;
        return NULL;
    }
    return family_aligned(family_power_above(alignment), size);
}

// glibc 2.36's is memalign: neither the alignment nor the size is refused for being odd.
FAMILY_EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

FAMILY_EXPORT int posix_memalign(void **result, size_t alignment, size_t size)
{
    if (alignment % sizeof(void *) != 0 || !family_is_power_of_two(alignment))
        return EINVAL;
    int saved = errno;
    void *block = family_aligned(alignment, size);
    errno = saved;
    if (block == NULL)
        return ENOMEM;
    *result = block;
    return 0;
}

FAMILY_EXPORT void *valloc(size_t size)
{
    return family_aligned(FAMILY_PAGE, size);
}

FAMILY_EXPORT void *pvalloc(size_t size)
{
    size_t page = FAMILY_PAGE;
    if (FAMILY_UNLIKELY(family_is_absurd(size)))
        return family_refuse();
    size_t pages = size == 0 ? page : (size + page - 1) & ~(page - 1);
    return family_aligned(page, pages);
}

FAMILY_EXPORT size_t malloc_usable_size(void *block)
{
    return FAMILY_LIKELY(block != NULL) ? raw_usable(block) : 0;
}

// Gone from glibc's headers, still called by programs linked before 2.26.
FAMILY_EXPORT void cfree(void *block);
FAMILY_EXPORT void cfree(void *block)
{
    family_free(block);
}

// C23; glibc 2.43's ignore the size and the alignment too, and a wrong size must not abort.
FAMILY_EXPORT void free_sized(void *block, size_t size);
FAMILY_EXPORT void free_sized(void *block, size_t size)
{
    (void)size;
    family_free(block);
}

FAMILY_EXPORT void free_aligned_sized(void *block, size_t alignment, size_t size);
FAMILY_EXPORT void free_aligned_sized(void *block, size_t alignment, size_t size)
{
    (void)alignment;
    (void)size;
    family_free(block);
}

// The tunables of mallopt are glibc's own; the answer is "accepted", as glibc's is for a known one,
// so that a program which checks it goes on.
FAMILY_EXPORT int mallopt(int parameter, int value)
{
    (void)parameter;
    (void)value;
    return 1;
}

// Without these, glibc's would describe its own empty heap. Zero means "not known" in the same structure.
FAMILY_EXPORT struct mallinfo mallinfo(void)
{
    return (struct mallinfo){ 0 };
}

FAMILY_EXPORT struct mallinfo2 mallinfo2(void)
{
    return (struct mallinfo2){ 0 };
}

FAMILY_EXPORT int malloc_trim(size_t keep)
{
    (void)keep;
#if RAW_TRIM
    int saved = errno;
    int given = raw_trim();
    errno = saved;
    return given;
#else
    return 0;
#endif
}

FAMILY_EXPORT void malloc_stats(void)
{
    static const char text[] = "malloc_stats: " IMAS_ALLOCATOR_NAME ": no figures through this interface\n";
    int saved = errno;
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    errno = saved;
}

FAMILY_EXPORT int malloc_info(int options, FILE *stream)
{
    if (options != 0)
        return EINVAL;
    fputs("<malloc version=\"1\">\n<!-- " IMAS_ALLOCATOR_NAME " -->\n</malloc>\n", stream);
    return 0;
}

#endif
