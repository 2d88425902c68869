// SPDX-License-Identifier: Apache-2.0
//
// nedmalloc and fork. Its locks are its own, so this is compiled as one unit with it
// (NEDMALLOC_SOURCE names its file). The forking thread takes every lock; in the child it, the only
// thread, lets them go. Caches of other threads stay behind unused in the child.
#include NEDMALLOC_SOURCE

#include <pthread.h>

// Order as nedmalloc nests them: global, pool, then its spaces. Spaces are only added, under the pool's lock.
static void unit_lock_all(void)
{
    ACQUIRE_MALLOC_GLOBAL_LOCK();
    ACQUIRE_LOCK(&syspool.mutex);
    for (int index = 0; syspool.m[index] != NULL; index++)
        ACQUIRE_LOCK(&syspool.m[index]->mutex);
}

static void unit_unlock_all(void)
{
    for (int index = 0; syspool.m[index] != NULL; index++)
        RELEASE_LOCK(&syspool.m[index]->mutex);
    RELEASE_LOCK(&syspool.mutex);
    RELEASE_MALLOC_GLOBAL_LOCK();
}

// The lock words carry the holder's pthread_self(), which the child keeps.
static __attribute__((constructor)) void unit_survive_fork(void)
{
    pthread_atfork(unit_lock_all, unit_unlock_all, unit_unlock_all);
}
