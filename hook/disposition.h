// SPDX-License-Identifier: Apache-2.0
/*
 * disposition.h - libc's calls by which a program reads and sets what signals do: sigaction, signal and their kin.
 *
 * They do what libc's do, but for a watched signal (fatal.h): our handler is reported as SIG_DFL, and SIG_DFL sets our
 * handler again. So no program ever keeps ours and calls it in place of the default action.
 */
#ifndef IMAS_HOOK_DISPOSITION_H
#define IMAS_HOOK_DISPOSITION_H

/* Finds the next definitions of the calls. Without it the first call does; that may be in a child of a process with
 * threads, where ld.so's locks need not be free. */
void disposition_prepare(void);

#endif
