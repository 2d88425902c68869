// SPDX-License-Identifier: Apache-2.0
/* fitting.h - whether a program that is about to start can load the candidate that this process has. */
#ifndef IMAS_HOOK_FITTING_H
#define IMAS_HOOK_FITTING_H

#include <stdbool.h>

/* Learns what the candidate needs. Once, at the start. */
void fitting_begin(void);

#define FITTING_PATH_BYTES 4096

/* path: the program, or NULL where it is not known; it has room for FITTING_PATH_BYTES, and is written over. Calls nothing of
 * libc, and takes little of the stack. */
bool fitting_can_load(char *path, char **environment);

/* The interpreter of a script, the first word after #! in its first line; `path` has room for the line. False if that is no
 * script's. */
bool fitting_interpreter(const char *line, char *path);

/* The file that execvp finds in these folders (PATH's value, or NULL), written to `path`; false if there is none. */
bool fitting_find(const char *folders, const char *file, char *path);

/* Whether this process's program refers to the function of that version. */
bool fitting_program_asks_for(const char *name, const char *version);

#endif
