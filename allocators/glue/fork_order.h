// SPDX-License-Identifier: Apache-2.0
//
// Fork handlers in glibc's order for malloc: an allocator's locks are taken last and released first, so that the
// fork handlers of other libraries may allocate (docs/decisions/0017-fork-handlers-in-order.md).
//
// glibc runs prepare handlers from the last registered to the first, the others from the first to the last. An
// allocator registers late (in a constructor, at its first malloc), so this defines the function that
// pthread_atfork calls. The first call of any library registers one set of three handlers. This set thereby
// precedes all others. What the allocator registers is kept here and run by those three; what others register
// goes on to libc.
//
// The file that includes this defines first
//
//   fork_order_call *fork_order_find(void)   the definition of __register_atfork after this library's
//   int fork_order_is_own(void *object)      whether the allocator registers; object: as __register_atfork has it
//   int fork_order_rests(void)               whether this fork needs none of the allocator's handlers
//
// and, if need be,
//
//   FORK_ORDER_CHILD_ALWAYS   1 where the allocator's child handlers do more than to release locks
#ifndef IMAS_FORK_ORDER_H
#define IMAS_FORK_ORDER_H

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel_call.h"

#ifndef FORK_ORDER_CHILD_ALWAYS
#define FORK_ORDER_CHILD_ALWAYS 0
#endif

typedef void fork_order_handler(void);
// object: &__dso_handle of the registering library, NULL for an executable. libc forgets its handlers at dlclose.
typedef int fork_order_call(fork_order_handler *prepare, fork_order_handler *parent, fork_order_handler *child,
    void *object);

static fork_order_call *fork_order_find(void);
static int fork_order_is_own(void *object);
static int fork_order_rests(void);

extern void *__dso_handle __attribute__((visibility("hidden")));

// ---- the allocator's handlers

enum { FORK_ORDER_PLACES = 32 }; // bits of a uint32_t

static struct fork_order_set {
    fork_order_handler *prepare, *parent, *child;
} fork_order_kept[FORK_ORDER_PLACES];
static uint32_t fork_order_taken; // places given away
static uint32_t fork_order_ready; // bit n: place n is filled
static __thread uint32_t fork_order_running; // of this thread's fork: the places whose prepare handlers ran

static int fork_order_keep(fork_order_handler *prepare, fork_order_handler *parent, fork_order_handler *child)
{
    uint32_t place = __atomic_fetch_add(&fork_order_taken, 1, __ATOMIC_RELAXED);
    if (place >= FORK_ORDER_PLACES)
        return 0;
    fork_order_kept[place] = (struct fork_order_set){ prepare, parent, child };
    __atomic_fetch_or(&fork_order_ready, UINT32_C(1) << place, __ATOMIC_RELEASE);
    return 1;
}

// No signal handler runs from the first prepare handler to the last parent or child handler. One that forked there
// would find some locks taken and others not, and its child would wait for ever for those that other threads hold.
static __thread uint64_t fork_order_signals; // this thread's mask before, as the kernel has it

static void fork_order_block_signals(void)
{
    // All but the two that libc keeps for itself: setuid in another thread waits for their handlers.
    const uint64_t all = ~(UINT64_C(3) << (__SIGRTMIN - 1));
    kernel_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&all, (long)&fork_order_signals, sizeof all, 0, 0);
}

static void fork_order_restore_signals(void)
{
    kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&fork_order_signals, 0, sizeof fork_order_signals, 0, 0);
}

static void fork_order_prepare(void)
{
    uint32_t ready = __atomic_load_n(&fork_order_ready, __ATOMIC_ACQUIRE);
    // Already running: libc has the three twice (fork_order_claim).
    if (ready == 0 || fork_order_running != 0 || fork_order_rests())
        return;
    fork_order_block_signals();
    fork_order_running = ready;
    for (int place = FORK_ORDER_PLACES; place-- > 0;)
        if ((ready >> place & 1) != 0 && fork_order_kept[place].prepare != NULL)
            fork_order_kept[place].prepare();
}

