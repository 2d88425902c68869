// SPDX-License-Identifier: Apache-2.0
/*
 * believed.h - which times enter a mean.
 *
 * A call in which another process had the processor takes as long as that let it wait: a slice of the scheduler, several milliseconds,
 * a hundred thousand times what a malloc takes. One such among some thousand sampled calls, standing for a hundred, would be the
 * mean. A call is therefore believed up to about 1 ms, and 4 ns more for each byte that it may have to copy, clear or map (a page fault of 16 us: a virtual
 * machine may have to get the page from its host); longer ones stand in the histogram alone. Whoever has to wait long for a lock, or gives
 * many megabytes back in freeing a small block, is taken for interrupted too.
 */
#ifndef IMAS_HOOK_BELIEVED_H
#define IMAS_HOOK_BELIEVED_H

#include <stdbool.h>
#include <stdint.h>

#include "sys.h"

#define BELIEVED_MOST_KIB (UINT64_C(1) << 30) /* beyond, the product below would not fit */

/* Of a call that asked for so many bytes, or freed them; 0 where that is not known. */
static inline bool believed(uint64_t ticks, uint64_t bytes) {
    uint64_t kib = bytes >> 10 < BELIEVED_MOST_KIB ? bytes >> 10 : BELIEVED_MOST_KIB;
    return ticks <= (ticks_per_second() >> 10) + (kib * ticks_per_second() >> 18);
}

#endif
