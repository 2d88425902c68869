// SPDX-License-Identifier: Apache-2.0
#include "quiet.h"

#include <errno.h>
#include <fcntl.h>
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
#define FOR_EVER UINT64_MAX

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
static bool trim_then_tell(bool restarts, uint64_t wait_ns) {
    const uint64_t all = ~UINT64_C(0);
    uint64_t before = 0, pending = 0;
    sys4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
    if (!may_be_handler(before))
        give_back_if_allowed(true, wait_ns);
    sys2(SYS_rt_sigpending, &pending, sizeof pending);
    bool interrupted = is_interrupted(pending & ~before, restarts);
    sys4(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    return interrupted;
}

enum wait_rule { NEVER_RESTARTS, RESTARTS };

/* To be called where the calling thread is about to wait. Returns what is then left of the wait; 0: a signal was handled,
 * the wait is over before it began. */
static NOINLINE uint64_t quiet_moment(enum wait_rule rule, uint64_t wait_ns) {
    uint64_t began = sys_monotonic_ns();
    if (trim_then_tell(rule == RESTARTS, wait_ns)) {
        errno = EINTR;
        return 0;
    }
    uint64_t took = sys_monotonic_ns() - began;
    return wait_ns == FOR_EVER ? FOR_EVER : took < wait_ns ? wait_ns - took : 1;
}

/* ---- timeouts ------------------------------------------------------------------------------------------ */

#define MOST_SECONDS 1000000000 /* a longer wait is one for ever */

/* 0 for what the kernel refuses. */
static uint64_t length(const struct timespec *timeout) {
    if (timeout == NULL || timeout->tv_sec > MOST_SECONDS)
        return FOR_EVER;
    bool valid = timeout->tv_sec >= 0 && timeout->tv_nsec >= 0 && timeout->tv_nsec < SECOND_NS;
    return valid ? (uint64_t)timeout->tv_sec * SECOND_NS + (uint64_t)timeout->tv_nsec : 0;
}

/* The length of a sleep until `due` of a clock. 0 also for what the kernel refuses. */
static uint64_t length_until(clockid_t clock, const struct timespec *due) {
    struct timespec now;
    if (due == NULL || due->tv_nsec < 0 || due->tv_nsec >= SECOND_NS || sys2(SYS_clock_gettime, clock, &now) != 0)
        return 0;
    if (due->tv_sec < now.tv_sec || due->tv_sec - now.tv_sec > MOST_SECONDS)
        return 0;
    long ns = (due->tv_sec - now.tv_sec) * SECOND_NS + due->tv_nsec - now.tv_nsec;
    return ns > 0 ? (uint64_t)ns : 0;
}

static uint64_t length_ms(int timeout) {
    return timeout < 0 ? FOR_EVER : (uint64_t)timeout * 1000000;
}

static struct timespec as_timespec(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = (long)(ns % SECOND_NS)};
}

/* `timeout`, or what is left of it if that is less. */
static const struct timespec *rest_of(const struct timespec *timeout, uint64_t left, struct timespec *rest) {
    if (left == length(timeout))
        return timeout;
    *rest = as_timespec(left);
    return rest;
}

