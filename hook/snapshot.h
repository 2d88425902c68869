// SPDX-License-Identifier: Apache-2.0
/*
 * snapshot.h - memory of the process, read every five seconds, whenever the live bytes have doubled beyond 1
 * MiB, and at the end. One thread at a time; no allocation; nothing once the process is under seccomp.
 */
#ifndef IMAS_HOOK_SNAPSHOT_H
#define IMAS_HOOK_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

/* Starts the clocks. */
void snapshot_start(void);

/* Takes a snapshot if one is due and, if `may_ask`, divides up the resident bytes (split.h); cheap
 * otherwise. */
void snapshot_if_due(bool may_ask);

/* Resident bytes at this moment (proc.h); false while a snapshot is taken. */
bool snapshot_resident(uint64_t *bytes);

/* The last one, with what getrusage knows. False in a process that is not the page's. */
bool snapshot_at_exit(void);

/* In a child: a thread of the parent may have been taking one, or a look of split.h. */
void snapshot_after_fork(void);

#endif
