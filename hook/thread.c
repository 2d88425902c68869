// SPDX-License-Identifier: Apache-2.0
#include "thread.h"

#include <sys/auxv.h>

#include "libc.h"
#include "live.h"
#include "page.h"
#include "page_size.h"
#include "sample.h"
#include "sandbox.h"
#include "sys.h"

__thread struct thread thread_self;

static struct imas_page nowhere;
struct imas_page *thread_page = &nowhere;
bool thread_counting;

static uint32_t slots_taken;

/* Thread pointers by slot: glibc puts the control block of a thread at the top of its stack's mapping. */
static uintptr_t control_blocks[IMAS_SLOTS];

void thread_refill_free(struct thread *thread) {
    uint32_t gap = (uint32_t)(sample_random(&thread->random) >> 32) % (2 * THREAD_FREE_MEAN - 1);
    *(thread->mode == THREAD_SHARED ? &thread->shared_free_gap : &thread->free_gap) = gap;
}

void thread_refill(struct thread *thread) {
    thread->shift = (uint8_t)live_shift();
    uint64_t gap = sample_gap(&thread->random, thread->shift) + 1; /* one more: a purse that is empty after a call is overdrawn */
    if (thread->mode == THREAD_SHARED) {
        thread->shared_gap = gap;
        return;
    }
    thread->toll = thread_toll(thread);
    thread->gap = gap;
}

static uint64_t seed(uint32_t tid) {
    const uint64_t *kernel_random = (const uint64_t *)libc_getauxval(AT_RANDOM);
    uint64_t clock = sandbox_entered() ? (uintptr_t)&thread_self : ticks_now();
    uint64_t mixed = (kernel_random != NULL ? *kernel_random : 0) ^ clock * UINT64_C(0x9E3779B97F4A7C15) ^
                     (uint64_t)tid << 32;
    return mixed != 0 ? mixed : 1;
}

/* Unlimited purses and a slot that nobody reads; not one slot for all, or threads would contend for its cache
 * line. */
static void be_idle(struct thread *thread) {
    static uint32_t idle_threads;
    thread->mode = THREAD_IDLE;
    thread->slot = &nowhere.slot[add_relaxed(idle_threads, 1) % IMAS_SLOTS];
    thread->toll = 0;
    thread->gap = UINT64_MAX / 2;
    thread->free_gap = UINT32_MAX;
}

static bool thread_is_gone(uint32_t tid, uint32_t pid) {
    const long no_such_thread = -3;
    return sys3(SYS_tgkill, pid, tid, 0) == no_such_thread;
}

/* The slot of a thread that has ended may be used again: its counts stay in it. */
static uint32_t reuse_slot(uint32_t tid, uint32_t ticket) {
    uint32_t pid = thread_page->header.pid;
    for (uint32_t tries = 0; tries < 2; tries++) {
        uint32_t index = (ticket * 2 + tries) % IMAS_OWN_SLOTS;
        uint32_t *owner = &thread_page->slot[index].tid;
        uint32_t seen = get_relaxed(*owner);
        if ((seen == tid || thread_is_gone(seen, pid)) &&
            __atomic_compare_exchange_n(owner, &seen, tid, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return index;
    }
    return IMAS_SLOTS;
}

static uint32_t find_slot(uint32_t tid) {
    uint32_t ticket = add_relaxed(slots_taken, 1);
    if (ticket < IMAS_OWN_SLOTS) {
        set_relaxed(thread_page->slot[ticket].tid, tid);
        return ticket;
    }
    uint32_t index = sandbox_entered() ? IMAS_SLOTS : reuse_slot(tid, ticket - IMAS_OWN_SLOTS);
    return index < IMAS_SLOTS ? index : IMAS_OWN_SLOTS + ticket % IMAS_SHARED_SLOTS;
}

static void take_slot(struct thread *thread, uint32_t index, uint32_t tid) {
    thread->mode = index < IMAS_OWN_SLOTS ? THREAD_OWN : THREAD_SHARED;
    thread->slot = &thread_page->slot[index];
    if (thread->mode == THREAD_SHARED)
        set_relaxed(thread->slot->tid, tid);
    thread->toll = 0;
    thread->gap = 0;
    thread->free_gap = 0;
    thread->calls_at_check = 0;
    thread->samples = 0;
    thread_refill(thread);
    thread_refill_free(thread);
}

void thread_enter(struct thread *thread) {
    if (!__atomic_load_n(&thread_counting, __ATOMIC_ACQUIRE)) { /* then the page is seen too */
        be_idle(thread);
        return;
    }
    /* under a seccomp filter even gettid may be forbidden */
    page_begin_own_calls();
    uint32_t tid = sandbox_entered() ? 0 : (uint32_t)sys0(SYS_gettid);
    thread->random = seed(tid);
    uint32_t index = find_slot(tid);
    page_end_own_calls();
    if (index != 0)
        set_relaxed(control_blocks[index], (uintptr_t)__builtin_thread_pointer());
    take_slot(thread, index, tid);
    add_relaxed(thread_page->header.threads, 1);
}

void thread_start(struct imas_page *page) {
    page->sampled.sample_interval_bytes = UINT64_C(1) << live_shift();
    __atomic_store_n(&thread_page, page, __ATOMIC_RELEASE);
    slots_taken = 0;
    __atomic_store_n(&thread_counting, true, __ATOMIC_RELEASE);
    thread_enter(&thread_self);
}

void thread_restart_in_child(struct imas_page *page) {
    for (uint32_t i = 0; i < IMAS_SLOTS; i++)
        control_blocks[i] = 0;
    if (page != NULL) {
        thread_start(page);
        return;
    }
    thread_counting = false;
    thread_page = &nowhere;
    be_idle(&thread_self);
}

/* What glibc keeps between the thread pointer and the end of the stack's mapping, which ends with a page. */
#if defined(__x86_64__)
#define ABOVE_POINTER 0x980 /* struct pthread */
#else
#define ABOVE_POINTER 0x720 /* thread data; struct pthread lies below the pointer */
#endif

bool thread_stack_end(uintptr_t start, uintptr_t limit, uintptr_t *end) {
    for (uint32_t i = 1; i < IMAS_SLOTS; i++) {
        uintptr_t at = get_relaxed(control_blocks[i]);
        if (at <= start || at >= limit)
            continue;
        uintptr_t top = (at + ABOVE_POINTER + page_bytes() - 1) & -page_bytes();
        *end = top < limit ? top : limit;
        return true;
    }
    return false;
}