static int as_ms(uint64_t ns) {
    return ns == FOR_EVER ? -1 : (int)((ns + 999999) / 1000000);
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

/* What has events is no wait: they are returned at once. `left` has the length of the wait, and then what is left of it. */
#define WAIT_OR_EVENTS(left, events_now)                                                                               \
    if (left >= LONG_ENOUGH_NS) {                                                                                      \
        int ready = events_now;                                                                                        \
        if (ready != 0)                                                                                                \
            return ready;                                                                                              \
        left = quiet_moment(NEVER_RESTARTS, left);                                                                     \
        if (left == 0)                                                                                                 \
            return -1;                                                                                                 \
    }

EXPORT int poll(struct pollfd *files, nfds_t count, int timeout) {
    poll_call *next = REAL(poll);
    if (likely(!is_time()))
        return next(files, count, timeout);
    uint64_t left = length_ms(timeout);
    WAIT_OR_EVENTS(left, next(files, count, 0))
    return next(files, count, as_ms(left));
}

EXPORT int ppoll(struct pollfd *files, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    const struct timespec none = {0, 0};
    ppoll_call *next = REAL(ppoll);
    if (unlikely(next == NULL))
        return not_there();
    if (likely(!is_time()))
        return next(files, count, timeout, mask);
    uint64_t left = length(timeout);
    WAIT_OR_EVENTS(left, next(files, count, &none, mask))
    struct timespec rest;
    return next(files, count, rest_of(timeout, left, &rest), mask);
}

EXPORT int epoll_wait(int set, struct epoll_event *events, int room, int timeout) {
    epoll_wait_call *next = REAL(epoll_wait);
    if (likely(!is_time()))
        return next(set, events, room, timeout);
    uint64_t left = length_ms(timeout);
    WAIT_OR_EVENTS(left, next(set, events, room, 0))
    return next(set, events, room, as_ms(left));
}

EXPORT int epoll_pwait(int set, struct epoll_event *events, int room, int timeout, const sigset_t *mask) {
    epoll_pwait_call *next = REAL(epoll_pwait);
    if (unlikely(next == NULL))
        return not_there();
    if (likely(!is_time()))
        return next(set, events, room, timeout, mask);
    uint64_t left = length_ms(timeout);
    WAIT_OR_EVENTS(left, next(set, events, room, 0, mask))
    return next(set, events, room, as_ms(left), mask);
}

EXPORT int epoll_pwait2(int set, struct epoll_event *events, int room, const struct timespec *timeout, const sigset_t *mask) {
    const struct timespec none = {0, 0};
    epoll_pwait2_call *next = REAL(epoll_pwait2); /* since 2.35 */
    if (unlikely(next == NULL))
        return not_there();
    if (likely(!is_time()))
        return next(set, events, room, timeout, mask);
    uint64_t left = length(timeout);
    WAIT_OR_EVENTS(left, next(set, events, room, &none, mask))
    struct timespec rest;
    return next(set, events, room, rest_of(timeout, left, &rest), mask);
}

/* select writes into its sets, so copies are asked. Also true for sets larger than the copies, and for wrong ones. */
static bool has_ready(int end, fd_set *in, fd_set *out, fd_set *other) {
    struct timespec none = {0, 0};
    fd_set *given[] = {in, out, other}, copies[3], *asked[3] = {NULL};
    if (end < 0 || end > FD_SETSIZE)
        return true;
    for (int i = 0; i < 3; i++) {
        if (given[i] == NULL)
            continue;
        asked[i] = &copies[i];
        for (int word = 0; word * NFDBITS < end; word++)
            copies[i].fds_bits[word] = given[i]->fds_bits[word];
    }
    return sys6(SYS_pselect6, end, (long)asked[0], (long)asked[1], (long)asked[2], (long)&none, 0) != 0;
}

EXPORT int select(int end, fd_set *in, fd_set *out, fd_set *other, struct timeval *timeout) {
    select_call *next = REAL(select);
    if (likely(!is_time()))
        return next(end, in, out, other, timeout);
    struct timespec given = {0, 0};
    if (timeout != NULL)
        given = (struct timespec){timeout->tv_sec, timeout->tv_usec * 1000};
    uint64_t left = length(timeout != NULL ? &given : NULL);
    if (left < LONG_ENOUGH_NS || has_ready(end, in, out, other))
        return next(end, in, out, other, timeout);
    left = quiet_moment(NEVER_RESTARTS, left);
    if (left == 0)
        return -1;
    given = as_timespec(left);
    if (timeout != NULL) /* the kernel writes into it too */
        *timeout = (struct timeval){given.tv_sec, given.tv_nsec / 1000};
    return next(end, in, out, other, timeout);
}

EXPORT int pselect(int end, fd_set *in, fd_set *out, fd_set *other, const struct timespec *timeout, const sigset_t *mask) {
    pselect_call *next = REAL(pselect);
    uint64_t left = likely(!is_time()) ? 0 : length(timeout);
    if (left < LONG_ENOUGH_NS || has_ready(end, in, out, other))
        return next(end, in, out, other, timeout, mask);
    left = quiet_moment(NEVER_RESTARTS, left);
    struct timespec rest;
    return left != 0 ? next(end, in, out, other, rest_of(timeout, left, &rest), mask) : -1;
}

/* Whether accept returns at once: a file that does not block does. */
static bool accepts_at_once(int file) {
    const struct timespec none = {0, 0};
    struct pollfd listening = {.fd = file, .events = POLLIN};
    long flags = sys3(SYS_fcntl, file, F_GETFL, 0);
    return flags < 0 || (flags & O_NONBLOCK) != 0 || sys6(SYS_ppoll, (long)&listening, 1, (long)&none, 0, 0, 0) != 0;
}

EXPORT int accept(int file, struct sockaddr *peer, socklen_t *length) {
    accept_call *next = REAL(accept);
    if (unlikely(is_time()) && !accepts_at_once(file) && quiet_moment(RESTARTS, FOR_EVER) == 0)
        return -1;
    return next(file, peer, length);
}

EXPORT int accept4(int file, struct sockaddr *peer, socklen_t *length, int flags) {
    accept4_call *next = REAL(accept4);
    if (unlikely(next == NULL))
        return not_there();
    if (unlikely(is_time()) && !accepts_at_once(file) && quiet_moment(RESTARTS, FOR_EVER) == 0)
        return -1;
    return next(file, peer, length, flags);
}

/* A sleep that ends before it began leaves all of it. */
EXPORT int nanosleep(const struct timespec *wanted, struct timespec *left) {
    nanosleep_call *next = REAL(nanosleep);
    uint64_t ns = likely(!is_time()) ? 0 : length(wanted);
    if (ns < LONG_ENOUGH_NS || ns == FOR_EVER)
        return next(wanted, left);
    ns = quiet_moment(NEVER_RESTARTS, ns);
    struct timespec rest;
    if (ns != 0)
        return next(rest_of(wanted, ns, &rest), left);
    if (left != NULL)
        *left = *wanted;
    return -1;
}

/* A sleep until a time of a clock (TIMER_ABSTIME) ends at that time, however long a trim took, and never says what is
 * left of it. Python sleeps so. */
EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left) {
    clock_nanosleep_call *next = REAL(clock_nanosleep);
    if (unlikely(next == NULL))
        return ENOSYS;
    bool until = flags == TIMER_ABSTIME;
    uint64_t ns = 0;
    if ((flags == 0 || until) && unlikely(is_time()))
        ns = until ? length_until(clock, wanted) : length(wanted);
    if (ns < LONG_ENOUGH_NS || ns == FOR_EVER)
        return next(clock, flags, wanted, left);
    int kept = errno;
    ns = quiet_moment(NEVER_RESTARTS, ns);
    errno = kept;
    struct timespec rest;
    if (ns != 0)
        return next(clock, flags, until ? wanted : rest_of(wanted, ns, &rest), left);
    if (left != NULL && !until)
        *left = *wanted;
    return EINTR;
}
