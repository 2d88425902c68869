// SPDX-License-Identifier: Apache-2.0
/*
 * file.h - one small file that is replaced atomically: at any moment, and after a power cut, it has the old
 * content or the new one. Every function that fails has printed why.
 */
#ifndef IMAS_FILE_H
#define IMAS_FILE_H

#include <stdbool.h>

#include "entries.h"

#define FILE_NAME_MOST 256

/* The file at `path`, and the files beside it: lock, new copy, backup. */
struct file {
    const char *path;
    int folder; /* descriptor of the folder that holds it */
    int lock;   /* descriptor of the lock, -1: not held */
    int old;    /* descriptor of the file as it was read, for its owner, mode and attributes; -1: there is none */
    char name[FILE_NAME_MOST];
    char lock_name[FILE_NAME_MOST];
    char fresh_name[FILE_NAME_MOST];
    char backup_name[FILE_NAME_MOST];
};

/* Opens the folder and makes the names. */
bool file_open(struct file *file, const char *path);
/* Locks out other processes of this tool until file_unlock; waits some seconds for one that holds the
 * lock. */
bool file_lock(struct file *file);
/* Releases the lock and deletes its file; does nothing where it is not held. */
void file_unlock(struct file *file);

/* Closes all of it: a deleted file that is still open keeps its file system from becoming read-only. */
void file_close(struct file *file);

/* Reads it; a file that is not there is empty text with `file->old` -1. False: it cannot be read, or it must
 * not be replaced (link, device, immutable...). */
bool file_read(struct file *file, struct text *text);
/* Replaces it by the text, with owner, group, mode and extended attributes of the file that was read. */
bool file_replace(struct file *file, const struct text *text);
/* Deletes the file. */
bool file_delete(struct file *file);

/* Writes the text beside it, as `PATH.imas-backup`. The backup exists only if there was a file before
 * ours. */
bool file_back_up(struct file *file, const struct text *text);
/* Reads the backup. False: there is none. */
bool file_read_backup(struct file *file, struct text *backup);
/* Deletes the backup. */
void file_drop_backup(struct file *file);

#endif
