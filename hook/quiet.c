// SPDX-License-Identifier: Apache-2.0
#include "quiet.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>

#include "give_back.h"
#include "next_found.h"
#include "own_process.h"
#include "pacer.h"
#include "sys.h"

#define SECOND_NS 1000000000L
#define LONG_ENOUGH_NS (SECOND_NS / 100) /* a shorter wait is no quiet moment */

/* ---- whether it is time -------------------------------------------------------------------------------- */

/* The counter of cycles, without the fence of ticks_now: it may be off by some nanoseconds, and is read in each call. */
static uint64_t rough_ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return ticks_now();
#endif
}

static uint64_t asked_last;

/* About once a second. All else is asked only then. */
static bool is_time(void) {
    if (unlikely(give_back_has_given_up()))
        return false; /* the counter may be forbidden too */
    uint64_t now = rough_ticks();
    if (likely(now - get_relaxed(asked_last) < ticks_per_second()) || pacer_runs())
        return false;
    set_relaxed(asked_last, now);
    return give_back_is_on() && !give_back_is_filtered() && own_process_threads() == 1;
}

/* ---- signals ------------------------------------------------------------------------------------------- */

/* As the kernel has it. */
struct action {
    void *handler;
    unsigned long flags;
    void *restorer;
    uint64_t mask;
};

static bool interrupts(int signal, bool restarts) {
    struct action action = {.handler = NULL};
    if (sys4(SYS_rt_sigaction, signal, NULL, &action, sizeof action.mask) != 0)
        return false;
    bool handled = action.handler != (void *)SIG_DFL && action.handler != (void *)SIG_IGN;
    return handled && !(restarts && (action.flags & SA_RESTART) != 0);
}

static bool is_interrupted(uint64_t signals, bool restarts) {
    for (int signal = 1; signal <= 64; signal++) {
        if ((signals >> (signal - 1) & 1) != 0 && interrupts(signal, restarts))
            return true;
    }
    return false;
}

#define BIT(signal) (UINT64_C(1) << ((signal) - 1))
#define OF_FAULTS (BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGABRT) | BIT(SIGFPE) | BIT(SIGILL))

static bool is_on_signal_stack(void) {
    stack_t stack = {.ss_flags = 0};
    return sys2(SYS_sigaltstack, NULL, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) != 0;
}

/* Whether this may be a signal's handler: it may have interrupted malloc, whose heap is then half changed. The kernel
 * blocks a signal while its handler runs. A handler that is used up (SA_RESETHAND) is not seen any more. */
static bool may_be_handler(uint64_t blocked) {
    return (blocked & OF_FAULTS) != 0 || is_interrupted(blocked, false) || is_on_signal_stack();
}

/* No handler may run during a trim: it may allocate, and here it would wait for ever. What came meanwhile is handled at
 * the end, and is told to the caller: the wait that was about to begin would have ended by it. */
