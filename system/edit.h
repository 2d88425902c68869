// SPDX-License-Identifier: Apache-2.0
/* edit.h - changes of ld.so.preload, on disk. The file is open and locked. Each reports on standard output
 * what it did. */
#ifndef IMAS_EDIT_H
#define IMAS_EDIT_H

#include "file.h"
#include "say.h"

/* Adds the entry unless it is there. `check` (NULL: none) is a command, ended by NULL: if it fails, the
 * change is undone, and the answer is NO. Where signals are held (hold.h), one that arrives counts as a
 * failed check. */
enum answer edit_add(struct file *file, const char *entry, char *const *check);
/* Removes every wanted entry. A file that we made goes with its last entry. DONE as well if there was none.
 * `*removed`: how many. */
enum answer edit_remove(struct file *file, entries_wanted *wanted, const void *what, size_t *removed);

#endif
