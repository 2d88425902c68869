// SPDX-License-Identifier: Apache-2.0
/* preloaded.h - libraries that the user or the machine preloads and that define a function of malloc's family: a
 * memory checker, a counter, an allocator of the user's choice. A candidate would switch them off. */
#ifndef IMAS_HOOK_PRELOADED_H
#define IMAS_HOOK_PRELOADED_H

#include <link.h>
#include <stdbool.h>

/* Whether there is such a library in ld.so's list, which begins with `program`. What no object needs was preloaded.
 * `candidate` does not count; it may be NULL. */
bool preloaded_defines_malloc(const struct link_map *program, const struct link_map *candidate);

#endif
