// SPDX-License-Identifier: Apache-2.0
/* environment.h - the launcher's variables, and the environment as it was before the launcher changed it. */
#ifndef IMAS_HOOK_ENVIRONMENT_H
#define IMAS_HOOK_ENVIRONMENT_H

#include <stdbool.h>

/* The value of `name`, or NULL. Of several entries the first counts, as in getenv. */
const char *environment_value(char **environment, const char *name);

/* Whether `name` is set to "1". */
bool environment_flag(char **environment, const char *name);

/* Whether two entries are of the same name. */
bool environment_same_name(const char *a, const char *b);

/* Whether the launcher set this entry of the environment: it was not there, or had another value. */
bool environment_is_set(char **environment, const char *entry);

/* Whether the launcher set anything that an allocator may read: more than the preload and its own names. */
bool environment_has_settings(char **environment);

/*
 * Puts the environment back as it was before the launcher changed it, in place and allocating nothing: an
 * entry IMAS_WAS_<NAME>=value stands for <NAME>=value, names listed in IMAS_UNSET go, and what the launcher
 * added goes. With IMAS_TREE=1 nothing changes, with IMAS_FOLLOW=1 only IMAS_PAGE and IMAS_PAD go. The order
 * of all other entries stays.
 */
void environment_restore(char **environment);

/* The same whatever IMAS_FOLLOW and IMAS_TREE say. */
void environment_restore_all(char **environment);

#endif
