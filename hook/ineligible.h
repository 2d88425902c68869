// SPDX-License-Identifier: Apache-2.0
/* ineligible.h - processes that are started unchanged although the index has a decision for their program. */
#ifndef IMAS_HOOK_INELIGIBLE_H
#define IMAS_HOOK_INELIGIBLE_H

#include <stdbool.h>

/* Whether the environment forbids a change: it has another preload or an auditor, was made by a launcher of
 * ours, or asks ld.so for output, which would then be printed twice. */
bool ineligible_by_environment(char **environment);

/* Whether the process's state forbids a second exec or a foreign allocator: under seccomp, traced, not
 * dumpable, with limits on memory or files, or process 1 unless `may_be_first`. Makes no call that ld.so has
 * not made before it knows that there is no seccomp filter. */
bool ineligible_by_state(bool may_be_first);

#endif
