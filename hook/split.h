// SPDX-License-Identifier: Apache-2.0
/*
 * split.h - how the resident bytes divide: bytes that the program asked for, rounding, free blocks and free
 * pages that the allocator keeps. Read now and then while the program runs, not at its end: the allocator may
 * not be called then.
 */
#ifndef IMAS_HOOK_SPLIT_H
#define IMAS_HOOK_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

/* Begins anew. */
void split_start(uint64_t begun_ns, uint64_t begun_ticks);

/* Whether a reading is due: one comparison. */
bool split_is_due(void);

/* Reads and notes, unless a snapshot is being taken at this moment. One thread at a time, after a finished
 * malloc of the program, never once the process has entered a sandbox (sandbox.h). */
void split_take(void);

#endif
