// SPDX-License-Identifier: Apache-2.0
#include "pacer.h"

#include <errno.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>

#include "give_back.h"
#include "libc.h"
#include "next_found.h"
#include "own_process.h"
#include "rights.h"
#include "sys.h"

#define STACK_BYTES ((size_t)256 << 10)
#define SHORTEST_NS UINT64_C(1000000000)
#define LONGEST_NS (4 * SHORTEST_NS)
#define IDLE_NS 5000000 /* of CPU time between two looks */
#define STEP_NS 50000
#define PRCTL_SET_NAME 15
#define MOST_CPUS 8192

static struct {
    int runs;     /* 1: started, or about to be */
    int must_end; /* the word it sleeps on */
    long thread;  /* its id; 0 before it has said so, and after a fork */
    bool measures;
    uint64_t cpus[MOST_CPUS / 64]; /* those of the process as it started */
    long cpu_bytes;                /* 0: unknown */
} pacer;

void pacer_prepare(void) {
    if (!give_back_is_filtered())
        pacer.cpu_bytes = sys3(SYS_sched_getaffinity, 0, sizeof pacer.cpus, pacer.cpus);
}

bool pacer_runs(void) {
    return __atomic_load_n(&pacer.runs, __ATOMIC_SEQ_CST) != 0;
}

void pacer_forget(void) {
    pacer.runs = pacer.must_end = 0;
    pacer.thread = 0;
}

static void sleep_on(int *word, int value, uint64_t ns) {
    struct {
        int64_t seconds, nanoseconds;
    } timeout = {(int64_t)(ns / SHORTEST_NS), (int64_t)(ns % SHORTEST_NS)};
    sys4(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &timeout);
}

/* ---- the thread ---------------------------------------------------------------------------------------- */

/* A table of files of its own, empty: a file that it opens takes no number of the program's, whatever the program
 * opens and closes meanwhile, and no file of the program's stays open because of it. */
static bool leave_files_behind(void) {
    return !give_back_is_filtered() && sys3(SYS_close_range, 0, UINT32_MAX, CLOSE_RANGE_UNSHARE) == 0;
}

/* Its creator may be a real-time thread, or bound to a processor. */
static void leave_creators_place(void) {
    long policy = sys1(SYS_sched_getscheduler, 0);
    int priority = 0;
    if (policy == SCHED_FIFO || policy == SCHED_RR)
        sys3(SYS_sched_setscheduler, 0, SCHED_OTHER, &priority);
    if (pacer.cpu_bytes > 0)
        sys3(SYS_sched_setaffinity, 0, pacer.cpu_bytes, pacer.cpus);
}

/* False: it would keep a right that the program may give up. Under a filter the process has none (give_back.c). */
static bool settle_in(struct rights *rights) {
    pacer.measures = leave_files_behind();
    if (give_back_is_filtered())
        return true;
    leave_creators_place();
    if (!rights_drop(rights))
        return false;
    sys2(SYS_prctl, PRCTL_SET_NAME, "imas-give-back");
    return true;
}

static uint64_t next_sleep(uint64_t slept, uint64_t worked_ns) {
    if (worked_ns >= IDLE_NS)
        return SHORTEST_NS;
    return slept * 2 < LONGEST_NS ? slept * 2 : LONGEST_NS;
}

/* Alone with the main thread, or with what is left of it: then libc ends the process as soon as we end. */
static bool is_needed(void) {
    return get_relaxed(pacer.must_end) == 0 && give_back_is_on() && own_process_threads() > 2;
}

