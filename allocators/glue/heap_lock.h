// SPDX-License-Identifier: Apache-2.0
//
// One lock around a whole heap, for allocators that have none, whole again in the child of a fork.
#ifndef IMAS_HEAP_LOCK_H
#define IMAS_HEAP_LOCK_H

#include <pthread.h>

static pthread_mutex_t heap_mutex = PTHREAD_MUTEX_INITIALIZER;

static inline void heap_lock(void)
{
    pthread_mutex_lock(&heap_mutex);
}

static inline void heap_unlock(void)
{
    pthread_mutex_unlock(&heap_mutex);
}

// The forking thread holds the lock, so the child's copy of the heap is whole and the child may unlock.
static __attribute__((constructor)) void heap_lock_survives_fork(void)
{
    pthread_atfork(heap_lock, heap_unlock, heap_unlock);
}

#endif
