// SPDX-License-Identifier: Apache-2.0
/* First fit: the first block of the list that is large enough. Short searches while holes near
 * the start are left, and a crumb-strewn start later on. */
#include "policy.h"

struct block *policy_find(struct blocks *list, uint32_t units)
{
    struct block *b = blocks_first_free(list);
    while (b && b->units < units)
        b = blocks_next_free(list, b);
    return b;
}
