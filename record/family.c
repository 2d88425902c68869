// SPDX-License-Identifier: Apache-2.0
/*
 * family.c - the exported functions of the malloc family. Each calls libc's own and records the call. A free,
 * and the old block of a realloc, are recorded before the call; all else after it. So no address has two live
 * blocks in the order of the words.
 *
 * reallocarray is left out on purpose: libc's own calls realloc through the PLT.
 */
#include "family.h"

#include <errno.h>

#include "../hook/free_forms.h"
#include "../hook/page_size.h"
#include "journal.h"

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void *__libc_valloc(size_t size);
extern void *__libc_pvalloc(size_t size);
extern void __libc_free(void *block);

/* libc exports these under no other name. NULL before the constructor. */
int (*family_posix_memalign)(void **block, size_t alignment, size_t size);
void *(*family_aligned_alloc)(size_t alignment, size_t size);
size_t (*family_usable_size)(void *block);

EXPORT void *malloc(size_t size) {
    void *block = __libc_malloc(size);
    journal_note(IMAS_WORD_MALLOC, block, size);
    return block;
}

EXPORT void *calloc(size_t count, size_t size) {
    size_t bytes;
    if (unlikely(__builtin_mul_overflow(count, size, &bytes)))
        return __libc_calloc(count, size); /* it fails, so there is nothing to replay */
    void *block = __libc_calloc(count, size);
    journal_note(IMAS_WORD_CALLOC, block, bytes);
    return block;
}

EXPORT void *realloc(void *block, size_t size) {
    if (block != NULL)
        journal_note(IMAS_WORD_REALLOC_OF, block, 0);
    void *made = __libc_realloc(block, size);
    journal_note(IMAS_WORD_REALLOC, made, size);
    return made;
}

EXPORT void free(void *block) {
    if (block == NULL)
        return;
    journal_note(IMAS_WORD_FREE, block, 0);
    __libc_free(block);
}

#define ALIGNMENT_MOST ((UINT64_C(1) << IMAS_ALIGNED_SHIFT) - 1)

static void *note_aligned(enum imas_aligned function, size_t alignment, size_t size, void *block) {
    uint64_t shown = alignment < ALIGNMENT_MOST ? alignment : ALIGNMENT_MOST;
    if (block != NULL)
        journal_write(IMAS_WORD_MALLOC, block, size, (uint64_t)function << IMAS_ALIGNED_SHIFT | shown);
    return block;
}

EXPORT void *memalign(size_t alignment, size_t size) {
    return note_aligned(IMAS_ALIGNED_MEMALIGN, alignment, size, __libc_memalign(alignment, size));
}

EXPORT int posix_memalign(void **block, size_t alignment, size_t size) {
    void *made = NULL;
    int error = 0;
    if (family_posix_memalign != NULL)
        error = family_posix_memalign(&made, alignment, size);
    else if ((made = __libc_memalign(alignment, size)) == NULL)
        error = ENOMEM;
    if (error == 0)
        *block = note_aligned(IMAS_ALIGNED_POSIX_MEMALIGN, alignment, size, made);
    return error;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size) {
    void *made = family_aligned_alloc != NULL ? family_aligned_alloc(alignment, size) : __libc_memalign(alignment, size);
    return note_aligned(IMAS_ALIGNED_ALIGNED_ALLOC, alignment, size, made);
}

EXPORT void *valloc(size_t size) {
    return note_aligned(IMAS_ALIGNED_VALLOC, page_bytes(), size, __libc_valloc(size));
}

EXPORT void *pvalloc(size_t size) {
    return note_aligned(IMAS_ALIGNED_PVALLOC, page_bytes(), size, __libc_pvalloc(size));
}

/* Not recorded. It is exported so that the whole family comes from one library (hook/unfit.h). */
EXPORT size_t malloc_usable_size(void *block) {
    return family_usable_size != NULL ? family_usable_size(block) : 0;
}
