// SPDX-License-Identifier: Apache-2.0
#include "heap.h"

#include "policy.h"

#include <string.h>
#include <unistd.h>

enum { GROW_ATTEMPTS = 4 };

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Where the newest segment's memory ends. */
static void *segment_limit(const struct segment *segment)
{
    return block_at(segment->end, FIT_HEADER_BYTES);
}

static void *more_core(struct heap *heap, size_t bytes)
{
    if (bytes > INTPTR_MAX)
        return NULL;
    void *memory = sbrk((intptr_t)bytes);
    if (memory == (void *)-1)
        return NULL;
    heap->break_bytes += bytes;
    return memory;
}

/* The first header stands so that its payload is aligned; the segment's record is before it. */
static struct block *first_block(void *memory)
{
    uintptr_t payload = (uintptr_t)memory + sizeof(struct segment) + FIT_HEADER_BYTES;
    return (struct block *)(round_up(payload, FIT_GRANULE_BYTES) - FIT_HEADER_BYTES);
}

/* Makes an empty segment at `memory`, of which at least open_bytes() are there. */
static void open_segment(struct heap *heap, void *memory)
{
    uintptr_t record = round_up((uintptr_t)memory, _Alignof(struct segment));
    blocks_adopt(&heap->list, (struct segment *)record, first_block(memory), FIT_HEADER_BYTES);
}

/* Bytes needed at the break `top` before the first block of a new segment. */
static size_t open_bytes(void *top)
{
    return (uintptr_t)first_block(top) - (uintptr_t)top + FIT_HEADER_BYTES;
}

/* One attempt: false with *full set when there is no memory, without when another moved the break
 * between our looking and our asking; the piece is then lost. */
static bool try_grow(struct heap *heap, size_t bytes, bool *full)
{
    void *top = sbrk(0);
    const struct segment *newest = heap->list.segments;
    bool follows = newest && top == segment_limit(newest);
    void *memory = more_core(heap, bytes + (follows ? 0 : open_bytes(top)));
    *full = !memory;
    if (memory != top)
        return false;
    if (!follows)
        open_segment(heap, memory);
    return true;
}

static struct block *grow(struct heap *heap, uint32_t units)
{
    bool full = false;
    for (int i = 0; i < GROW_ATTEMPTS && !full; i++)
        if (try_grow(heap, (size_t)units * FIT_GRANULE_BYTES, &full))
            return blocks_extend(&heap->list, heap->list.segments, units);
    return NULL;
}

static struct block *reuse(struct heap *heap, uint32_t units)
{
    struct block *b = policy_find(&heap->list, units);
    if (b) {
        heap->reuses++;
        blocks_take(&heap->list, b, units);
    }
    return b;
}

/* A used block of `units`; `bytes` is what the growth of the heap is counted as. */
static struct block *obtain(struct heap *heap, uint32_t units, size_t bytes)
{
    struct block *b = reuse(heap, units);
    if (b)
        return b;
    b = grow(heap, units);
    if (b) {
        heap->grows++;
        heap->max_heap_bytes += round_up(bytes, FIT_GRANULE_BYTES);
    }
    return b;
}

static void *handed_out(struct heap *heap, struct block *b, size_t requested_bytes)
{
    heap->mallocs++;
    heap->requested_bytes += requested_bytes;
    return block_payload(b);
}

void *heap_allocate(struct heap *heap, size_t bytes)
{
    uint32_t units = block_units_for(bytes);
    struct block *b = units ? obtain(heap, units, bytes) : NULL;
    return b ? handed_out(heap, b, bytes) : NULL;
}

/* The part of b whose payload is aligned; what is before it is free again. */
static struct block *aligned_part(struct heap *heap, struct block *b, size_t alignment)
{
    uintptr_t payload = (uintptr_t)block_payload(b);
    if (payload % alignment == 0)
        return b;
    size_t front = (size_t)FIT_MIN_UNITS * FIT_GRANULE_BYTES;
    size_t skip = round_up(payload + front, alignment) - payload;
    return blocks_behead(&heap->list, b, (uint32_t)(skip / FIT_GRANULE_BYTES));
}

void *heap_allocate_aligned(struct heap *heap, size_t alignment, size_t bytes)
{
    if (alignment <= FIT_GRANULE_BYTES)
        return heap_allocate(heap, bytes);
    uint32_t units = block_units_for(bytes);
    size_t slack = alignment / FIT_GRANULE_BYTES + FIT_MIN_UNITS;
    if (!units || slack > FIT_UNITS_MAX - units)
        return NULL;
    size_t slack_bytes = slack * FIT_GRANULE_BYTES;
    struct block *b = obtain(heap, units + (uint32_t)slack, bytes + slack_bytes);
    if (!b)
        return NULL;
    b = aligned_part(heap, b, alignment);
    blocks_cut(&heap->list, b, units);
    return handed_out(heap, b, bytes);
}

void heap_release(struct heap *heap, void *payload)
{
    blocks_give(&heap->list, blocks_used(&heap->list, payload));
    heap->frees++;
}

static bool resize_in_place(struct heap *heap, struct block *b, uint32_t units)
{
    if (b->units < units && !blocks_swallow(&heap->list, b, units))
        return false;
    blocks_cut(&heap->list, b, units);
    return true;
}

void *heap_resize(struct heap *heap, void *payload, size_t bytes)
{
    struct block *b = blocks_used(&heap->list, payload);
    uint32_t units = block_units_for(bytes);
    if (units && resize_in_place(heap, b, units))
        return payload;
    size_t content_bytes = block_payload_bytes(b);
    void *moved = heap_allocate(heap, bytes);
    if (moved) {
        memcpy(moved, payload, content_bytes);
        heap_release(heap, payload);
    }
    return moved;
}

size_t heap_usable(const struct heap *heap, const void *payload)
{
    return block_payload_bytes(blocks_used(&heap->list, payload));
}

static const struct block *top_free(const struct heap *heap)
{
    const struct segment *newest = heap->list.segments;
    bool free = newest && newest->end->bfree && sbrk(0) == segment_limit(newest);
    return free ? block_before(newest->end) : NULL;
}

/* Units at the end of the free block `top` that can go: whole pages, and no crumb is left. */
static uint32_t spare_units(const struct block *top, size_t keep_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t have = block_bytes(top);
    size_t keep = keep_bytes < have ? keep_bytes + (size_t)FIT_MIN_UNITS * FIT_GRANULE_BYTES : have;
    return keep < have ? (uint32_t)((have - keep) / page * page / FIT_GRANULE_BYTES) : 0;
}

bool heap_trim(struct heap *heap, size_t keep_bytes)
{
    const struct block *top = top_free(heap);
    uint32_t units = top ? spare_units(top, keep_bytes) : 0;
    if (!units)
        return false;
    size_t bytes = (size_t)units * FIT_GRANULE_BYTES;
    blocks_retract(&heap->list, heap->list.segments, units);
    if (sbrk(-(intptr_t)bytes) == (void *)-1)
        return false; /* the memory stays behind the segment, unused */
    heap->break_bytes -= bytes;
    return true;
}

struct statistics heap_statistics(const struct heap *heap)
{
    return (struct statistics){
        .mallocs = heap->mallocs,
        .frees = heap->frees,
        .reuses = heap->reuses,
        .grows = heap->grows,
        .splits = heap->list.splits,
        .coalesces = heap->list.coalesces,
        .blocks = heap->list.blocks,
        .requested_bytes = heap->requested_bytes,
        .max_heap_bytes = heap->max_heap_bytes,
    };
}
