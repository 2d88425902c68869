// SPDX-License-Identifier: Apache-2.0
#include "block.h"

#include "fault.h"

uint32_t block_units_for(size_t bytes)
{
    if (bytes > (size_t)FIT_UNITS_MAX * FIT_GRANULE_BYTES - FIT_HEADER_BYTES)
        return 0;
    size_t units = (bytes + FIT_HEADER_BYTES + FIT_GRANULE_BYTES - 1) / FIT_GRANULE_BYTES;
    return units < FIT_MIN_UNITS ? FIT_MIN_UNITS : (uint32_t)units;
}

static const struct segment *segment_of(const struct blocks *list, const struct block *b)
{
    const struct segment *s = list->segments;
    while (s && !(s->first <= b && b < s->end))
        s = s->next;
    return s;
}

static bool aligned(const struct block *b)
{
    return (uintptr_t)block_payload(b) % FIT_GRANULE_BYTES == 0;
}

/* A free-list link may point here: memory of ours, where a header could stand. */
static bool reachable(const struct blocks *list, const struct block *b)
{
    return aligned(b) && segment_of(list, b);
}

struct block *blocks_first_free(const struct blocks *list)
{
    struct block *b = list->first;
    if (b && (!reachable(list, b) || b->prev))
        fit_fault(FIT_OVERWRITTEN);
    return b;
}

struct block *blocks_next_free(const struct blocks *list, const struct block *b)
{
    struct block *next = b->next;
    if (next && (!reachable(list, next) || next->prev != b))
        fit_fault(FIT_OVERWRITTEN);
    return next;
}

/* The block before b, used or free; only for b that is not the first of its segment. */
static struct block *neighbour_below(const struct blocks *list, const struct block *b)
{
    struct block *below = block_before(b);
    if (!segment_of(list, below) || below->units != b->bunits || below->free != b->bfree)
        fit_fault(FIT_OVERWRITTEN);
    return below;
}

/* Size and state of b, as its neighbours remember them. */
static bool agrees(const struct segment *s, const struct block *b)
{
    const struct block *after = block_after(b);
    if (after->bunits != b->units || after->bfree != b->free)
        return false;
    if (b == s->first)
        return b->bunits == 0;
    const struct block *below = block_before(b);
    return below >= s->first && below < b && below->units == b->bunits && below->free == b->bfree;
}

/* A free block that is about to be used or joined: an overflow from below may have hit it. */
static void check_header(const struct blocks *list, const struct block *b)
{
    const struct segment *s = segment_of(list, b);
    if (!s || block_after(b) > s->end || !agrees(s, b))
        fit_fault(FIT_OVERWRITTEN);
}

static void set_free(struct block *b, bool free)
{
    b->free = free;
    block_after(b)->bfree = free;
}

static void set_units(struct block *b, uint32_t units)
{
    b->units = units & FIT_UNITS_MAX;
    block_after(b)->bunits = b->units;
}

static void set_end(struct segment *segment, struct block *end)
{
    segment->end = end;
    end->free = 0;
    end->units = 0;
}

static void list_check_links(const struct blocks *list, const struct block *b)
{
    const struct block *back = b->prev ? b->prev->next : list->first;
    const struct block *forth = b->next ? b->next->prev : b;
    if (back != b || forth != b)
        fit_fault(FIT_OVERWRITTEN);
}

static void list_detach(struct blocks *list, struct block *b)
{
    if ((b->next && !reachable(list, b->next)) || (b->prev && !reachable(list, b->prev)))
        fit_fault(FIT_OVERWRITTEN);
    list_check_links(list, b);
    *(b->prev ? &b->prev->next : &list->first) = b->next;
    if (b->next)
        b->next->prev = b->prev;
    if (list->rover == b)
        list->rover = b->next;
    list->free_blocks--;
    list->free_units -= b->units;
}

/* b goes behind `place`, or to the head of the list when that is NULL. */
static void list_insert(struct blocks *list, struct block *b, struct block *place)
{
    struct block *next = place ? blocks_next_free(list, place) : blocks_first_free(list);
    b->prev = place;
    b->next = next;
    *(place ? &place->next : &list->first) = b;
    if (next)
        next->prev = b;
    list->free_blocks++;
    list->free_units += b->units;
}

/* The free block before b in address order, NULL if b comes first.
 *
 * Two walkers start together, one down the neighbours of b, one up the free list: with n blocks,
 * f of them free, the first needs about n/f steps and the second f/2, so the quicker of the two
 * never takes more than about sqrt(n). */
static struct block *place_by_address(const struct blocks *list, const struct block *b)
{
    const struct block *down = b;
    struct block *place = NULL;
    for (struct block *up = blocks_first_free(list); up && up < b;) {
        if (down->bfree)
            return neighbour_below(list, down);
        if (down->bunits)
            down = neighbour_below(list, down);
        place = up;
        up = blocks_next_free(list, up);
    }
    return place;
}

static struct block *place_for(const struct blocks *list, const struct block *b)
{
    return FIT_ADDRESS_ORDER ? place_by_address(list, b) : NULL;
}

