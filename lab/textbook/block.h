// SPDX-License-Identifier: Apache-2.0
/* Blocks, the segments they tile, and the free list that threads them.
 *
 * Memory is a list of segments; a segment is tiled by blocks and closed by an end block of zero
 * units. Every block knows its own size and state and those of the block before it, so that both
 * neighbours are found without a search. The same source is the heap of the preloadable fit
 * allocators and the 64 KiB arena of the free-list study (sizes and layout of the latter after
 * Öberg, "Malloc", KTH 2021, section 3).
 *
 * Nothing here locks, grows memory or chooses a block: lock.h, heap.h and policy.h do.
 */
#ifndef IMAS_FIT_BLOCK_H
#define IMAS_FIT_BLOCK_H

#include "config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The header of a block. Sizes are in units of FIT_GRANULE_BYTES, header included.
 *
 * With a 24-byte header all five fields are header. With an 8-byte header `next` and `prev` are
 * the first 16 bytes of the payload and mean something while the block is free only.
 *
 * Invariant, for each segment s and each block b from s.first up to, not including, s.end
 * (after(b) = b + b.units, before(b) = b - b.bunits; blocks_check walks it):
 *   1  b.units >= FIT_MIN_UNITS, after(b) <= s.end, s.end.units == 0, !s.end.free
 *   2  after(b).bunits == b.units, after(b).bfree == b.free, s.first.bunits == 0, !s.first.bfree
 *   3  payload(b) is a multiple of FIT_GRANULE_BYTES
 *   4  b is on the free list exactly once if b.free, else not at all
 *   5  merging:        !(b.free && after(b).free), unless both together exceed FIT_UNITS_MAX
 *   6  on the list:    b.next.prev == b; in address order: b < b.next
 *   7  blocks.blocks == number of all b, blocks.free_blocks == length of the free list,
 *      blocks.free_units == sum of units over the free list
 */
struct block {
    uint32_t free : 1;
    uint32_t units : 31;
    uint32_t bfree : 1;
    uint32_t bunits : 31;
    struct block *next;
    struct block *prev;
};

_Static_assert(offsetof(struct block, next) == 8, "the short header is the part before the links");
_Static_assert(sizeof(struct block) == 24, "the long header is the whole struct");

#define FIT_UNITS_MAX ((uint32_t)INT32_MAX)
/* A free block must hold its links, a used one at least one granule-aligned byte of payload. */
#define FIT_MIN_PAYLOAD (FIT_HEADER_BYTES == 24 ? 8u : 16u)
#define FIT_MIN_UNITS \
    ((uint32_t)((FIT_HEADER_BYTES + FIT_MIN_PAYLOAD + FIT_GRANULE_BYTES - 1) / FIT_GRANULE_BYTES))

/* A run of memory without gaps. The record is the owner's; only [first, end] is tiled. */
struct segment {
    struct segment *next;
    struct block *first;
    struct block *end;
};

/* The whole of a heap or arena: its free list and segments, and how many there are of what. */
struct blocks {
    struct block *first;      /* head of the free list */
    struct block *rover;      /* where next fit goes on; NULL: at the head */
    struct segment *segments; /* newest first */
    size_t blocks;
    size_t free_blocks;
    size_t free_units;
    size_t splits;
    size_t coalesces;
};

/* The block `bytes` behind `base`. */
static inline struct block *block_at(const void *base, ptrdiff_t bytes)
{
    return (struct block *)((uintptr_t)base + (uintptr_t)bytes);
}

/* Bytes of the block, header included. */
static inline size_t block_bytes(const struct block *b)
{
    return (size_t)b->units * FIT_GRANULE_BYTES;
}

/* Bytes that the program may use of it. */
static inline size_t block_payload_bytes(const struct block *b)
{
    return block_bytes(b) - FIT_HEADER_BYTES;
}

/* What the program gets of it. */
static inline void *block_payload(const struct block *b)
{
    return block_at(b, FIT_HEADER_BYTES);
}

/* The inverse, unchecked; blocks_used checks. */
static inline struct block *block_of(const void *payload)
{
    return block_at(payload, -FIT_HEADER_BYTES);
}

/* Its neighbour above; for the last block, the end block. */
static inline struct block *block_after(const struct block *b)
{
    return block_at(b, (ptrdiff_t)block_bytes(b));
}

/* Its neighbour below; the first block of a segment has none, and gets itself. */
static inline struct block *block_before(const struct block *b)
{
    return block_at(b, -(ptrdiff_t)((size_t)b->bunits * FIT_GRANULE_BYTES));
}

/* Units of the smallest block whose payload holds `bytes`; 0 if no block can. */
uint32_t block_units_for(size_t bytes);

/* Puts a segment under the list. [memory, memory + bytes) becomes its blocks: one free block and
 * the end block, or the end block alone when `bytes` is a header only. memory + FIT_HEADER_BYTES
 * is a multiple of the granule, and so is bytes - FIT_HEADER_BYTES. */
void blocks_adopt(struct blocks *list, struct segment *segment, void *memory, size_t bytes);

/* Turns the end block of `segment` into a used block of `units`; the end moves up behind it.
 * The memory behind the end is the caller's promise. */
struct block *blocks_extend(struct blocks *list, struct segment *segment, uint32_t units);

/* Takes the last `units` off `segment`; its last block is free and has them, and keeps none or
 * at least FIT_MIN_UNITS. */
void blocks_retract(struct blocks *list, struct segment *segment, uint32_t units);

/* Takes `units` out of the free block b; what is left over stays on the list if it can hold a
 * block. b is used afterwards. */
void blocks_take(struct blocks *list, struct block *b, uint32_t units);

/* Gives the used block b back; it joins its free neighbours. */
void blocks_give(struct blocks *list, struct block *b);

/* Gives back what the used block b has beyond `units`, if that can hold a block. */
void blocks_cut(struct blocks *list, struct block *b, uint32_t units);

/* Gives back the first `units` of the used block b; returns the used block that follows. Both
 * parts have at least FIT_MIN_UNITS. */
struct block *blocks_behead(struct blocks *list, struct block *b, uint32_t units);

/* Lets the used block b swallow its free neighbour above. Returns whether there was one and both
 * together have `units`. */
bool blocks_swallow(struct blocks *list, struct block *b, uint32_t units);

/* The block of a pointer that the program handed back. A pointer that is no used block of this
 * list ends the program (fault.h). */
struct block *blocks_used(const struct blocks *list, const void *payload);

/* First and following block of the free list, NULL at the end. A link that leads outside the
 * segments or is not answered by its partner ends the program. */
struct block *blocks_first_free(const struct blocks *list);
struct block *blocks_next_free(const struct blocks *list, const struct block *b);

/* Walks the whole invariant; a violation ends the program. Empty unless IMAS_FIT_CHECK. */
#ifdef IMAS_FIT_CHECK
void blocks_check(const struct blocks *list);
#else
static inline void blocks_check(const struct blocks *list) { (void)list; }
#endif

#endif
