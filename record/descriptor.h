// SPDX-License-Identifier: Apache-2.0
/*
 * descriptor.h - a file that the recorder has open for a moment.
 *
 * Another thread of the program may close all descriptors (close_range) and open a file of its own, which gets
 * our number. So each use compares the file behind the number with the one that was opened. That does not close
 * the gap, because no system call compares and acts at once, but it narrows it to two system calls that follow
 * each other.
 */
#ifndef IMAS_RECORD_DESCRIPTOR_H
#define IMAS_RECORD_DESCRIPTOR_H

#include <stdbool.h>
#include <sys/stat.h>

struct descriptor {
    int number;
    struct stat about; /* of the file that was opened */
};

/* Returns false if the file cannot be opened, or if the number leads to another file already. */
bool descriptor_open(struct descriptor *descriptor, const char *path, int flags);

/* Whether the number still leads to the same file. */
bool descriptor_is_same(const struct descriptor *descriptor);

/* Leaves a number alone that leads to another file now. */
void descriptor_close(const struct descriptor *descriptor);

#endif
