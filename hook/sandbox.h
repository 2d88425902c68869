// SPDX-License-Identifier: Apache-2.0
/*
 * sandbox.h - whether this process has put itself under seccomp, after which we make no system call and read
 * no clock: strict mode forbids rdtsc too, and so does prctl PR_SET_TSC.
 *
 * To ask the kernel (prctl PR_GET_SECCOMP, /proc/self/status) is itself a system call for which a filter may
 * kill the process. So prctl and syscall are interposed, and the first call that installs a filter sets a
 * flag. A program that does it by an instruction of its own is found by its code (raw_filter.h).
 */
#ifndef IMAS_HOOK_SANDBOX_H
#define IMAS_HOOK_SANDBOX_H

#include <stdbool.h>

#include "sys.h"

HIDDEN extern bool sandbox_flag;
static inline bool sandbox_entered(void) {
    return get_relaxed(sandbox_flag);
}

#endif
