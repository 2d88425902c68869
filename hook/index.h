// SPDX-License-Identifier: Apache-2.0
/*
 * index.h - the decision for one executable, read from the index (abi/imas_index.h).
 *
 * Read with pread, never mapped. What index_open and index_find return may be forged until index_trusted has
 * returned true; it is called last, because nearly all processes have no entry and are done after six system
 * calls.
 */
#ifndef IMAS_HOOK_INDEX_H
#define IMAS_HOOK_INDEX_H

#include <stdbool.h>
#include <sys/types.h>

#include "../abi/imas_index.h"

/* An open index; the code that opened it closes the descriptor. */
struct index {
    int fd;
    struct imas_index_header header;
};

/* The first IMAS_KEY_BYTES of an entry. */
struct index_key {
    uint64_t exe_dev, exe_ino;
    uint64_t detail[2];
    uint32_t detail_kind, uid;
};
_Static_assert(sizeof(struct index_key) == IMAS_KEY_BYTES, "the key is what the hash is over");

/* Opens it and reads its header; false, and nothing open, when there is none, or none that is sound and
 * enabled. */
bool index_open(struct index *index, const char *path);
/* Only after index_open returned true. */
void index_close(struct index *index);

/* The entry of exactly that key. */
bool index_find(const struct index *index, const struct index_key *key, struct imas_index_entry *found);

/* The same for the key's uid, else for everybody. */
bool index_find_for(const struct index *index, struct index_key key, struct imas_index_entry *found);

/* Whether nobody but `owner` or `daemon` can have written it, and it is of this size and this boot. */
bool index_trusted(const struct index *index, uid_t owner, uid_t daemon);

#endif
