// SPDX-License-Identifier: Apache-2.0
/* action.h - what a signal does, as the kernel keeps it. libc's struct sigaction has another layout. */
#ifndef IMAS_HOOK_ACTION_H
#define IMAS_HOOK_ACTION_H

#include "sys.h"

#define ACTION_RESTORER 0x04000000UL /* SA_RESTORER: `restorer` is set */

/* x86-64 and aarch64 have the same layout. */
struct kernel_action {
    void *handler;
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

/* Either pointer may be NULL. A signal's action is replaced atomically. */
static inline void action_swap(int signal, const struct kernel_action *action, struct kernel_action *before) {
    sys4(SYS_rt_sigaction, signal, action, before, sizeof action->mask);
}

#endif
