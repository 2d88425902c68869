// SPDX-License-Identifier: Apache-2.0
/* An allocator that takes many times what glibc's takes: fifty milliseconds of CPU time for each block. */
#include "libc_malloc.h"
#include <stddef.h>
#include <time.h>

void *malloc(size_t size) {
    struct timespec begun, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - begun.tv_sec) * 1000000000L + now.tv_nsec - begun.tv_nsec < 50000000L);
    return __libc_malloc(size);
}
