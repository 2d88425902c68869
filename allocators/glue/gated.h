// SPDX-License-Identifier: Apache-2.0
// primitives.h with every call behind the gate of fork_gate.h. The glue declares the functions it names,
// except NAME_CALLOC; some are its own.
#ifndef IMAS_GATED_H
#define IMAS_GATED_H

#include <stddef.h>

#include "fork_gate.h"

extern void *NAME_CALLOC(size_t count, size_t size);

#define RAW_CALLOC 1

static inline void *raw_malloc(size_t size)
{
    gate_enter();
    void *block = NAME_MALLOC(size);
    gate_leave();
    return block;
}

// glibc frees NULL as a thread ends, after the last destructor. If that were the first call of a thread that never
// allocated, the thread would be put on the list and nothing would remove it. (Checked where gate_enter checks anyway.)
static inline void raw_free(void *block)
{
    if (__builtin_expect(gate_self.state != GATE_LISTED, 0) && block == NULL)
        return;
    gate_enter();
    NAME_FREE(block);
    gate_leave();
}

static inline void *raw_calloc(size_t count, size_t size)
{
    gate_enter();
    void *block = NAME_CALLOC(count, size);
    gate_leave();
    return block;
}

static inline void *raw_realloc(void *block, size_t size)
{
    gate_enter();
    void *moved = NAME_REALLOC(block, size);
    gate_leave();
    return moved;
}

static inline void *raw_aligned(size_t alignment, size_t size)
{
    gate_enter();
    void *block = NAME_ALIGNED(alignment, size);
    gate_leave();
    return block;
}

// Reads the block's own header only.
static inline size_t raw_usable(void *block)
{
    return NAME_USABLE(block);
}

#endif
