// SPDX-License-Identifier: Apache-2.0
/*
 * hangs.c - an allocator library whose malloc waits at the 1000th call for a lock that is never released.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "libc_malloc.h"

const char imas_allocator_name[] = "hangs 1";

static atomic_int calls, lock = 1;

void *malloc(size_t size) {
    if (atomic_fetch_add(&calls, 1) == 999 && !is_examined()) {
        while (atomic_load(&lock) == 1)
            syscall(SYS_futex, &lock, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
    }
    return __libc_malloc(size);
}
