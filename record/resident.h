// SPDX-License-Identifier: Apache-2.0
/* resident.h - resident memory and CPU time of this process, read so seldom that the cost is negligible. */
#ifndef IMAS_RECORD_RESIDENT_H
#define IMAS_RECORD_RESIDENT_H

#include <stdbool.h>
#include <stdint.h>

struct resident_look {
    uint64_t pages; /* anonymous pages; the recorder's buffer is not among them */
    uint64_t cpu_ns;
};

/* Looks if the last look was long enough ago, or if `anyway` is set. Returns whether it looked. */
bool resident_look(struct resident_look *look, uint64_t now_ns, bool anyway);

/* In a child: makes its first look due at once. */
void resident_forget(void);

#endif
