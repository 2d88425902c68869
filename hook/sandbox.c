// SPDX-License-Identifier: Apache-2.0
#include "sandbox.h"

#include <errno.h>

#include "children.h"
#include "next_found.h"
#include "sys.h"

#define PRCTL_SET_SECCOMP 22
#define PRCTL_SET_TSC 26

bool sandbox_flag;

static bool enters_sandbox(long option) {
    return option == PRCTL_SET_SECCOMP || option == PRCTL_SET_TSC;
}

static long answer(long value) {
    if (value < 0 && value > -4096) {
        errno = (int)-value;
        return -1;
    }
    return value;
}

typedef int prctl_call(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
typedef long syscall_call(long number, long a, long b, long c, long d, long e, long f);

/* Both are handed on to the next definition: a library that fakes the clock, or watches the process, may have its own. The C
 * prototypes are variadic; on both architectures the arguments arrive in the same registers. */
EXPORT int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
    static prctl_call *kept;
    prctl_call *next = NEXT_LISTED(kept, "prctl");
    if (enters_sandbox(option))
        set_relaxed(sandbox_flag, true);
    if (likely(next != NULL))
        return next(option, a, b, c, d);
    return (int)answer(sys6(SYS_prctl, option, (long)a, (long)b, (long)c, (long)d, 0));
}

EXPORT long syscall(long number, long a, long b, long c, long d, long e, long f) {
    static syscall_call *kept;
    syscall_call *next = NEXT_LISTED(kept, "syscall");
    if (number == SYS_seccomp || (number == SYS_prctl && enters_sandbox(a)))
        set_relaxed(sandbox_flag, true);
#ifndef IMAS_RECORDER
    if (unlikely(number == SYS_execve)) /* ours: the own file may be started again (again.h) */
        return execve((const char *)a, (char *const *)b, (char *const *)c);
#endif
    return likely(next != NULL) ? next(number, a, b, c, d, e, f) : answer(sys6(number, a, b, c, d, e, f));
}
