// SPDX-License-Identifier: Apache-2.0
//
// Fork for allocators that cannot fork: whose locks are out of reach, or hidden in the state of single
// blocks. Every call into the allocator passes a gate; the thread that forks closes it and
// waits until no other thread is inside, so that the child gets a heap at rest.
//
// Cost: each thread writes its own flag and reads one shared word, no atomic instruction and no fence.
// The order of "I am inside" before "is it closed?" is forced by the forking thread alone, with
// membarrier(2) (the asymmetric fence of liburcu: Desnoyers et al., "User-Level Implementations of
// Read-Copy Update", 2012).
//
//   gate_enter() ... gate_leave()   around every call; they nest
//
// If defined: GATE_BEGIN_THREAD() is called at a thread's first entry, GATE_END_THREAD() when it ends, and
// for a call after that, GATE_BEGIN_ENDED() before and GATE_LEAVE_ENDED() behind it.
#ifndef IMAS_FORK_GATE_H
#define IMAS_FORK_GATE_H

#include <linux/membarrier.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel_call.h"
#include "thread_end.h"

#ifndef GATE_BEGIN_THREAD
#define GATE_BEGIN_THREAD() ((void)0)
#endif
#ifndef GATE_END_THREAD
#define GATE_END_THREAD() ((void)0)
#endif
#ifndef GATE_BEGIN_ENDED
#define GATE_BEGIN_ENDED() ((void)0)
#define GATE_LEAVE_ENDED() ((void)0)
#endif

enum gate_state { GATE_UNKNOWN, GATE_LISTED, GATE_ENDED };

// One per thread, listed while the thread lives.
struct gate_thread {
    volatile int inside;
    enum gate_state state;
    struct gate_thread *next;
    struct gate_thread **previous;
};

static __thread struct gate_thread gate_self;
static struct gate_thread *gate_threads;
// Guards the list; held by the forking thread while the gate is closed.
static pthread_mutex_t gate_mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int gate_closed;
static __thread int gate_forking;

static inline void gate_compiler_fence(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

// Puts this thread on the list; waits while another forks.
static void gate_list(void)
{
    pthread_mutex_lock(&gate_mutex);
    gate_self.next = gate_threads;
    gate_self.previous = &gate_threads;
    if (gate_threads != NULL)
        gate_threads->previous = &gate_self.next;
    gate_threads = &gate_self;
    pthread_mutex_unlock(&gate_mutex);
}

// Takes it off again.
static void gate_unlist(void)
{
    pthread_mutex_lock(&gate_mutex);
    *gate_self.previous = gate_self.next;
    if (gate_self.next != NULL)
        gate_self.next->previous = gate_self.previous;
    pthread_mutex_unlock(&gate_mutex);
}

static inline void gate_enter(void);
static inline void gate_leave(void);

// At a thread's end (thread_end.h): its data goes back, and from now on it passes the gate as one that has ended.
static void gate_end_thread(void)
{
    gate_enter();
    GATE_END_THREAD();
    gate_leave();
    gate_self.state = GATE_ENDED;
    gate_unlist();
}

// Waits while the gate is closed, unless this thread closed it, or a signal handler came here from
// inside the allocator (then the forking thread is waiting for the interrupted call).
static __attribute__((noinline, cold)) void gate_wait(void)
{
    if (gate_forking)
        return;
    while (gate_closed && gate_self.inside == 1) {
        gate_self.inside = 0;
        pthread_mutex_lock(&gate_mutex);
        pthread_mutex_unlock(&gate_mutex);
        gate_self.inside = 1;
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
}

// A thread that has ended is not on the list: while it is inside it holds the list's mutex instead.
static __attribute__((noinline, cold)) void gate_enter_ended(void)
{
    if (gate_self.inside++ != 0)
        return;
    if (!gate_forking)
        pthread_mutex_lock(&gate_mutex);
    GATE_BEGIN_ENDED();
}

static __attribute__((noinline, cold)) void gate_leave_ended(void)
{
    if (gate_self.inside != 0)
        return;
    GATE_LEAVE_ENDED();
    if (!gate_forking)
        pthread_mutex_unlock(&gate_mutex);
}

static __attribute__((noinline, cold)) void gate_first_entry(void)
{
    if (gate_self.state == GATE_ENDED) {
        gate_enter_ended();
        return;
    }
    static int prepared;
    gate_self.state = GATE_LISTED;
    if (!prepared) {
        prepared = 1;
        thread_end_prepare();
    }
    gate_list();
    gate_self.inside++;
    gate_wait();
    GATE_BEGIN_THREAD();
    thread_end_arm(gate_end_thread);
}

static inline void gate_enter(void)
{
    if (__builtin_expect(gate_self.state != GATE_LISTED, 0)) {
        gate_first_entry();
        return;
    }
    gate_self.inside++;
    gate_compiler_fence();
    if (__builtin_expect(gate_closed, 0))
        gate_wait();
}

static inline void gate_leave(void)
{
    gate_compiler_fence();
    gate_self.inside--;
    if (__builtin_expect(gate_self.state == GATE_ENDED, 0))
        gate_leave_ended();
}

// After it, every thread that read "open" is seen inside. Where the kernel or a seccomp filter
// refuses membarrier, a pause far longer than a store takes to become visible.
static void gate_fence_all_threads(void)
{
    if (kernel_call(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0) != 0)
        usleep(1000);
}

static void gate_close(void)
{
    pthread_mutex_lock(&gate_mutex);
    gate_forking = 1;
    gate_closed = 1;
    gate_fence_all_threads();
    for (struct gate_thread *thread = gate_threads; thread != NULL; thread = thread->next)
        while (thread != &gate_self && thread->inside)
            usleep(20);
}

static void gate_open(void)
{
    gate_closed = 0;
    gate_forking = 0;
    pthread_mutex_unlock(&gate_mutex);
}

// The other threads are not in the child, nor is their thread data in use.
static void gate_open_in_child(void)
{
    if (gate_self.state == GATE_LISTED) {
        gate_self.next = NULL;
        gate_self.previous = &gate_threads;
        gate_threads = &gate_self;
    } else {
        gate_threads = NULL;
    }
    gate_open();
}

static __attribute__((constructor)) void gate_install(void)
{
    kernel_call(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0);
    pthread_atfork(gate_close, gate_open, gate_open_in_child);
}

#endif
