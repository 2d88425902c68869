// SPDX-License-Identifier: Apache-2.0
/* fnv.h - FNV-1a (G. Fowler, L. C. Noll, P. Vo) as abi/imas_index.h uses it; crates/imas-linux/src/c_bytes.rs is
 * the same. */
#ifndef IMAS_HOOK_FNV_H
#define IMAS_HOOK_FNV_H

#include <stddef.h>
#include <stdint.h>

#include "../abi/imas_index.h"

static inline uint64_t fnv64(const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    uint64_t hash = IMAS_FNV64_START;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ at[i]) * IMAS_FNV64_PRIME;
    return hash;
}

/* The check sum of a record: its own field, the four bytes at `check`, counts as zero. */
static inline uint32_t fnv32_record(const void *record, size_t length, size_t check) {
    const unsigned char *at = record;
    uint32_t hash = IMAS_FNV32_START;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (i - check < sizeof(uint32_t) ? 0 : at[i])) * IMAS_FNV32_PRIME;
    return hash;
}

#endif
