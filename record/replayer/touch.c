// SPDX-License-Identifier: Apache-2.0
#include "replayer.h"

#define CACHE_LINE 64
#define PAGE 4096 /* the smallest of any machine */
/* From this size on, allocators map calloc's blocks and write nothing to them. */
#define LARGE_ZEROED (UINT64_C(128) << 10)

uint32_t touch_shares[REPLAYER_CLASSES] = {REPLAYER_WHOLE, REPLAYER_WHOLE, REPLAYER_WHOLE, 0};

int touch_class(uint64_t size, bool is_zeroed) {
    if (is_zeroed && size >= LARGE_ZEROED)
        return 3;
    if (size < PAGE)
        return TOUCH_NO_CLASS;
    return size < UINT64_C(64) << 10 ? 0 : size < UINT64_C(1) << 20 ? 1 : 2;
}

/* Writes a byte in each cache line of a small block, and in each page of a large one: the first touch
 * takes the memory. */
void touch_block(unsigned char *block, uint64_t from, uint64_t size, int class) {
    uint64_t end = class == TOUCH_NO_CLASS ? size : size / REPLAYER_WHOLE * touch_shares[class];
    uint64_t step = class == TOUCH_NO_CLASS ? CACHE_LINE : PAGE;
    for (uint64_t at = from; at < end; at += step)
        ((volatile unsigned char *)block)[at] = 1;
}
