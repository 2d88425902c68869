// SPDX-License-Identifier: Apache-2.0
/* quiet.h - gives pages back where a process of one thread is about to wait, and defines the functions that wait. */
#ifndef IMAS_HOOK_QUIET_H
#define IMAS_HOOK_QUIET_H

/* Finds the definitions after ours: a child of vfork that searched would take ld.so's lock with its parent's memory. */
void quiet_prepare(void);

#endif
