// SPDX-License-Identifier: Apache-2.0
/*
 * fatal.h - notes in the page which signal is ending the process, and lets it end as it would have without
 * us.
 *
 * Our handler is set where a fatal signal has its default action, and only there: to the program it is the
 * default action. disposition.h makes sigaction and similar functions report it so. docs/decisions/0018 has
 * the reasons.
 */
#ifndef IMAS_HOOK_FATAL_H
#define IMAS_HOOK_FATAL_H

#include <signal.h>
#include <stdbool.h>

/* Sets our handler for each fatal signal that has its default action. Only for a process with a page: the
 * handler is of no use to any other. A stack overflow on a thread without an alternate stack cannot be
 * noted. */
void fatal_install(void);

/* Whether our handler may be set for `signal`. */
bool fatal_watches(int signal);

/* Whether `handler` is ours. */
bool fatal_is_handler(const void *handler);

/* Gives `signal`, a watched one, the default action that the program asks for in `action`: our handler once
 * more. In one step, as libc does it. `before`, unless NULL, is what the program had set until now. */
void fatal_set_default(int signal, const struct sigaction *action, struct sigaction *before);

/* Writes into `action` the default action that `signal` has to the program while our handler is set for
 * it. */
void fatal_show_default(int signal, struct sigaction *action);

/* Takes our handler away if it is set for `signal`, a watched one. */
void fatal_withdraw(int signal);

/* sigaction by the kernel alone, where libc cannot be reached yet. Without errno. */
int fatal_set_by_kernel(int signal, const struct sigaction *action, struct sigaction *before);

#endif
