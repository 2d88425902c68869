// SPDX-License-Identifier: Apache-2.0
/* object.h - which loaded object a function of the malloc family belongs to. */
#ifndef IMAS_HOOK_OBJECT_H
#define IMAS_HOOK_OBJECT_H

#include <stdbool.h>
#include <stddef.h>

/* An object is identified by a pointer that no other has. The object that holds `address`, or NULL. */
const void *object_of(const void *address);

/* libc. */
const void *object_libc(void);

/* The object whose definition of `name` the program's calls reach; NULL when that is not known (a
 * position-dependent executable that takes the function's address exports a stub of the same name). */
const void *object_reached(const char *name);

/* The definition of `name` in the objects after ours, or NULL. */
void *object_next(const char *name);

/* The function `name` in the objects after ours, or NULL. It neither waits nor allocates, as dlsym may, but does not choose
 * among versions. */
void *object_next_listed(const char *name);

/* object_next, or object_next_listed where libc has no dlsym. */
void *object_next_found(const char *name);

/* Whether `object` (object_of) is one of our allocators: it exports imas_allocator_name. */
bool object_is_ours(const void *object);

/* Writes the name of the allocator in whose object `function` lies into `name`: its imas_allocator_name, else
 * the file's base name. */
void object_allocator_name(const void *function, char *name, size_t size);

/* Whether a library whose base name starts with one of `count` names is loaded. Only at start, in one
 * thread. */
bool object_loaded(const char *const *names, size_t count);

#endif
