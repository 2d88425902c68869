// SPDX-License-Identifier: Apache-2.0
//
// Blocks mapped by themselves, for what an allocator cannot hold: alignments that its own layout rules
// out. A note before the block says what was mapped. How such blocks are distinguished from
// the allocator's own is up to the including file.
#ifndef IMAS_APART_H
#define IMAS_APART_H

#include "keep_errno.h"

#include <stddef.h>
#include <stdint.h>

struct apart_note {
    void *start;
    size_t mapped;
    size_t usable;
    size_t unused;
};

// munmap takes whole pages of whatever size they are.
#define APART_ROUND ((size_t)65536)

static inline struct apart_note *apart_note_of(void *block)
{
    return (struct apart_note *)block - 1;
}

static inline size_t apart_round_up(size_t number, size_t power)
{
    return (number + power - 1) & ~(power - 1);
}

// alignment: a power of two, at least 16. NULL when the system refuses.
static inline void *apart_map(size_t alignment, size_t size)
{
    size_t mapped = apart_round_up(size + alignment + sizeof(struct apart_note), APART_ROUND);
    if (mapped < size)
        return NULL;
    void *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    char *block = (char *)apart_round_up((uintptr_t)start + sizeof(struct apart_note), alignment);
    struct apart_note *note = apart_note_of(block);
    note->start = start;
    note->mapped = mapped;
    note->usable = (size_t)((char *)start + mapped - block);
    return block;
}

static inline void apart_unmap(void *block)
{
    struct apart_note note = *apart_note_of(block);
    munmap(note.start, note.mapped);
}

static inline size_t apart_usable(void *block)
{
    return apart_note_of(block)->usable;
}

#endif
