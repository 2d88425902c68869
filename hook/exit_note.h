// SPDX-License-Identifier: Apache-2.0
/* exit_note.h - notes in the page that the process ends by itself: exit, return from main, quick_exit, _exit,
 * _Exit. */
#ifndef IMAS_HOOK_EXIT_NOTE_H
#define IMAS_HOOK_EXIT_NOTE_H

#include <stdbool.h>

/* Finds what _exit and _Exit are handed on to. */
void exit_note_prepare(void);

/* `before`, unless NULL, runs first and returns whether this process may write the note (false in a child
 * made by vfork, which shares our memory). */
void exit_note_install(bool (*before)(void));

/* An exec has failed: perhaps in a child of vfork, whose _exit is not to be noted. Only then is the kernel asked who ends: a
 * filter of system calls may forbid that, but hardly one that allows exec. */
void exit_note_exec_failed(void);

#endif
