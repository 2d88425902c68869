// SPDX-License-Identifier: Apache-2.0
// gated_keys.h for a library of the distribution, which is compiled already: this defines the pthread_key_create that
// it calls. It comes after family.h, with FORK_ORDER_WRAPS defined, and is of use only where this library is loaded
// before libc (preloaded).
//
// Only the library's first key is taken: the one it makes as it prepares itself. It keeps that key for good. Others,
// which the program may have it make and delete again, stay libc's, as do the keys of other libraries.
#ifndef IMAS_WRAPPED_KEYS_H
#define IMAS_WRAPPED_KEYS_H

#include <pthread.h>
#include <stdint.h>

extern int __pthread_key_create(pthread_key_t *key, void (*end)(void *value)); // libc's other name for it

extern __attribute__((visibility("default"))) int pthread_key_create(pthread_key_t *key, void (*end)(void *value));

int pthread_key_create(pthread_key_t *key, void (*end)(void *value))
{
    int first = __atomic_load_n(&gated_keys_made, __ATOMIC_ACQUIRE) == 0;
    if (end != NULL && first && fork_order_is_own(__extension__(void *) end))
        return gated_key_create(key, end);
    return __pthread_key_create(key, end);
}

#endif
