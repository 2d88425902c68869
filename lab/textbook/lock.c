// SPDX-License-Identifier: Apache-2.0
#include "lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FREE, HELD, CONTENDED };

static int state = FREE;
static pthread_t owner; /* of the thread that holds it; 0 is no thread */
static unsigned depth;  /* touched by the owner only */

/* malloc leaves errno alone when it succeeds, and free always. */
static void futex(int operation, int value)
{
    int saved = errno;
    syscall(SYS_futex, &state, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
    errno = saved;
}

static bool try_lock(void)
{
    int expected = FREE;
    return __atomic_compare_exchange_n(&state, &expected, HELD, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

static void wait_lock(void)
{
    while (__atomic_exchange_n(&state, CONTENDED, __ATOMIC_ACQUIRE) != FREE)
        futex(FUTEX_WAIT, CONTENDED);
}

void fit_lock(void)
{
    pthread_t self = pthread_self();
    if (__atomic_load_n(&owner, __ATOMIC_RELAXED) != self) {
        if (!try_lock())
            wait_lock();
        __atomic_store_n(&owner, self, __ATOMIC_RELAXED);
    }
    depth++;
}

void fit_unlock(void)
{
    if (--depth > 0)
        return;
    __atomic_store_n(&owner, 0, __ATOMIC_RELAXED);
    if (__atomic_exchange_n(&state, FREE, __ATOMIC_RELEASE) == CONTENDED)
        futex(FUTEX_WAKE, 1);
}

void fit_lock_alone(void)
{
    __atomic_store_n(&state, HELD, __ATOMIC_RELAXED);
}