static bool begins(void) {
    int idle = 0;
    return __atomic_compare_exchange_n(&pacer.runs, &idle, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Gives way to another, and looks once more: a thread that was made just before found that one runs. */
static bool is_needed_again(void) {
    __atomic_store_n(&pacer.runs, 0, __ATOMIC_SEQ_CST);
    return is_needed() && begins();
}

/* Whether the thread is one of the program's in all that the kernel would let it do. */
static bool is_like_the_program(const struct rights *rights) {
    return rights_are_left_alone(rights) && (!pacer.measures || rights_are_shared());
}

static void look_until_unneeded(const struct rights *rights) {
    uint64_t sleep_ns = SHORTEST_NS, worked = sys_clock_ns(SYS_CLOCK_PROCESS_CPU), own = 0;
    __atomic_store_n(&pacer.thread, sys0(SYS_gettid), __ATOMIC_RELEASE);
    for (;;) {
        sleep_on(&pacer.must_end, 0, sleep_ns);
        if (!is_like_the_program(rights)) {
            __atomic_store_n(&pacer.runs, 0, __ATOMIC_SEQ_CST);
            break;
        }
        if (!is_needed() && !is_needed_again())
            break;
        give_back_if_allowed(pacer.measures, BUDGET_UNKNOWN);
        uint64_t now = sys_clock_ns(SYS_CLOCK_PROCESS_CPU), own_now = sys_clock_ns(SYS_CLOCK_THREAD_CPU);
        sleep_ns = next_sleep(sleep_ns, now - worked - (own_now - own));
        worked = now;
        own = own_now;
    }
}

static void *pace(void *unused) {
    struct rights rights = {.dropped = false};
    if (settle_in(&rights)) {
        look_until_unneeded(&rights);
    } else {
        give_back_give_up();
        __atomic_store_n(&pacer.runs, 0, __ATOMIC_SEQ_CST);
    }
    rights_leave(&rights);
    return unused;
}

/* ---- its beginning ------------------------------------------------------------------------------------- */

#define BIT(signal) (UINT64_C(1) << ((signal) - 1))

/* All signals but libc's own two, for which setuid in another thread waits, and SIGSYS, by which a sandbox asks its
 * handler about a system call. */
static uint64_t block_signals(void) {
    const uint64_t all = ~(BIT(__SIGRTMIN) | BIT(__SIGRTMIN + 1) | BIT(SIGSYS));
    uint64_t before = 0;
    sys4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
    return before;
}

static void restore_signals(uint64_t before) {
    sys4(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
}

/* pthread_attr_setstacksize, of the oldest version (libc.h). */
__attribute__((weak)) extern int pacer_attr_setstacksize(pthread_attr_t *attributes, size_t bytes);
__asm__(".symver pacer_attr_setstacksize, pthread_attr_setstacksize@" LIBC_OLDEST);

/* What libc takes out of each stack for the thread-local variables of all libraries. */
static size_t bytes_of_libraries(const pthread_attr_t *attributes) {
    static size_t (*least_stack)(const pthread_attr_t *);
    NEXT_FOUND(least_stack, "__pthread_get_minstack");
    return least_stack != NULL ? least_stack(attributes) : 0;
}

static bool create_detached(pthread_create_call *create) {
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    if (pacer_attr_setstacksize != NULL)
        pacer_attr_setstacksize(&attributes, STACK_BYTES + bytes_of_libraries(&attributes));
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    bool made = create(&thread, &attributes, pace, NULL) == 0;
    pthread_attr_destroy(&attributes);
    return made;
}

void pacer_start(pthread_create_call *create) {
    if (pacer_runs() || !give_back_is_on() || own_process_threads() < 2)
        return;
    int kept = errno;
    /* The thread inherits the mask. And a handler that ended the pacer here would wait for what it interrupted. */
    uint64_t signals = block_signals();
    if (begins()) {
        pacer.thread = 0;
        pacer.must_end = 0;
        /* Asked again: a thread that gave up meanwhile found none to end. */
        if (!give_back_is_on() || !create_detached(create))
            __atomic_store_n(&pacer.runs, 0, __ATOMIC_RELEASE);
    }
    restore_signals(signals);
    errno = kept;
}

/* ---- its end ------------------------------------------------------------------------------------------- */

static bool is_gone(long thread) {
    return sys3(SYS_tgkill, sys0(SYS_getpid), thread, 0) != 0;
}

static void step(void) {
    int word = 0;
    sleep_on(&word, 0, STEP_NS);
}

/* Past its last line it is gone as soon as it gets a processor. Not for ever: its number may be another thread's by now. */
#define MOST_STEPS 10000

static void wait_until_gone(long thread) {
    for (unsigned steps = 0; !is_gone(thread) && (pacer_runs() || steps < MOST_STEPS); steps++)
        step();
}

void pacer_end(void) {
    if (!pacer_runs() && get_relaxed(pacer.thread) == 0)
        return; /* without a system call: they may be forbidden */
    int kept = errno;
    bool owner = give_back_is_ours();
    while (owner && pacer_runs() && __atomic_load_n(&pacer.thread, __ATOMIC_ACQUIRE) == 0)
        step(); /* it is about to begin; a real-time thread that only yielded would keep it from that */
    long thread = owner ? __atomic_load_n(&pacer.thread, __ATOMIC_ACQUIRE) : 0;
    if (thread != 0) {
        set_relaxed(pacer.must_end, 1);
        sys3(SYS_futex, &pacer.must_end, FUTEX_WAKE_PRIVATE, 1);
        wait_until_gone(thread);
        /* Another caller may have waited too, and may have started the next one. */
        __atomic_compare_exchange_n(&pacer.thread, &thread, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
    errno = kept;
}

void pacer_end_if_alone(void) {
    if ((pacer_runs() || get_relaxed(pacer.thread) != 0) && own_process_threads() == 2)
        pacer_end();
}