static bool trim_then_tell(bool restarts) {
    const uint64_t all = ~UINT64_C(0);
    uint64_t before = 0, pending = 0;
    sys4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
    if (!may_be_handler(before))
        give_back_if_allowed(true);
    sys2(SYS_rt_sigpending, &pending, sizeof pending);
    bool interrupted = is_interrupted(pending & ~before, restarts);
    sys4(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    return interrupted;
}

enum wait_rule { NEVER_RESTARTS, RESTARTS };

/* To be called where the calling thread is about to wait. True: a signal was handled, the wait is over before it began. */
static NOINLINE bool quiet_moment(enum wait_rule rule) {
    if (!trim_then_tell(rule == RESTARTS))
        return false;
    errno = EINTR;
    return true;
}

static bool is_long(const struct timespec *timeout) {
    return timeout == NULL || timeout->tv_sec > 0 || timeout->tv_nsec >= LONG_ENOUGH_NS;
}

static bool is_long_ms(int timeout) {
    return timeout < 0 || timeout >= LONG_ENOUGH_NS / 1000000;
}

/* ---- the functions ------------------------------------------------------------------------------------- */

typedef int poll_call(struct pollfd *files, nfds_t count, int timeout);
typedef int ppoll_call(struct pollfd *files, nfds_t count, const struct timespec *timeout, const sigset_t *mask);
typedef int epoll_wait_call(int set, struct epoll_event *events, int room, int timeout);
typedef int epoll_pwait_call(int set, struct epoll_event *events, int room, int timeout, const sigset_t *mask);
typedef int epoll_pwait2_call(int set, struct epoll_event *events, int room, const struct timespec *timeout, const sigset_t *mask);
typedef int select_call(int end, fd_set *in, fd_set *out, fd_set *other, struct timeval *timeout);
typedef int pselect_call(int end, fd_set *in, fd_set *out, fd_set *other, const struct timespec *timeout, const sigset_t *mask);
typedef int accept_call(int file, struct sockaddr *peer, socklen_t *length);
typedef int accept4_call(int file, struct sockaddr *peer, socklen_t *length, int flags);
typedef int nanosleep_call(const struct timespec *wanted, struct timespec *left);
typedef int clock_nanosleep_call(clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left);

static struct {
    poll_call *poll;
    ppoll_call *ppoll;
    epoll_wait_call *epoll_wait;
    epoll_pwait_call *epoll_pwait;
    epoll_pwait2_call *epoll_pwait2;
    select_call *select;
    pselect_call *pselect;
    accept_call *accept;
    accept4_call *accept4;
    nanosleep_call *nanosleep;
    clock_nanosleep_call *clock_nanosleep;
} real;

#define REAL(name) NEXT_FOUND(real.name, #name)

void quiet_prepare(void) {
    REAL(poll), REAL(ppoll), REAL(epoll_wait), REAL(epoll_pwait), REAL(epoll_pwait2), REAL(select), REAL(pselect);
    REAL(accept), REAL(accept4), REAL(nanosleep), REAL(clock_nanosleep);
}

static int not_there(void) {
    errno = ENOSYS;
    return -1;
}

/* What has events is no wait: they are returned at once. */
#define WAIT_OR_EVENTS(long_enough, events_now)                                                                        \
    if (unlikely(is_time()) && long_enough) {                                                                          \
        int ready = events_now;                                                                                        \
        if (ready != 0)                                                                                                \
            return ready;                                                                                              \
        if (quiet_moment(NEVER_RESTARTS))                                                                              \
            return -1;                                                                                                 \
    }

EXPORT int poll(struct pollfd *files, nfds_t count, int timeout) {
    poll_call *next = REAL(poll);
    WAIT_OR_EVENTS(is_long_ms(timeout), next(files, count, 0))
    return next(files, count, timeout);
}

EXPORT int ppoll(struct pollfd *files, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    const struct timespec none = {0, 0};
    ppoll_call *next = REAL(ppoll);
    if (unlikely(next == NULL))
        return not_there();
    WAIT_OR_EVENTS(is_long(timeout), next(files, count, &none, mask))
    return next(files, count, timeout, mask);
}

EXPORT int epoll_wait(int set, struct epoll_event *events, int room, int timeout) {
    epoll_wait_call *next = REAL(epoll_wait);
    WAIT_OR_EVENTS(is_long_ms(timeout), next(set, events, room, 0))
    return next(set, events, room, timeout);
}

EXPORT int epoll_pwait(int set, struct epoll_event *events, int room, int timeout, const sigset_t *mask) {
    epoll_pwait_call *next = REAL(epoll_pwait);
    if (unlikely(next == NULL))
        return not_there();
    WAIT_OR_EVENTS(is_long_ms(timeout), next(set, events, room, 0, mask))
    return next(set, events, room, timeout, mask);
}

EXPORT int epoll_pwait2(int set, struct epoll_event *events, int room, const struct timespec *timeout, const sigset_t *mask) {
    const struct timespec none = {0, 0};
    epoll_pwait2_call *next = REAL(epoll_pwait2); /* since 2.35 */
    if (unlikely(next == NULL))
        return not_there();
    WAIT_OR_EVENTS(is_long(timeout), next(set, events, room, &none, mask))
    return next(set, events, room, timeout, mask);
}

/* select writes into its sets, so nothing is asked before. */
EXPORT int select(int end, fd_set *in, fd_set *out, fd_set *other, struct timeval *timeout) {
    select_call *next = REAL(select);
    bool long_enough = timeout == NULL || timeout->tv_sec > 0 || timeout->tv_usec >= LONG_ENOUGH_NS / 1000;
    if (unlikely(is_time()) && long_enough && quiet_moment(NEVER_RESTARTS))
        return -1;
    return next(end, in, out, other, timeout);
}

EXPORT int pselect(int end, fd_set *in, fd_set *out, fd_set *other, const struct timespec *timeout, const sigset_t *mask) {
    pselect_call *next = REAL(pselect);
    if (unlikely(is_time()) && is_long(timeout) && quiet_moment(NEVER_RESTARTS))
        return -1;
    return next(end, in, out, other, timeout, mask);
}

static bool has_caller(int file) {
    const struct timespec none = {0, 0};
    struct pollfd listening = {.fd = file, .events = POLLIN};
    return sys6(SYS_ppoll, (long)&listening, 1, (long)&none, 0, 0, 0) != 0;
}

EXPORT int accept(int file, struct sockaddr *peer, socklen_t *length) {
    accept_call *next = REAL(accept);
    if (unlikely(is_time()) && !has_caller(file) && quiet_moment(RESTARTS))
        return -1;
    return next(file, peer, length);
}

EXPORT int accept4(int file, struct sockaddr *peer, socklen_t *length, int flags) {
    accept4_call *next = REAL(accept4);
    if (unlikely(next == NULL))
        return not_there();
    if (unlikely(is_time()) && !has_caller(file) && quiet_moment(RESTARTS))
        return -1;
    return next(file, peer, length, flags);
}

/* A sleep that ends before it began leaves all of it. */
EXPORT int nanosleep(const struct timespec *wanted, struct timespec *left) {
    nanosleep_call *next = REAL(nanosleep);
    if (unlikely(is_time()) && is_long(wanted) && quiet_moment(NEVER_RESTARTS)) {
        if (left != NULL)
            *left = *wanted;
        return -1;
    }
    return next(wanted, left);
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left) {
    clock_nanosleep_call *next = REAL(clock_nanosleep);
    if (unlikely(next == NULL))
        return ENOSYS;
    int kept = errno;
    if (flags == 0 && unlikely(is_time()) && is_long(wanted) && quiet_moment(NEVER_RESTARTS)) {
        if (left != NULL)
            *left = *wanted;
        errno = kept;
        return EINTR;
    }
    return next(clock, flags, wanted, left);
}
