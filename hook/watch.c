// SPDX-License-Identifier: Apache-2.0
/*
 * watch.c - libimas-giveback.so: preloaded before the guard or the hook for a candidate that gives free pages back.
 *
 * It defines no malloc. It sees by the functions below when the process gets threads, is back to one, or is about to
 * do what a process of several threads may not do, and starts and ends the pacer accordingly. Its constructor runs
 * after that of the guard or the hook, which may have started the program clean.
 */
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <time.h>

#include "../abi/imas_abi.h"
#include "environment.h"
#include "give_back.h"
#include "give_back_settings.h"
#include "libc.h"
#include "next_found.h"
#include "own_process.h"
#include "pacer.h"
#include "quiet.h"
#include "sys.h"

typedef int join_call(pthread_t thread, void **result);
typedef int timed_join_call(pthread_t thread, void **result, const struct timespec *until);
typedef int clock_join_call(pthread_t thread, void **result, clockid_t clock, const struct timespec *until);
typedef void exit_call(void *result);
typedef int unshare_call(int flags);
typedef int setns_call(int file, int type);
typedef int identity_call(long a, long b, long c);
typedef int prctl_call(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
typedef long syscall_call(long number, long a, long b, long c, long d, long e, long f);

static struct {
    pthread_create_call *pthread_create;
    join_call *pthread_join, *pthread_tryjoin_np;
    timed_join_call *pthread_timedjoin_np;
    clock_join_call *pthread_clockjoin_np;
    exit_call *pthread_exit;
    unshare_call *unshare;
    setns_call *setns;
    prctl_call *prctl;
    syscall_call *syscall;
    identity_call *setuid, *setgid, *seteuid, *setegid, *setreuid, *setregid, *setresuid, *setresgid, *setgroups, *initgroups;
} real;

#define REAL(name) NEXT_FOUND(real.name, #name)

static void prepare(void) {
    REAL(pthread_create), REAL(pthread_join), REAL(pthread_tryjoin_np), REAL(pthread_timedjoin_np);
    REAL(pthread_clockjoin_np), REAL(pthread_exit), REAL(unshare), REAL(setns), REAL(prctl), REAL(syscall);
    REAL(setuid), REAL(setgid), REAL(seteuid), REAL(setegid), REAL(setreuid), REAL(setregid), REAL(setresuid);
    REAL(setresgid), REAL(setgroups), REAL(initgroups);
    quiet_prepare();
}

static int not_there(void) {
    errno = ENOSYS;
    return -1;
}

/* ---- threads ------------------------------------------------------------------------------------------- */

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    pthread_create_call *next = REAL(pthread_create);
    if (unlikely(next == NULL))
        return ENOSYS;
    int error = next(thread, attributes, run, argument);
    if (error == 0)
        pacer_start(next);
    return error;
}

/* A program that looks, after its last thread, whether it has one thread only, finds one. */
static int joined(int error) {
    if (error == 0)
        pacer_end_if_alone();
    return error;
}

EXPORT int pthread_join(pthread_t thread, void **result) {
    join_call *next = REAL(pthread_join);
    return likely(next != NULL) ? joined(next(thread, result)) : ENOSYS;
}

EXPORT int pthread_tryjoin_np(pthread_t thread, void **result) {
    join_call *next = REAL(pthread_tryjoin_np);
    return likely(next != NULL) ? joined(next(thread, result)) : ENOSYS;
}

EXPORT int pthread_timedjoin_np(pthread_t thread, void **result, const struct timespec *until) {
    timed_join_call *next = REAL(pthread_timedjoin_np);
    return likely(next != NULL) ? joined(next(thread, result, until)) : ENOSYS;
}

EXPORT int pthread_clockjoin_np(pthread_t thread, void **result, clockid_t clock, const struct timespec *until) {
    clock_join_call *next = REAL(pthread_clockjoin_np); /* since 2.31 */
    return likely(next != NULL) ? joined(next(thread, result, clock, until)) : ENOSYS;
}

static pthread_t main_thread;

/* The process ends with its last thread: after the main thread has ended, that must be one of the program's. */
EXPORT __attribute__((noreturn)) void pthread_exit(void *result) {
    exit_call *next = REAL(pthread_exit);
    if (pthread_equal(pthread_self(), main_thread)) {
        give_back_give_up();
        pacer_end();
    }
    next(result);
    __builtin_unreachable();
}

/* ---- what the pacer may not outlive -------------------------------------------------------------------- */

static void come_back(void) {
    int kept = errno;
    pthread_create_call *create = REAL(pthread_create);
    if (create != NULL)
        pacer_start(create);
    errno = kept;
}

/* The pacer is no reason for a call to fail that a process of several threads may not make: it ends before, and comes back
 * after. It stays beside other threads of the program: the kernel then answers the same without it. But from namespaces it
 * goes with the caller. */
static void make_way(bool leaves_namespace) {
    if (leaves_namespace)
        pacer_end();
    else
        pacer_end_if_alone();
}

#define SHARED_ONLY (CLONE_FS | CLONE_FILES | CLONE_SYSVSEM)

static bool leaves_namespace(long flags) {
    return (flags & ~(long)SHARED_ONLY) != 0;
}

