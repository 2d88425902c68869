// SPDX-License-Identifier: Apache-2.0
/* The one lock of a preloaded allocator: a futex that its owner may take again.
 *
 * Recursive, and owned by the address of the thread rather than its kernel id, because of fork:
 * between our prepare handler and our handler in the child, handlers of others may run that allocate
 * (those that glue/fork_order.h does not see), and in the child the same thread has another kernel id. A pthread mutex cannot do that. */
#ifndef IMAS_FIT_LOCK_H
#define IMAS_FIT_LOCK_H

/* Waits until no other thread has it. The thread that has it already only goes one deeper. Leaves errno alone. */
void fit_lock(void);
/* Undoes one fit_lock of this thread; the last one lets a waiting thread in. Leaves errno alone. */
void fit_unlock(void);

/* In the child of a fork whose parent thread held the lock: the holder's own, with nobody waiting. */
void fit_lock_alone(void);

#endif
