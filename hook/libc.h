// SPDX-License-Identifier: Apache-2.0
/*
 * libc.h - the few functions of libc that injected code calls, as libc itself has them.
 *
 * They are looked up in libc's table of symbols. A reference by name would reach the program's function where it, or a
 * library before libc, has one of that name (an on_exit of its own, a getauxval whose table main fills), and a stub of the
 * program where it takes the address of one, which leads nowhere while ld.so relocates us (unfit.c).
 *
 * dlsym, dladdr1 and dlerror moved into libc in 2.34 and were libdl's before. Each function is NULL where the program has
 * no such library, or an older libc has no such function; we then do nothing.
 */
#ifndef IMAS_HOOK_LIBC_H
#define IMAS_HOOK_LIBC_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>

#include "sys.h"

/* What is referred to by name all the same is bound to the oldest version: one that the running libc does not have makes
 * ld.so refuse the program. */
#if defined(__x86_64__)
#define LIBC_OLDEST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define LIBC_OLDEST "GLIBC_2.17"
#else
#error "the hook knows x86-64 and aarch64"
#endif

/* dlfcn.h is not included: its names would bind to the newest versions. */
struct libc_symbol_info { /* layout of Dl_info */
    const char *file;
    void *base;
    const char *symbol;
    void *address;
};
#define LIBC_RTLD_DEFAULT ((void *)0)
#define LIBC_RTLD_NEXT ((void *)-1L)
#define LIBC_RTLD_DEEPBIND 8
#define LIBC_RTLD_DL_SYMENT 1

struct sigaction;

/* In the order of the names in libc.c. */
struct libc {
    void *(*dlsym)(void *handle, const char *name);
    int (*dladdr1)(const void *address, struct libc_symbol_info *info, void **extra, int flags);
    char *(*dlerror)(void);
    int (*iterate)(int (*call)(struct dl_phdr_info *info, size_t size, void *argument), void *argument);
    unsigned long (*getauxval)(unsigned long type);
    int (*on_exit)(void (*call)(int status, void *argument), void *argument);
    /* atexit's like for quick_exit, of the object whose __dso_handle is given (Linux Standard Base) */
    int (*at_quick_exit)(void (*call)(void *object), void *object);
    const char *(*version)(void);
    int (*sigaction)(int signal, const struct sigaction *action, struct sigaction *before);
    void (*(*signal)(int signal, void (*handler)(int)))(int);
};

/* Found at the first call. Before ld.so has relocated us it cannot be called. */
const struct libc *libc_own(void);

#define libc_dlsym (libc_own()->dlsym)
#define libc_dladdr1 (libc_own()->dladdr1)
#define libc_dlerror (libc_own()->dlerror)
#define libc_iterate (libc_own()->iterate)
#define libc_getauxval (libc_own()->getauxval)
#define libc_on_exit (libc_own()->on_exit)
#define libc_at_quick_exit (libc_own()->at_quick_exit)
#define libc_version (libc_own()->version)
/* By other names than sigaction and signal, which we define ourselves. */
#define libc_sigaction (libc_own()->sigaction)
#define libc_signal (libc_own()->signal)

/* Whether ld.so has relocated us. A library that binds at once is relocated before us, and its IFUNC resolvers may call what
 * we define: then nothing of libc can be reached, errno and thread-local variables neither. */
HIDDEN extern void *const volatile libc_relocated;
static inline bool libc_is_reached(void) {
    return libc_relocated == (void *)&libc_relocated;
}

/* ld.so's list of loaded objects (link.h); weak, so that ld.so itself does not become a library we need. */
#pragma weak _r_debug

#endif
