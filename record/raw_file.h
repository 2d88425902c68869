// SPDX-License-Identifier: Apache-2.0
/* raw_file.h - the raw file of this process, and the control file of the recording (abi/imas_record.h). */
#ifndef IMAS_RECORD_RAW_FILE_H
#define IMAS_RECORD_RAW_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../abi/imas_record.h"

struct raw_file {
    struct imas_record_header *header; /* NULL: no raw file */
    uint64_t *buffer;
    uint64_t device, inode; /* of the file, to verify that a path still leads to it */
};

/* Maps the control file. Returns false if there is none, or if it belongs to another user. */
bool raw_file_control(const char *path);

/* Creates the raw file of this process. `parent` is the number of the parent's file, or NULL. */
bool raw_file_make(struct raw_file *file, const uint32_t *parent);

/* Appends a full buffer. Returns IMAS_RECORD_RUNS on success. */
enum imas_record_stop raw_file_append(struct raw_file *file, const void *bytes, size_t size);

/* Whether the time limit of the recording is reached. */
bool raw_file_is_over(const struct raw_file *file);

#endif
