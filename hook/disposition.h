// SPDX-License-Identifier: Apache-2.0
/*
 * disposition.h - libc's functions that read and set what signals do: sigaction, signal and the like.
 *
 * They do what libc's do, but for a watched signal (fatal.h): our handler is reported as SIG_DFL, and SIG_DFL
 * sets our handler again. So no program ever saves our handler and calls it in place of the default action.
 */
#ifndef IMAS_HOOK_DISPOSITION_H
#define IMAS_HOOK_DISPOSITION_H

/* Looks up the next definitions of these functions, before anybody calls them. The first call could come in a child
 * of a process with threads, where a lock of ld.so may stay taken for ever. */
void disposition_prepare(void);

#endif
