// SPDX-License-Identifier: Apache-2.0
/*
 * quiet.h - whether this process has put itself under seccomp, after which we make no system call and read no clock:
 * strict mode forbids rdtsc too, and so does prctl PR_SET_TSC.
 *
 * To ask the kernel (prctl PR_GET_SECCOMP, /proc/self/status) is itself a system call that a filter may answer with
 * death. So the requests are watched as they pass: prctl and syscall are interposed, and the first one that installs
 * a filter sets a flag. A program that enters seccomp with its own inline assembler is not seen.
 */
#ifndef IMAS_HOOK_QUIET_H
#define IMAS_HOOK_QUIET_H

#include <stdbool.h>

#include "sys.h"

HIDDEN extern bool quiet_flag;
static inline bool quiet_now(void) {
    return get_relaxed(quiet_flag);
}

#endif
