// SPDX-License-Identifier: Apache-2.0
/* reexec.h - executing the same file once more, with the environment that `imas run` would have made. */
#ifndef IMAS_HOOK_REEXEC_H
#define IMAS_HOOK_REEXEC_H

#include <stdbool.h>
#include <sys/stat.h>

#include "../abi/imas_index.h"
#include "start.h"

/* Finds how to make the kernel start this very program again: arguments as execve was given them, which for a
 * `#!` script are not those it passed on. False when that is not certain. */
bool reexec_arguments(const struct start *start, const struct stat *executable, char ***arguments);

/* Whether the candidate sets a variable that the user has set. */
bool reexec_overrides(const struct imas_catalogue_entry *candidate, char **environment);

/* Starts it. `before` is what gives back, or "", `ours` the guard or the hook; `page` may be NULL. Returns only when
 * the kernel refuses, with everything as it was. */
void reexec_start(const struct start *start, char **arguments, const struct imas_catalogue_entry *candidate,
                  const char *before, const char *ours, const char *page);

#endif
