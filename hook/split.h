// SPDX-License-Identifier: Apache-2.0
/*
 * split.h - where the resident bytes are, at moments of its own: in blocks that were asked for, in rounding, in free
 * blocks and free pages that the allocator keeps. The program's end is no such moment: nobody may be asked then.
 */
#ifndef IMAS_HOOK_SPLIT_H
#define IMAS_HOOK_SPLIT_H

#include <stdbool.h>

/* Begins anew, with thread_page's clocks. */
void split_start(void);

/* Whether it is time: one comparison. */
bool split_is_due(void);

/* Looks and notes, unless a snapshot is being taken just then. One thread at a time, behind a malloc of the program's own, not once the process is quiet. */
void split_take(void);

#endif
