// SPDX-License-Identifier: Apache-2.0
/* page_size.h - the size of the machine's pages: always the same on x86-64; 4, 16 or 64 KiB on aarch64, as its kernel
 * was built. */
#ifndef IMAS_HOOK_PAGE_SIZE_H
#define IMAS_HOOK_PAGE_SIZE_H

#include <stdint.h>
#include <sys/auxv.h>

#include "libc.h"

#if defined(__x86_64__)
#define PAGE_MOST 4096 /* the largest that there is: what is aligned to it begins a page on every machine */
static inline uintptr_t page_bytes(void) {
    return 4096;
}
#else
#define PAGE_MOST 65536
static inline uintptr_t page_bytes(void) {
    uintptr_t told = libc_getauxval != NULL ? libc_getauxval(AT_PAGESZ) : 0;
    return told != 0 ? told : 4096;
}
#endif

#endif
