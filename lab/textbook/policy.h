// SPDX-License-Identifier: Apache-2.0
/* Which free block serves a request: the only thing the four allocators differ in.
 * One policy is linked into each. Every policy searches the free list, which is in address order
 * in the heap; among equals the one found first is taken. */
#ifndef IMAS_FIT_POLICY_H
#define IMAS_FIT_POLICY_H

#include "block.h"

/* A free block of at least `units`, NULL if there is none. The caller takes it at once
 * (blocks_take); the list must not change in between. */
struct block *policy_find(struct blocks *list, uint32_t units);

#endif
