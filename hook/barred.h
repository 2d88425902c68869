// SPDX-License-Identifier: Apache-2.0
/* barred.h - processes that are left as they are although a decision stands for them. */
#ifndef IMAS_HOOK_BARRED_H
#define IMAS_HOOK_BARRED_H

#include <stdbool.h>

/* Whether the environment asks for it: a preload or an auditor of somebody else's, another launcher of ours, or output
 * of ld.so that would come twice. */
bool barred_by_environment(char **environment);

/* Whether the process's state forbids a second exec or a foreign allocator: under seccomp, traced, not dumpable, with
 * limits on memory or files, or process 1 unless `may_be_first`. Makes no call that ld.so has not made before it knows
 * that there is no seccomp filter. */
bool barred_by_state(bool may_be_first);

#endif
