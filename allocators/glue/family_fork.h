// SPDX-License-Identifier: Apache-2.0
//
// fork_order.h for an allocator library. FORK_ORDER_WRAPS is a function of the library that does the work, where it
// is not this one.
#ifndef IMAS_FAMILY_FORK_H
#define IMAS_FAMILY_FORK_H

#include <dlfcn.h>

#include "fork_order.h"

static fork_order_call *fork_order_find(void)
{
    return __extension__(fork_order_call *)dlsym(RTLD_NEXT, "__register_atfork");
}

#ifdef FORK_ORDER_WRAPS
#include <link.h>

// Where the wrapped library lies, from its first segment to its last. Found once, as fork_order_next finds libc's
// function: afterwards a registration waits for no lock of the loader.
static uintptr_t fork_order_wrapped_begin, fork_order_wrapped_end;

static int fork_order_look_at(struct dl_phdr_info *object, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        uintptr_t at = object->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD)
            continue;
        begin = at < begin ? at : begin;
        end = at + segment->p_memsz > end ? at + segment->p_memsz : end;
    }
    if ((uintptr_t)FORK_ORDER_WRAPS - begin >= end - begin)
        return 0;
    __atomic_store_n(&fork_order_wrapped_begin, begin, __ATOMIC_RELAXED);
    __atomic_store_n(&fork_order_wrapped_end, end, __ATOMIC_RELEASE);
    return 1;
}

static int fork_order_is_own(void *object)
{
    if (object == &__dso_handle)
        return 1;
    if (__atomic_load_n(&fork_order_wrapped_end, __ATOMIC_ACQUIRE) == 0)
        dl_iterate_phdr(fork_order_look_at, NULL);
    return (uintptr_t)object - fork_order_wrapped_begin < fork_order_wrapped_end - fork_order_wrapped_begin;
}
#else
static int fork_order_is_own(void *object)
{
    return object == &__dso_handle;
}
#endif

// libc's __libc_single_threaded; NULL where libc is older than 2.32, which has none.
static const char *fork_order_is_single;

__attribute__((constructor)) static void fork_order_resolve(void)
{
    fork_order_is_own(NULL);
    fork_order_start();
    fork_order_is_single = dlsym(RTLD_DEFAULT, "__libc_single_threaded");
}

// glibc takes no lock of its malloc where there is one thread. A program that forks in a signal handler, which may
// have interrupted malloc, then lives: the lock that is held is the forking thread's, which releases it in both
// processes.
static int fork_order_rests(void)
{
    return fork_order_is_single != NULL && *fork_order_is_single;
}

#endif
