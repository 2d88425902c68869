// SPDX-License-Identifier: Apache-2.0
/* Best fit: the smallest block that is large enough. Keeps large blocks whole at the price of a
 * search through the list; an exact fit ends it early. */
#include "policy.h"

struct block *policy_find(struct blocks *list, uint32_t units)
{
    struct block *best = NULL;
    for (struct block *b = blocks_first_free(list); b; b = blocks_next_free(list, b)) {
        if (b->units >= units && (!best || b->units < best->units))
            best = b;
        if (best && best->units == units)
            break;
    }
    return best;
}
