// SPDX-License-Identifier: Apache-2.0
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "replayer.h"

struct turn_thread {
    pthread_t handle;
    uint32_t is_started;
    uint32_t turns; /* futex word; grows with each turn that the thread gets */
};

static struct turn_thread *threads; /* by number, from 1 */
static uint32_t whose = 1;
static uint32_t left; /* a thread that ends; the thread with the next turn joins it */

void turn_begin(uint32_t count) {
    size_t bytes = (count + 1) * sizeof *threads;
    threads = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (threads == MAP_FAILED)
        fail("no memory for the threads");
    threads[1].is_started = 1;
}

static void join_left(void) {
    uint32_t gone = left;
    left = 0;
    if (gone != 0)
        pthread_join(threads[gone].handle, NULL);
}

static void *run(void *number) {
    join_left(); /* a thread that ends may have started this one */
    play((uint32_t)(uintptr_t)number);
    return NULL;
}

/* The new thread may have had its turn, and another thread may give it the next one, before pthread_create returns.
 * That thread must not start it again. */
static void start(uint32_t number) {
    threads[number].is_started = 1;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)256 << 10);
    if (pthread_create(&threads[number].handle, &attributes, run, (void *)(uintptr_t)number) != 0)
        fail("a thread cannot be started");
    pthread_attr_destroy(&attributes);
}

static void give(uint32_t to) {
    __atomic_store_n(&whose, to, __ATOMIC_RELEASE);
    if (threads[to].is_started == 0) {
        start(to);
        return;
    }
    __atomic_fetch_add(&threads[to].turns, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &threads[to].turns, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void wait_for(uint32_t self) {
    for (;;) {
        uint32_t seen = __atomic_load_n(&threads[self].turns, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&whose, __ATOMIC_ACQUIRE) == self)
            break;
        syscall(SYS_futex, &threads[self].turns, FUTEX_WAIT, seen, NULL, NULL, 0);
    }
    join_left();
}

void turn_to(uint32_t self, uint32_t to) {
    if (to == self)
        return;
    give(to);
    wait_for(self);
}

void turn_leave(uint32_t self, uint32_t to) {
    left = self;
    give(to);
}
