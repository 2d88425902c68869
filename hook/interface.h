// SPDX-License-Identifier: Apache-2.0
/* interface.h - whether the program calls functions of an allocator's own, beside malloc (abi/imas_interface.h). */
#ifndef IMAS_HOOK_INTERFACE_H
#define IMAS_HOOK_INTERFACE_H

#include <stdbool.h>

/*
 * Whether one is called and the program's own malloc (the one that it would reach without us) is that allocator's. Where another malloc
 * comes first, the allocator's blocks are a heap apart already. Only at start, in one thread. Nearly always the program's own malloc
 * is libc's; finding that out costs a look into the hash table of each object up to libc, and no system call.
 */
bool interface_is_called(void);

#endif
