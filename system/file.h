// SPDX-License-Identifier: Apache-2.0
/*
 * file.h - one small file that is replaced as a whole: whoever looks, at whatever instant and after whatever power cut,
 * finds the old content or the new one. Every function that can fail has said why when it does.
 */
#ifndef IMAS_FILE_H
#define IMAS_FILE_H

#include <stdbool.h>

#include "entries.h"

#define FILE_NAME_MOST 256

/* The file at `path`, and what stands beside it: lock, fresh copy, backup. */
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
/* Keeps other copies of this tool away, until file_unlock; waits some seconds for one that is at work. */
bool file_lock(struct file *file);
/* Gives the lock back, and deletes its file; nothing where it is not held. */
void file_unlock(struct file *file);

/* Closes all of it: a deleted file that is still open keeps its file system from becoming read-only. */
void file_close(struct file *file);

/* Reads it; a file that is not there is empty text with `file->old` -1. False: it cannot be read, or is nothing that may
 * be replaced (link, device, immutable...). */
bool file_read(struct file *file, struct text *text);
/* Puts the text in its place, with owner, group, mode and extended attributes of the file that was read. */
bool file_replace(struct file *file, const struct text *text);
/* Takes the file away. */
bool file_delete(struct file *file);

/* Writes the text beside it, as `PATH.imas-backup`. That there is one says that there was a file before ours. */
bool file_back_up(struct file *file, const struct text *text);
/* Reads the backup. False: there is none. */
bool file_read_backup(struct file *file, struct text *backup);
/* Takes the backup away. */
void file_drop_backup(struct file *file);

#endif
