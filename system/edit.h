// SPDX-License-Identifier: Apache-2.0
/* edit.h - what is done to ld.so.preload, on disk. The file is open and locked. Each says on standard output what it did. */
#ifndef IMAS_EDIT_H
#define IMAS_EDIT_H

#include "file.h"
#include "say.h"

/* Puts the entry in unless it is there. `check` (NULL: none) is a command, ended by NULL: if it fails, everything is put
 * back as it was, and the answer is NO. Where signals are held (hold.h), one that comes counts as a check that failed. */
enum answer edit_add(struct file *file, const char *entry, char *const *check);
/* Takes every wanted entry out; a file that was not there before ours goes with its last entry. DONE as well if there was none.
 * `*removed`: how many. */
enum answer edit_remove(struct file *file, entries_wanted *wanted, const void *what, size_t *removed);

#endif
