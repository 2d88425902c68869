// SPDX-License-Identifier: Apache-2.0
/* Next fit: first fit that goes on where the last search ended, and once around. The crumbs of
 * first fit are spread over the whole heap, and so is what is in use.
 *
 * The rover stands at the free block that follows the last one taken; blocks_take keeps it there.
 * A request that grew the heap leaves the rover where it was: nothing was found. */
#include "policy.h"

static struct block *find_between(const struct blocks *list, struct block *from,
                                  const struct block *until, uint32_t units)
{
    struct block *b = from;
    while (b && b != until && b->units < units)
        b = blocks_next_free(list, b);
    return b == until ? NULL : b;
}

struct block *policy_find(struct blocks *list, uint32_t units)
{
    struct block *rover = list->rover;
    struct block *b = find_between(list, rover, NULL, units);
    if (!b)
        b = find_between(list, blocks_first_free(list), rover, units);
    if (b)
        list->rover = b;
    return b;
}