EXPORT int unshare(int flags) {
    unshare_call *next = REAL(unshare);
    if (unlikely(next == NULL))
        return not_there();
    make_way(leaves_namespace(flags));
    int answer = next(flags);
    come_back();
    return answer;
}

EXPORT int setns(int file, int type) {
    setns_call *next = REAL(setns);
    if (unlikely(next == NULL))
        return not_there();
    make_way(true);
    int answer = next(file, type);
    come_back();
    return answer;
}

/* For good, in the end: a program that changes its user for each request would start a thread for each. */
#define MOST_RETURNS 16

/* libc has all threads take the new user or group on, and aborts where one may not. The caller starts the pacer anew, so it
 * has what the caller has. */
static int change_identity(identity_call *next, long a, long b, long c) {
    static int returns;
    if (unlikely(next == NULL))
        return not_there();
    bool ran = pacer_runs();
    pacer_end();
    int answer = next(a, b, c);
    if (ran && add_relaxed(returns, 1) < MOST_RETURNS)
        come_back();
    return answer;
}

/* The C prototypes have one to three arguments; on both architectures they arrive in the same registers. */
#define CHANGES_IDENTITY(name)                                                                                         \
    EXPORT int name(long a, long b, long c) {                                                                          \
        return change_identity(REAL(name), a, b, c);                                                                   \
    }

CHANGES_IDENTITY(setuid)
CHANGES_IDENTITY(setgid)
CHANGES_IDENTITY(seteuid)
CHANGES_IDENTITY(setegid)
CHANGES_IDENTITY(setreuid)
CHANGES_IDENTITY(setregid)
CHANGES_IDENTITY(setresuid)
CHANGES_IDENTITY(setresgid)
CHANGES_IDENTITY(setgroups)
CHANGES_IDENTITY(initgroups)

/* ---- sandboxes ----------------------------------------------------------------------------------------- */

#define PRCTL_SET_SECCOMP 22
#define PRCTL_SET_TSC 26
#define SECCOMP_SET_FILTER 1 /* 0 sets the strict one; what is above asks only */

static bool enters_sandbox(long option) {
    return option == PRCTL_SET_SECCOMP || option == PRCTL_SET_TSC;
}

/* From here on a system call of ours may be the end of the process. */
static void leave_for_good(void) {
    give_back_give_up();
    pacer_end();
}

EXPORT int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
    prctl_call *next = REAL(prctl);
    if (enters_sandbox(option))
        leave_for_good();
    return likely(next != NULL) ? next(option, a, b, c, d) : not_there();
}

#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif
#ifndef SYS_lsm_set_self_attr
#define SYS_lsm_set_self_attr 460
#endif

/* For the calling thread alone, where libc's functions are for all. A server of files does it for each request. */
static bool is_own_identity(long number) {
    static const short numbers[] = {SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setgroups};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i] == number)
            return true;
    }
    return false;
}

static bool is_bound(long number) {
    return number == SYS_landlock_restrict_self || number == SYS_lsm_set_self_attr || number == SYS_setns;
}

EXPORT long syscall(long number, long a, long b, long c, long d, long e, long f) {
    syscall_call *next = REAL(syscall);
    if (unlikely(next == NULL))
        return not_there();
    if ((number == SYS_seccomp && a <= SECCOMP_SET_FILTER) || (number == SYS_prctl && enters_sandbox(a)))
        leave_for_good();
    if (is_own_identity(number))
        pacer_end(); /* until the next thread is made */
    bool bound = is_bound(number);
    if (!bound && number != SYS_unshare)
        return next(number, a, b, c, d, e, f);
    make_way(bound || leaves_namespace(a));
    long answer = next(number, a, b, c, d, e, f);
    come_back();
    return answer;
}

/* ---- fork, beginning, end ------------------------------------------------------------------------------ */

extern char **environ;
extern void *__dso_handle __attribute__((visibility("hidden")));
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object);

/* Called by the guard or the hook (give_back_settings.h) in its constructor, which is earlier than ours. */
EXPORT void imas_give_back_settings(char **environment) {
    const char *share = environment_value(environment, IMAS_ENV_GIVE_BACK_SHARE);
    if (share != NULL)
        give_back_set_share(share);
}

/* A program that looks behind fork whether it had threads finds none but its own (Python warns). */
static void before_fork(void) {
    give_back_hold();
    pacer_end_if_alone();
}

static void begin_in_child(void) {
    main_thread = pthread_self();
    pacer_forget();
    give_back_begin();
}

__attribute__((constructor)) static void enter(int argc, char **arguments, char **at_start) {
    (void)argc, (void)arguments;
    prepare();
    main_thread = pthread_self();
    char **environment = environ != NULL ? environ : at_start;
    if (libc_getauxval == NULL || libc_getauxval(AT_SECURE) != 0 || environment_flag(environment, IMAS_ENV_DISABLE))
        return;
    if (__register_atfork(before_fork, give_back_release, begin_in_child, &__dso_handle) != 0)
        return;
    give_back_enter();
    pacer_prepare();
    pthread_create_call *create = REAL(pthread_create);
    if (create != NULL)
        pacer_start(create); /* a library's constructor may have started threads */
}

/* Allocators take themselves apart as the process ends. */
__attribute__((destructor)) static void leave(void) {
    give_back_give_up();
    give_back_hold();
}