/* Cuts b in two; the upper part, in b's state but on no list, is returned. */
static struct block *split(struct blocks *list, struct block *b, uint32_t units)
{
    struct block *rest = block_at(b, (ptrdiff_t)units * FIT_GRANULE_BYTES);
    uint32_t rest_units = b->units - units;
    rest->free = b->free;
    rest->bfree = b->free;
    set_units(rest, rest_units);
    set_units(b, units);
    list->blocks++;
    list->splits++;
    return rest;
}

/* b grows over the block above it, which is on no list any more. */
static void join(struct blocks *list, struct block *b, const struct block *above)
{
    bool free = b->free;
    set_units(b, b->units + above->units);
    set_free(b, free);
    list->blocks--;
    list->coalesces++;
}

static bool merges(const struct block *b, const struct block *above)
{
    return above->free && b->units <= FIT_UNITS_MAX - above->units;
}

void blocks_adopt(struct blocks *list, struct segment *segment, void *memory, size_t bytes)
{
    struct block *b = memory;
    segment->first = b;
    segment->next = list->segments;
    list->segments = segment;
    b->bfree = 0;
    b->bunits = 0;
    set_end(segment, block_at(b, (ptrdiff_t)bytes - FIT_HEADER_BYTES));
    if (segment->end != b) {
        set_units(b, (uint32_t)((bytes - FIT_HEADER_BYTES) / FIT_GRANULE_BYTES));
        set_free(b, true);
        list->blocks++;
        list_insert(list, b, place_for(list, b));
    }
    blocks_check(list);
}

struct block *blocks_extend(struct blocks *list, struct segment *segment, uint32_t units)
{
    struct block *b = segment->end;
    set_units(b, units);
    set_free(b, false);
    set_end(segment, block_after(b));
    list->blocks++;
    blocks_check(list);
    return b;
}

void blocks_retract(struct blocks *list, struct segment *segment, uint32_t units)
{
    struct block *last = neighbour_below(list, segment->end);
    uint32_t left = last->units - units;
    if (left) {
        list->free_units -= units;
        last->units = left & FIT_UNITS_MAX;
        set_end(segment, block_after(last));
        segment->end->bfree = 1;
        segment->end->bunits = last->units;
    } else {
        list_detach(list, last);
        list->blocks--;
        set_end(segment, last);
    }
    blocks_check(list);
}

void blocks_take(struct blocks *list, struct block *b, uint32_t units)
{
    check_header(list, b);
    struct block *place = b->prev;
    bool roving = list->rover == b;
    list_detach(list, b);
    if (b->units - units >= FIT_MIN_UNITS) {
        struct block *rest = split(list, b, units);
        list_insert(list, rest, place);
        if (roving)
            list->rover = rest;
    }
    set_free(b, false);
    blocks_check(list);
}

static bool swallow_above(struct blocks *list, struct block *b)
{
    struct block *above = block_after(b);
    if (!merges(b, above))
        return false;
    check_header(list, above);
    list_detach(list, above);
    join(list, b, above);
    return true;
}

/* Whether b, freed and on no list, has disappeared into a free block below it. */
static bool join_below(struct blocks *list, struct block *b)
{
    if (!b->bfree)
        return false;
    struct block *below = neighbour_below(list, b);
    if (!merges(below, b))
        return false;
    list->free_units += b->units;
    join(list, below, b);
    return true;
}

/* Joins the neighbours where that is wanted. Returns whether b is on the list by that; if not,
 * b belongs behind *place, where the block above it was, when *placed. */
static bool join_neighbours(struct blocks *list, struct block *b, struct block **place, bool *placed)
{
    struct block *above = block_after(b);
    if (above->free) {
        *place = above->prev;
        *placed = swallow_above(list, b);
    }
    return join_below(list, b);
}

void blocks_give(struct blocks *list, struct block *b)
{
    struct block *place = NULL;
    bool placed = false;
    set_free(b, true);
    if (!FIT_MERGE || !join_neighbours(list, b, &place, &placed))
        list_insert(list, b, placed ? place : place_for(list, b));
    blocks_check(list);
}

void blocks_cut(struct blocks *list, struct block *b, uint32_t units)
{
    if (b->units - units >= FIT_MIN_UNITS)
        blocks_give(list, split(list, b, units));
    blocks_check(list);
}

struct block *blocks_behead(struct blocks *list, struct block *b, uint32_t units)
{
    struct block *rest = split(list, b, units);
    blocks_give(list, b);
    return rest;
}

bool blocks_swallow(struct blocks *list, struct block *b, uint32_t units)
{
    const struct block *above = block_after(b);
    return FIT_MERGE && above->free && (size_t)b->units + above->units >= units && swallow_above(list, b);
}

struct block *blocks_used(const struct blocks *list, const void *payload)
{
    struct block *b = block_of(payload);
    const struct segment *s = segment_of(list, b);
    if (!s || !aligned(b) || b->units == 0)
        fit_fault(FIT_FOREIGN);
    if (b->units < FIT_MIN_UNITS || block_after(b) > s->end)
        fit_fault(FIT_OVERWRITTEN);
    /* A merged block keeps its old header, marked free: the second free of it is found too. */
    if (b->free)
        fit_fault(FIT_DOUBLE_FREE);
    if (!agrees(s, b))
        fit_fault(FIT_OVERWRITTEN);
    return b;
}
