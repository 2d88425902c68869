// SPDX-License-Identifier: Apache-2.0
/* leave.h - notes that the process ends of its own will: exit, return from main, quick_exit, _exit and _Exit. */
#ifndef IMAS_HOOK_LEAVE_H
#define IMAS_HOOK_LEAVE_H

#include <stdbool.h>

/* `last_look`, unless NULL, runs once before the note, and answers whether this process may write it (false in a
 * child made by vfork, which shares our memory). */
void leave_install(bool (*last_look)(void));

#endif
