// SPDX-License-Identifier: Apache-2.0
/*
 * raw_filter.h - whether the program may set a filter of system calls by an instruction of its own.
 *
 * libc's prctl and syscall are wrapped (sandbox.h). A program that enters the kernel by itself (assembly, Go, Rust)
 * goes round them, and the next system call of ours may be the end of it: to ask the kernel for a filter is such a call. So
 * the program's code is looked through once, before anything is measured.
 */
#ifndef IMAS_HOOK_RAW_FILTER_H
#define IMAS_HOOK_RAW_FILTER_H

#include <stdbool.h>

/* Reads the executable's file, its libraries not. A filter that is not found so costs the first trial (imas_abi.h:
 * own_calls). */
bool raw_filter_is_likely(void);

#endif
