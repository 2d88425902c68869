// SPDX-License-Identifier: Apache-2.0
/*
 * wrapped.h - whether the program, or a library of it, defines a function that the candidate calls.
 *
 * The candidate's calls of it reach the program's definition. If that calls malloc, the candidate is entered a second
 * time, while it holds its locks or before it is ready, and the program hangs. crates/imas-linux/src/elf/interface.rs
 * asks the same of the files before a start; here it is asked of what is loaded (docs/decisions/0034).
 */
#ifndef IMAS_HOOK_WRAPPED_H
#define IMAS_HOOK_WRAPPED_H

#include <stdbool.h>

/* The first such function, or NULL. Works before any constructor and calls nothing of libc. */
const char *wrapped_function(void);

/* Whether a library has something of its own by the name of a function that a library of ours defines: a global array
 * "signal", a function "select" of lists. Ours comes first, and would be reached in its place; without us its own comes before
 * libc's. One that looks up libc's function, to hand on to it, is none of these. */
bool wrapped_hidden(void);

#endif
