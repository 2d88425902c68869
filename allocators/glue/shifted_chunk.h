// SPDX-License-Identifier: Apache-2.0
//
// For Doug Lea's malloc 2.8.4 to 2.8.6 and what derives from it. A large block that was asked for with an alignment lies at an
// offset in a mapping of its own. Its realloc computes the new mapping without that offset: a block that shrinks ends up
// longer than its mapping. Such blocks are moved instead.
//
//   SHIFTED_IS_MAPPED(head, previous)   whether the chunk has a mapping of its own; the two words before the block
//   SHIFTED_OFFSET(previous)            how far into it the chunk begins
//
// Both read only what the allocator keeps there for a block in use.
#ifndef IMAS_SHIFTED_CHUNK_H
#define IMAS_SHIFTED_CHUNK_H

#include <stddef.h>
#include <string.h>

static inline int shifted_chunk(const void *block)
{
    const size_t *words = block;
    return SHIFTED_IS_MAPPED(words[-1], words[-2]) && SHIFTED_OFFSET(words[-2]) != 0;
}

// realloc for such a block, out of the three calls that are right.
static __attribute__((noinline, cold)) void *shifted_move(void *block, size_t usable, size_t size,
    void *(*allocate)(size_t), void (*release)(void *))
{
    void *moved = allocate(size);
    if (moved == NULL)
        return NULL;
    memcpy(moved, block, usable < size ? usable : size);
    release(block);
    return moved;
}

#endif
