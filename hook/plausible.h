// SPDX-License-Identifier: Apache-2.0
/*
 * plausible.h - which measured times enter a mean.
 *
 * A call during which another process ran takes as long as that did: a time slice of several milliseconds, a
 * hundred thousand times what a malloc takes. One such call among some thousand sampled ones, with a weight
 * of a hundred, would dominate the mean. So a time enters the mean only up to about 1 ms, and 4 ns more for
 * each byte that the call may copy, clear or map (that allows a page fault of 16 us: a virtual machine may
 * have to get the page from its host). Longer times enter the histogram alone. Calls that wait long for a
 * lock, or that give many megabytes back when a small block is freed, are left out of the mean too.
 */
#ifndef IMAS_HOOK_PLAUSIBLE_H
#define IMAS_HOOK_PLAUSIBLE_H

#include <stdbool.h>
#include <stdint.h>

#include "sys.h"

#define PLAUSIBLE_MOST_KIB (UINT64_C(1) << 30) /* beyond, the product below would not fit */

/* `bytes`: that the call asked for or freed; 0 where that is not known. */
static inline bool plausible_duration(uint64_t ticks, uint64_t bytes) {
    uint64_t kib = bytes >> 10 < PLAUSIBLE_MOST_KIB ? bytes >> 10 : PLAUSIBLE_MOST_KIB;
    return ticks <= (ticks_per_second() >> 10) + (kib * ticks_per_second() >> 18);
}

#endif
