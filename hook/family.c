// SPDX-License-Identifier: Apache-2.0
/*
 * family.c - the exported functions of the malloc family. Each is the fast path: pay, count, jump to the real
 * function. All else is in call.c.
 *
 * reallocarray and strdup are not here on purpose: libc's own reach realloc and malloc through the PLT.
 */
#include <malloc.h>
#include <string.h>

#include "boot.h"
#include "call.h"
#include "free_forms.h"
#include "full.h"
#include "libc.h"
#include "live.h"
#include "next.h"
#include "sys.h"
#include "thread.h"

/* Takes the price of a call from the purse; true when nothing is left. A new thread has an empty purse and no
 * toll, so that no size, up to SIZE_MAX, leaves anything. With a toll, a size near SIZE_MAX wraps to a small
 * price: such a call is refused, and counted, but not sampled. */
static inline bool overdraws(struct thread *thread, size_t bytes) {
    return overdraw64(&thread->gap, bytes + thread->toll);
}

static inline void count(struct thread *thread, enum imas_op op, size_t bytes) {
    thread->slot->calls[op]++;
    thread->slot->bytes_requested += bytes;
}

static NOINLINE void *malloc_slowly(size_t size) {
    struct call call = {.kind = CALL_MALLOC, .size = size, .bytes = size};
    return call_overdrawn(&call);
}

EXPORT void *malloc(size_t size) {
    struct thread *thread = &thread_self;
    if (unlikely(!libc_is_reached() || overdraws(thread, size)))
        return malloc_slowly(size);
    count(thread, IMAS_OP_MALLOC, size);
    return full_call(IMAS_OP_MALLOC, NULL, size, next.malloc(size));
}

static NOINLINE void *calloc_slowly(size_t number, size_t size, size_t bytes) {
    struct call call = {.kind = CALL_CALLOC, .count = number, .size = size, .bytes = bytes};
    return call_overdrawn(&call);
}

EXPORT void *calloc(size_t number, size_t size) {
    struct thread *thread = &thread_self;
    size_t bytes;
    if (unlikely(__builtin_mul_overflow(number, size, &bytes)))
        bytes = PTRDIFF_MAX; /* refused by every allocator */
    if (unlikely(!libc_is_reached() || overdraws(thread, bytes)))
        return calloc_slowly(number, size, bytes);
    count(thread, IMAS_OP_MALLOC, bytes);
    return full_call(IMAS_OP_MALLOC, NULL, bytes, next.calloc(number, size));
}

static NOINLINE void *realloc_slowly(void *block, size_t size) {
    struct call call = {.kind = CALL_REALLOC, .old = block, .size = size, .bytes = size};
    return call_overdrawn(&call);
}

static NOINLINE void *realloc_marked(void *block, size_t size) {
    struct call call = {.kind = CALL_REALLOC, .old = block, .size = size, .bytes = size};
    return call_make(&call);
}

EXPORT void *realloc(void *block, size_t size) {
    struct thread *thread = &thread_self;
    if (unlikely(live_maybe(block)))
        return realloc_marked(block, size);
    if (unlikely(!libc_is_reached() || overdraws(thread, size)))
        return realloc_slowly(block, size);
    count(thread, IMAS_OP_REALLOC, size);
    return full_call(IMAS_OP_REALLOC, block, size, next.realloc(block, size));
}

EXPORT void free(void *block) {
    struct thread *thread = &thread_self;
    if (unlikely(live_maybe(block))) {
        call_free_marked(block);
        return;
    }
    if (unlikely(!libc_is_reached() || overdraw32(&thread->free_gap))) {
        call_free_overdrawn(block);
        return;
    }
    thread->slot->calls[IMAS_OP_FREE]++;
    full_free(block);
}

EXPORT void *memalign(size_t alignment, size_t size) {
    struct call call = {.kind = CALL_MEMALIGN, .alignment = alignment, .size = size, .bytes = size};
    return call_make(&call);
}

EXPORT int posix_memalign(void **block, size_t alignment, size_t size) {
    struct call call = {.kind = CALL_POSIX_MEMALIGN, .alignment = alignment, .size = size, .bytes = size};
    void *made = call_make(&call);
    if (call.error == 0)
        *block = made;
    return call.error;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size) {
    struct call call = {.kind = CALL_ALIGNED_ALLOC, .alignment = alignment, .size = size, .bytes = size};
    return call_make(&call);
}

EXPORT void *valloc(size_t size) {
    struct call call = {.kind = CALL_VALLOC, .size = size, .bytes = size};
    return call_make(&call);
}

EXPORT void *pvalloc(size_t size) {
    struct call call = {.kind = CALL_PVALLOC, .size = size, .bytes = size};
    return call_make(&call);
}

EXPORT size_t malloc_usable_size(void *block) {
    /* the allocators accept NULL; before one is found minus_arena is 0, and NULL is looked up in the arena */
    if (unlikely((uintptr_t)block + next.minus_arena < BOOT_ARENA_BYTES))
        return next_ask_whose(block);
    return next.ask(block);
}

/* The functions below are about the whole heap. Where the candidate lacks one, libc's is called and reports
 * its own idle heap, as it would without us. */

EXPORT int mallopt(int parameter, int value) {
    return next_found() && next.mallopt != NULL ? next.mallopt(parameter, value) : 0;
}

EXPORT int malloc_trim(size_t pad) {
    return next_found() && next.trim != NULL ? next.trim(pad) : 0;
}

EXPORT struct mallinfo mallinfo(void) {
    if (next_found() && next.mallinfo != NULL)
        return next.mallinfo();
    return (struct mallinfo){.arena = 0};
}

EXPORT struct mallinfo2 mallinfo2(void) {
    if (next_found() && next.mallinfo2 != NULL)
        return next.mallinfo2();
    return (struct mallinfo2){.arena = 0};
}
