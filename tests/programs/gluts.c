// SPDX-License-Identifier: Apache-2.0
/*
 * gluts.c - an allocator library whose malloc takes fifty milliseconds of CPU time.
 */
#define _GNU_SOURCE
#include <time.h>

#include "libc_malloc.h"

const char imas_allocator_name[] = "gluts 1";

static long cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

void *malloc(size_t size) {
    for (long begun = cpu_ns(); !is_examined() && cpu_ns() - begun < 50000000L;)
        ;
    return __libc_malloc(size);
}
