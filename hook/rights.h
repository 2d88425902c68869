// SPDX-License-Identifier: Apache-2.0
/*
 * rights.h - what keeps the pacer from having a right that a thread of the program gave up (docs/decisions/0049).
 *
 * All calls are of the pacer's thread, and for it alone.
 */
#ifndef IMAS_HOOK_RIGHTS_H
#define IMAS_HOOK_RIGHTS_H

#include <stdbool.h>

struct rights {
    bool dropped; /* the thread had capabilities: libc's setuid may ask it to use them */
};

/* Gives up all capabilities, and all that an exec could gain. False: not all of it could be given up. */
bool rights_drop(struct rights *rights);

/* Whether the main thread is of the same users, groups, filter and security context as this one; false also if /proc does
 * not say. Opens files: only where no other thread shares the table of files. */
bool rights_are_shared(void);

/* False if libc waits for the thread to take another user or group on. */
bool rights_are_left_alone(const struct rights *rights);

/* Before the thread ends: answers libc. */
void rights_leave(const struct rights *rights);

#endif
