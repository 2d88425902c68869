// SPDX-License-Identifier: Apache-2.0
/*
 * fork_order.h - the fork handlers of the allocator that serves, and ours, precede all others, as glibc's own
 * malloc does it: its locks are taken last and released first. allocators/glue/fork_order.h is the code,
 * decision 0017 has the reasons.
 */
#ifndef IMAS_HOOK_FORK_ORDER_H
#define IMAS_HOOK_FORK_ORDER_H

/* Looks up what a registration needs while the process has one thread: a look-up waits for the loader's lock,
 * which a thread may hold that waits for the one that registers. For a constructor. */
void fork_order_resolve(void);

/* pthread_atfork for the hook itself: after the allocator's handlers, before those of all other libraries. */
void fork_order_add(void (*parent)(void), void (*child)(void));

#endif
