// SPDX-License-Identifier: Apache-2.0
/* interface.h - whether the program calls functions of an allocator's own, beside malloc
 * (abi/imas_interface.h). */
#ifndef IMAS_HOOK_INTERFACE_H
#define IMAS_HOOK_INTERFACE_H

#include <stdbool.h>

/*
 * Whether one is called, and the program's own malloc (the one that it would reach without us) belongs to
 * that allocator. Where another malloc comes first, the allocator's blocks are a separate heap already. Only
 * at start, in one thread. Nearly always the program's own malloc is libc's; to find that out costs a search
 * in the hash table of each object up to libc, and no system call.
 */
bool interface_is_called(void);

/* Only in the recorder (IMAS_RECORDER), at start: whether the program's own malloc is not libc's. */
bool interface_other_malloc(void);

#endif
