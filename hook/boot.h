// SPDX-License-Identifier: Apache-2.0
/*
 * boot.h - the bootstrap arena: memory for calls that the real allocator cannot serve yet: ld.so still relocates, or it
 * was not found before our constructor (next.h). A block of the arena stays valid for ever; freeing one does nothing.
 * Only raw system calls, no locks, any thread.
 */
#ifndef IMAS_HOOK_BOOT_H
#define IMAS_HOOK_BOOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `alignment` a power of two. NULL when the system gives no memory. Fresh memory is zero. */
void *boot_allocate(size_t alignment, size_t size);

/* Whether `block` is a block of the arena or its mappings. */
bool boot_owns(const void *block);

/* Whether all blocks so far lie in the first BOOT_ARENA_BYTES at boot_arena(). */
bool boot_is_arena(void);
uintptr_t boot_arena(void);
#define BOOT_ARENA_BYTES ((size_t)256 * 1024)

/* Usable bytes of a block that boot_owns. */
size_t boot_size(const void *block);

#endif
