// SPDX-License-Identifier: Apache-2.0
/* A library whose fork handlers allocate. Preloaded behind the allocator it is initialised before
 * it, so its prepare handler runs while the allocator's lock is held already, and its child handler
 * before that lock is given back. */
#include <pthread.h>
#include <stdlib.h>

static void *volatile kept;

static void allocate(void)
{
    free(kept);
    kept = malloc(100);
}

__attribute__((constructor)) static void start(void)
{
    pthread_atfork(allocate, allocate, allocate);
}
