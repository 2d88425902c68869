// SPDX-License-Identifier: Apache-2.0
/*
 * dies_early.c - an allocator library that dies in its constructor, before libimas.so or the guard can note
 * anything.
 */
#define _GNU_SOURCE
#include <signal.h>

#include "libc_malloc.h"

const char imas_allocator_name[] = "dies-early 1";

void *malloc(size_t size) {
    return __libc_malloc(size);
}

__attribute__((constructor)) static void die(void) {
    if (is_examined())
        return;
    signal(SIGSEGV, SIG_DFL);
    volatile int *nowhere = NULL;
    *nowhere = 1;
}
