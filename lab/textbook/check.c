// SPDX-License-Identifier: Apache-2.0
/* The walk over block.h's invariant. Its numbers are those of the list there. */
#include "block.h"
#include "fault.h"

#ifdef IMAS_FIT_CHECK

struct census {
    size_t blocks;
    size_t free_blocks;
    size_t free_units;
};

static void require(bool holds)
{
    if (!holds)
        fit_fault(FIT_INVARIANT);
}

static bool may_stay_apart(const struct block *b, const struct block *above)
{
    return !FIT_MERGE || !b->free || !above->free || b->units > FIT_UNITS_MAX - above->units;
}

static void check_block(const struct segment *s, const struct block *b)
{
    const struct block *above = block_after(b);
    require(b->units >= FIT_MIN_UNITS && above <= s->end);                 /* 1 */
    require(above->bunits == b->units && above->bfree == b->free);         /* 2 */
    require((uintptr_t)block_payload(b) % FIT_GRANULE_BYTES == 0);         /* 3 */
    require(may_stay_apart(b, above));                                     /* 5 */
}

static void check_segment(const struct segment *s, struct census *seen)
{
    require(s->first->bunits == 0 && !s->first->bfree);                    /* 2 */
    for (const struct block *b = s->first; b != s->end; b = block_after(b)) {
        check_block(s, b);
        seen->blocks++;
        seen->free_blocks += b->free;
        seen->free_units += b->free ? b->units : 0;
    }
    require(s->end->units == 0 && !s->end->free);                          /* 1 */
}

static struct census check_free_list(const struct blocks *list)
{
    struct census seen = {0, 0, 0};
    const struct block *next;
    for (const struct block *b = blocks_first_free(list); b; b = next) {
        next = blocks_next_free(list, b);                                  /* 6: links */
        require(b->free);                                                  /* 4 */
        require(!FIT_ADDRESS_ORDER || !next || b < next);                  /* 6: order */
        seen.free_blocks++;
        seen.free_units += b->units;
    }
    return seen;
}

/* 4: every listed block is free, the list has no repetition (each link is answered), and there
 * are as many listed blocks as free ones; so each free block is listed once. */
void blocks_check(const struct blocks *list)
{
    struct census walked = {0, 0, 0};
    for (const struct segment *s = list->segments; s; s = s->next)
        check_segment(s, &walked);
    struct census listed = check_free_list(list);
    require(walked.free_blocks == listed.free_blocks);
    require(walked.blocks == list->blocks);                                /* 7 */
    require(listed.free_blocks == list->free_blocks);
    require(listed.free_units == list->free_units);
}

#else
typedef int fit_check_is_off; /* ISO C forbids an empty translation unit */
#endif
