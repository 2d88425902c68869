// SPDX-License-Identifier: Apache-2.0
/* table.h - the catalogue table (abi/imas_index.h): the candidate that an id of the index names, as root
 * approved it. */
#ifndef IMAS_HOOK_TABLE_H
#define IMAS_HOOK_TABLE_H

#include <stdbool.h>
#include <sys/types.h>

#include "../abi/imas_index.h"

/* An open table. */
struct table {
    int fd;
    struct imas_catalogue_header header;
};

/* Opens it and reads its header; false, and nothing open, unless it is `owner`'s, nobody else can write it,
 * and it is sound. */
bool table_open(struct table *table, const char *path, uid_t owner);
/* Only after table_open returned true. */
void table_close(struct table *table);

/* The candidate of that id; false unless it is sound and its library is the file that was approved. */
bool table_candidate(const struct table *table, uint32_t id, struct imas_catalogue_entry *candidate);

/* Whether our library at `path` is the one that was approved. */
bool table_approves(const char path[IMAS_CATALOGUE_LIBRARY_BYTES], const struct imas_file_identity *approved);

#endif
