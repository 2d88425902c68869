// SPDX-License-Identifier: Apache-2.0
/*
 * hold.h - signals that end a process (a key, a terminal that closes, a shutdown, a closed pipe) wait while a
 * file is changed. The tool must not die between adding the entry and the end of its check: an unchecked
 * entry would stay.
 */
#ifndef IMAS_HOLD_H
#define IMAS_HOLD_H

#include <stdbool.h>

/* Blocks them. */
void hold_signals(void);
/* Unblocks them: a pending one takes effect now, except SIGPIPE. Also called in a child. */
void hold_release(void);
/* Waits so long for one of them. True: one is pending (and stays blocked). */
bool hold_wait(long nanoseconds);

#endif
