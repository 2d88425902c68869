// SPDX-License-Identifier: Apache-2.0
/*
 * free_forms.h - the other forms of free, defined here for the hook and for the recorder: each calls the free of
 * the library that includes this file. Plain free does not need the sizes. The rest of the two family.c is not
 * shared: the hook's functions are its fast path, the recorder's call libc's own by name.
 */
#ifndef IMAS_HOOK_FREE_FORMS_H
#define IMAS_HOOK_FREE_FORMS_H

#include <stdlib.h>

#include "sys.h"

EXPORT void cfree(void *block) {
    free(block);
}

EXPORT void free_sized(void *block, size_t size) {
    (void)size;
    free(block);
}

EXPORT void free_aligned_sized(void *block, size_t alignment, size_t size) {
    (void)alignment;
    (void)size;
    free(block);
}

#endif