static void fork_order_parent(void)
{
    uint32_t running = fork_order_running;
    if (running == 0)
        return;
    for (int place = 0; place < FORK_ORDER_PLACES; place++)
        if ((running >> place & 1) != 0 && fork_order_kept[place].parent != NULL)
            fork_order_kept[place].parent();
    fork_order_running = 0;
    fork_order_restore_signals();
}

static void fork_order_child(void)
{
    uint32_t running = fork_order_running;
    uint32_t places = FORK_ORDER_CHILD_ALWAYS ? __atomic_load_n(&fork_order_ready, __ATOMIC_ACQUIRE) : running;
    for (int place = 0; place < FORK_ORDER_PLACES; place++)
        if ((places >> place & 1) != 0 && fork_order_kept[place].child != NULL)
            fork_order_kept[place].child();
    fork_order_running = 0;
    if (running != 0)
        fork_order_restore_signals();
}

// ---- being first

enum { FORK_ORDER_NOBODY = 0, FORK_ORDER_FIRST = -1 };
static int fork_order_state; // one of them, or the process one of whose threads is registering

static int fork_order_claim(int process)
{
    int seen = __atomic_load_n(&fork_order_state, __ATOMIC_RELAXED);
    // Another process: it forked while a thread of it was registering, and that thread is not in this child.
    return seen != FORK_ORDER_FIRST && seen != process &&
        __atomic_compare_exchange_n(&fork_order_state, &seen, process, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

// 0, or libc's error. Whoever waits here waits for one short call of libc: the search, which may wait for a
// library that is being loaded, is over.
static int fork_order_begin(fork_order_call *next)
{
    int process = (int)kernel_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
    while (__atomic_load_n(&fork_order_state, __ATOMIC_ACQUIRE) != FORK_ORDER_FIRST) {
        if (!fork_order_claim(process)) {
            kernel_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
            continue;
        }
        int error = next(fork_order_prepare, fork_order_parent, fork_order_child, &__dso_handle);
        __atomic_store_n(&fork_order_state, error == 0 ? FORK_ORDER_FIRST : FORK_ORDER_NOBODY, __ATOMIC_RELEASE);
        if (error != 0)
            return error;
    }
    return 0;
}

// ---- the function

static fork_order_call *fork_order_found; // libc's function

static fork_order_call *fork_order_next(void)
{
    fork_order_call *next = __atomic_load_n(&fork_order_found, __ATOMIC_RELAXED);
    if (next == NULL) {
        next = fork_order_find();
        __atomic_store_n(&fork_order_found, next, __ATOMIC_RELAXED);
    }
    return next;
}

// Each library that includes this calls it in a constructor. A first search later could wait for ever: it takes the
// loader's lock, and the thread that loads a library may be waiting for the one that registers.
static void fork_order_start(void)
{
    fork_order_call *next = fork_order_next();
    if (next != NULL && __atomic_load_n(&fork_order_ready, __ATOMIC_ACQUIRE) != 0)
        fork_order_begin(next);
}

__attribute__((visibility("default"))) fork_order_call __register_atfork;
int __register_atfork(fork_order_handler *prepare, fork_order_handler *parent, fork_order_handler *child,
    void *object)
{
    // An allocator registers in its first malloc, with its locks held. The search allocates where libc is older than
    // 2.34, so it is left to the constructor.
    if (__atomic_load_n(&fork_order_found, __ATOMIC_RELAXED) == NULL && fork_order_is_own(object))
        return fork_order_keep(prepare, parent, child) ? 0 : ENOMEM;
    fork_order_call *next = fork_order_next();
    // A libc before 2.34 without libdl (old_libc.c). Some allocators end the process when they are refused.
    if (next == NULL)
        return ENOMEM;
    if (fork_order_begin(next) == 0 && fork_order_is_own(object) && fork_order_keep(prepare, parent, child))
        return 0;
    return next(prepare, parent, child, object);
}

#endif
