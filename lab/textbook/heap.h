// SPDX-License-Identifier: Apache-2.0
/* A heap that grows by sbrk, block by block, and counts what it does.
 *
 * Others may move the break too: memory that does not follow the last segment becomes a segment of
 * its own, and two blocks are neighbours within a segment only. Nothing is returned to the system
 * but by heap_trim. Not locked (preload.c does), and errno is set by sbrk alone.
 */
#ifndef IMAS_FIT_HEAP_H
#define IMAS_FIT_HEAP_H

#include "block.h"
#include "statistics.h"

/* What only the heap can count; the rest of `struct statistics` is the list's. */
struct heap {
    struct blocks list;
    size_t mallocs;
    size_t frees;
    size_t reuses;
    size_t grows;
    size_t requested_bytes;
    size_t max_heap_bytes;
    size_t break_bytes; /* obtained by sbrk and held, headers and end blocks included */
};

/* A used block of at least `bytes`, aligned to FIT_GRANULE_BYTES. NULL: no memory, or `bytes` is
 * beyond what a header can say (FIT_UNITS_MAX granules). */
void *heap_allocate(struct heap *heap, size_t bytes);

/* As heap_allocate, with the payload at a multiple of `alignment`, a power of two. */
void *heap_allocate_aligned(struct heap *heap, size_t alignment, size_t bytes);

/* Takes back what one of the others returned. */
void heap_release(struct heap *heap, void *payload);

/* The block with at least `bytes` and the old content: in place if it can be, or moved. NULL: no
 * memory, and the old block is as it was. A move counts as a malloc and a free. */
void *heap_resize(struct heap *heap, void *payload, size_t bytes);

/* Bytes that the program may use at `payload`. */
size_t heap_usable(const struct heap *heap, const void *payload);

/* Gives whole pages of free memory at the break back, all but `keep_bytes`. Returns whether any. */
bool heap_trim(struct heap *heap, size_t keep_bytes);

struct statistics heap_statistics(const struct heap *heap);

#endif
