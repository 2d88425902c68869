// SPDX-License-Identifier: Apache-2.0
/* Worst fit: the largest block. What is left over stays useful, and soon no large block does. */
#include "policy.h"

struct block *policy_find(struct blocks *list, uint32_t units)
{
    struct block *worst = NULL;
    for (struct block *b = blocks_first_free(list); b; b = blocks_next_free(list, b))
        if (!worst || b->units > worst->units)
            worst = b;
    return worst && worst->units >= units ? worst : NULL;
}
