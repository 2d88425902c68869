// SPDX-License-Identifier: Apache-2.0
//
// fork_order.h for an allocator library. FORK_ORDER_WRAPS is a function of the library that does the work, where it
// is not this one.
#ifndef IMAS_FAMILY_FORK_H
#define IMAS_FAMILY_FORK_H

#include <dlfcn.h>
#include <sys/single_threaded.h>

#include "fork_order.h"

static fork_order_call *fork_order_find(void)
{
    return __extension__(fork_order_call *)dlsym(RTLD_NEXT, "__register_atfork");
}

#ifdef FORK_ORDER_WRAPS
static int fork_order_is_own(void *object)
{
    Dl_info registering, wrapped;
    if (object == &__dso_handle)
        return 1;
    return dladdr(object, &registering) != 0 && dladdr((void *)FORK_ORDER_WRAPS, &wrapped) != 0 &&
        registering.dli_fbase == wrapped.dli_fbase;
}
#else
static int fork_order_is_own(void *object)
{
    return object == &__dso_handle;
}
#endif

// glibc takes no lock of its malloc where there is one thread. A program that forks in a signal handler, which may
// have interrupted malloc, then lives: the lock that is held is the forking thread's, which releases it in both
// processes.
static int fork_order_rests(void)
{
    return __libc_single_threaded;
}

#endif
