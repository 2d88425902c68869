// SPDX-License-Identifier: Apache-2.0
/*
 * hold.h - signals that end a process (a key, a terminal that closes, a shutdown, a pipe nobody reads) wait while a file is
 * changed: between the entry and the end of its check the tool must not die, or an entry that nobody has tried would stay.
 */
#ifndef IMAS_HOLD_H
#define IMAS_HOLD_H

#include <stdbool.h>

/* Holds them back. */
void hold_signals(void);
/* As it was before: one that came meanwhile takes effect now, except for that of a closed pipe. For a child as well. */
void hold_release(void);
/* Waits so long for one of them. True: one came (and stays held back). */
bool hold_wait(long nanoseconds);

#endif
