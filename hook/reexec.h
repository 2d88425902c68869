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

/* Whether the user has set a variable that the candidate sets, or may have given what it yields to. */
bool reexec_overrides(const struct imas_catalogue_entry *candidate, const struct start *start);

/* Libraries that are preloaded beside a candidate's: guard or hook, and "" where it has no settings of a runtime. */
struct beside {
    const char *ours, *settings;
};

/* Starts it; `page` may be NULL. Returns only when the kernel refuses, with everything as it was. */
void reexec_start(const struct start *start, char **arguments, const struct imas_catalogue_entry *candidate,
                  const struct beside *beside, const char *page);

#endif
