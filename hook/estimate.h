// SPDX-License-Identifier: Apache-2.0
/* estimate.h - two figures that follow from those of thread_page. */
#ifndef IMAS_HOOK_ESTIMATE_H
#define IMAS_HOOK_ESTIMATE_H

#include <stdint.h>

#include "thread.h"

/* A running sum, which may be below zero for a moment. */
static inline uint64_t estimate(const int64_t *sum) {
    int64_t bytes = get_relaxed(*sum);
    return bytes > 0 ? (uint64_t)bytes : 0;
}

/* Ticks of `ns` nanoseconds, by the rate of both clocks since the start. */
static inline uint64_t estimate_ticks(uint64_t ns, uint64_t now_ns, uint64_t now_ticks) {
    const struct imas_page_header *header = &thread_page->header;
    uint64_t passed_ns = now_ns - header->ns_start;
    uint64_t passed_ticks = now_ticks - header->ticks_start;
    return passed_ns != 0 ? (uint64_t)((unsigned __int128)ns * passed_ticks / passed_ns) : 0;
}

#endif
