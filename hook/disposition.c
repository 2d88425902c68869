// SPDX-License-Identifier: Apache-2.0
#include "disposition.h"

#include <errno.h>
#include <signal.h>

#include "fatal.h"
#include "libc.h"
#include "page.h"
#include "sys.h"

typedef void handler_call(int signal);
typedef int sigaction_call(int signal, const struct sigaction *action, struct sigaction *before);
typedef handler_call *signal_call(int signal, handler_call *handler);

/* ---- what we forward to -------------------------------------------------------------------------------- */

/* The next definitions need not be libc's: libjsig, for one, has its own. */
static sigaction_call *next_sigaction;
static signal_call *next_signal;

/* Another library has definitions of its own. It must never see our handler, so we do not set it again. */
static bool others_watch;

static void find_next(void) {
    int kept = errno;
    sigaction_call *action = libc_sigaction;
    signal_call *set = libc_signal;
    if (libc_dlsym != NULL) {
        action = (sigaction_call *)libc_dlsym(LIBC_RTLD_NEXT, "sigaction");
        set = (signal_call *)libc_dlsym(LIBC_RTLD_NEXT, "signal");
    }
    set_relaxed(others_watch, action != libc_sigaction || set != libc_signal);
    set_relaxed(next_signal, set);
    __atomic_store_n(&next_sigaction, action, __ATOMIC_RELEASE); /* last: that it is set means that all are found */
    errno = kept;
}

void disposition_prepare(void) {
    if (unlikely(__atomic_load_n(&next_sigaction, __ATOMIC_ACQUIRE) == NULL))
        find_next();
}

/* What the calls below are made of, as libc makes them of sigaction. */
static handler_call *set_handler(int signal, handler_call *handler, int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, before;
    return sigaction(signal, &action, &before) == 0 ? before.sa_handler : SIG_ERR;
}

/* ---- sigaction and signal ------------------------------------------------------------------------------ */

/* Whether our handler is to be set where the program asks for `handler`. In a child it would note nothing. */
static bool sets_ours(const void *handler) {
    return (handler == (const void *)SIG_DFL || fatal_is_handler(handler)) && !get_relaxed(others_watch) && page_is_ours();
}

static void before_change(int signal) {
    if (get_relaxed(others_watch))
        fatal_withdraw(signal);
}

EXPORT int sigaction(int signal, const struct sigaction *action, struct sigaction *before) {
    if (unlikely(!libc_is_reached()))
        return fatal_set_by_kernel(signal, action, before);
    disposition_prepare();
    if (!fatal_watches(signal))
        return next_sigaction(signal, action, before);
    if (action != NULL && sets_ours((const void *)action->sa_sigaction)) {
        fatal_set_default(signal, action, before);
        return 0;
    }
    if (action != NULL)
        before_change(signal);
    int answer = next_sigaction(signal, action, before);
    if (answer == 0 && before != NULL && fatal_is_handler((const void *)before->sa_sigaction))
        fatal_show_default(signal, before);
    return answer;
}

/* signal(SIG_DFL) as libc does it, but without what siginterrupt asked for, which only libc knows. */
static handler_call *set_default(int signal) {
    struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_RESTART}, before;
    const uint64_t mask = UINT64_C(1) << (signal - 1);
    __builtin_memcpy(&action.sa_mask, &mask, sizeof mask);
    fatal_set_default(signal, &action, &before);
    return before.sa_handler;
}

EXPORT handler_call *signal(int signal, handler_call *handler) {
    if (unlikely(!libc_is_reached()))
        return set_handler(signal, handler, SA_RESTART);
    disposition_prepare();
    if (!fatal_watches(signal))
        return next_signal(signal, handler);
    if (sets_ours((const void *)handler))
        return set_default(signal);
    before_change(signal);
    handler_call *before = next_signal(signal, handler);
    return fatal_is_handler((const void *)before) ? SIG_DFL : before;
}

EXPORT handler_call *bsd_signal(int number, handler_call *handler) {
    return signal(number, handler);
}

/* ---- older calls, made of sigaction as libc makes them ------------------------------------------------- */

#define FLAG_INTERRUPT 0x20000000 /* SA_INTERRUPT: without a meaning to Linux, but a program may read it */

/* What signal() is under -std=c99 and the like. */
EXPORT handler_call *__sysv_signal(int signal, handler_call *handler) {
    if (handler == SIG_ERR) {
        errno = EINVAL;
        return SIG_ERR;
    }
    return set_handler(signal, handler, (int)SA_RESETHAND | SA_NODEFER | FLAG_INTERRUPT);
}

EXPORT handler_call *sysv_signal(int signal, handler_call *handler) {
    return __sysv_signal(signal, handler);
}

EXPORT int sigignore(int signal) {
    return set_handler(signal, SIG_IGN, 0) == SIG_ERR ? -1 : 0;
}

#define HOLD ((handler_call *)2) /* SIG_HOLD: block the signal */

/* Blocks or unblocks `signal`, a valid one; whether it was blocked. */
static bool was_blocked(int how, int signal) {
    const uint64_t mask = UINT64_C(1) << (signal - 1);
    uint64_t before = 0;
    sys4(SYS_rt_sigprocmask, how, &mask, &before, sizeof mask);
    return (before & mask) != 0;
}

static handler_call *hold(int signal) {
    struct sigaction now;
    if (sigaction(signal, NULL, &now) != 0)
        return SIG_ERR;
    return was_blocked(SIG_BLOCK, signal) ? HOLD : now.sa_handler;
}

EXPORT handler_call *sigset(int signal, handler_call *handler) {
    if (handler == HOLD)
        return hold(signal);
    handler_call *before = set_handler(signal, handler, 0);
    if (before == SIG_ERR)
        return SIG_ERR;
    return was_blocked(SIG_UNBLOCK, signal) ? HOLD : before;
}
