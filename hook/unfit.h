// SPDX-License-Identifier: Apache-2.0
/* unfit.h - programs that no preloaded allocator may serve, and how they run as if we had never been
 * there. */
#ifndef IMAS_HOOK_UNFIT_H
#define IMAS_HOOK_UNFIT_H

#include <stdbool.h>

/* Whether a sanitizer's runtime, which has an allocator of its own, is loaded. */
bool unfit_sanitizer(void);

/*
 * Whether the program reaches any function of the malloc family elsewhere than in `serving` (object.h) though
 * `serving` has it: then blocks of two allocators would meet. That is so when the executable defines malloc
 * itself.
 */
bool unfit_split_family(const void *serving);

/* Executes the program once more with the environment as it was before the launcher. Returns only if that
 * fails, or would start us again. */
void unfit_start_clean(char **arguments, char **environment);

#endif
