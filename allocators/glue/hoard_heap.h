// SPDX-License-Identifier: Apache-2.0
// Hoard's heap as C functions (hoard_heap.cpp), for the family glue.
#ifndef IMAS_HOARD_HEAP_H
#define IMAS_HOARD_HEAP_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// NULL when the system refuses memory.
void *hoard_malloc(size_t size);
// alignment: a power of two. Blocks are freed by hoard_free, as all are.
void *hoard_aligned(size_t alignment, size_t size);
// block != NULL. NULL leaves the block as it was.
void *hoard_realloc(void *block, size_t size);
// block may be NULL.
void hoard_free(void *block);
// block != NULL. Bytes from block to the end of its object.
size_t hoard_usable(void *block);

#ifdef __cplusplus
}
#endif

#endif
