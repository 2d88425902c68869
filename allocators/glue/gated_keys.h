// SPDX-License-Identifier: Apache-2.0
// pthread_key_create for allocators behind the gate of fork_gate.h that give a thread's data back in a
// key's destructor. glibc would call that outside the gate, and a child of a fork in the middle of it would
// find the heap as the destructor left it. So libc's key gets a destructor that only keeps the value (libc
// clears it in each round), and the gate calls the allocator's, as the last act of the thread.
//
// The recipe compiles the allocator with -Dpthread_key_create=gated_key_create. This comes before gated.h.
#ifndef IMAS_GATED_KEYS_H
#define IMAS_GATED_KEYS_H

#include <errno.h>
#include <pthread.h>
#include <stddef.h>

enum { GATED_KEYS = 4 };

static struct gated_key {
    pthread_key_t key;
    void (*end)(void *value);
} gated_keys[GATED_KEYS];
static int gated_keys_made; // counts up only; a place is filled before it is counted

#define GATED_KEY_KEEPER(place) \
    static void gated_key_keep_##place(void *value) \
    { \
        pthread_setspecific(gated_keys[place].key, value); \
    }
GATED_KEY_KEEPER(0)
GATED_KEY_KEEPER(1)
GATED_KEY_KEEPER(2)
GATED_KEY_KEEPER(3)
static void (*const gated_key_keepers[GATED_KEYS])(void *value) = {
    gated_key_keep_0, gated_key_keep_1, gated_key_keep_2, gated_key_keep_3
};

extern int gated_key_create(pthread_key_t *key, void (*end)(void *value));

// Called by the allocator as it prepares itself: by one thread at a time.
int gated_key_create(pthread_key_t *key, void (*end)(void *value))
{
    int place = gated_keys_made;
    if (end == NULL)
        return pthread_key_create(key, NULL);
    if (place == GATED_KEYS)
        return EAGAIN;
    int error = pthread_key_create(key, gated_key_keepers[place]);
    if (error != 0)
        return error;
    gated_keys[place] = (struct gated_key){ *key, end };
    __atomic_store_n(&gated_keys_made, place + 1, __ATOMIC_RELEASE);
    return 0;
}

// As glibc: the value is cleared first.
static inline void gated_keys_end(void)
{
    int made = __atomic_load_n(&gated_keys_made, __ATOMIC_ACQUIRE);
    for (int place = 0; place < made; place++) {
        void *value = pthread_getspecific(gated_keys[place].key);
        if (value == NULL)
            continue;
        pthread_setspecific(gated_keys[place].key, NULL);
        gated_keys[place].end(value);
    }
}

// What a thread past its end is given for a call goes back with that call: no destructor follows.
#define GATE_END_THREAD() gated_keys_end()
#define GATE_BEGIN_ENDED() ((void)0)
#define GATE_LEAVE_ENDED() gated_keys_end()

#endif
