// SPDX-License-Identifier: Apache-2.0
/*
 * libc.h - the few functions of libc that injected code calls, bound to the oldest symbol versions.
 *
 * A version that the running libc does not have makes ld.so refuse the program, so nothing here may be newer
 * than GLIBC_2.16. dlsym, dladdr1 and dlerror moved into libc in 2.34 and were compatible symbols of libdl
 * before; they are weak, so that an older libc without libdl loads us all the same (they are then NULL, and
 * we do nothing).
 */
#ifndef IMAS_HOOK_LIBC_H
#define IMAS_HOOK_LIBC_H

#include <link.h>
#include <stddef.h>

#if defined(__x86_64__)
#define LIBC_OLDEST "GLIBC_2.2.5"
#define LIBC_DLADDR1 "GLIBC_2.3.3"
#define LIBC_QUICK_EXIT "GLIBC_2.10"
#define LIBC_GETAUXVAL "GLIBC_2.16"
#elif defined(__aarch64__)
#define LIBC_OLDEST "GLIBC_2.17"
#define LIBC_DLADDR1 LIBC_OLDEST
#define LIBC_QUICK_EXIT LIBC_OLDEST
#define LIBC_GETAUXVAL LIBC_OLDEST
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

/* Each is libc's function of the name without `libc_`, as in its manual page, unless a comment says
 * otherwise. */
__attribute__((weak)) extern void *libc_dlsym(void *handle, const char *name);
__attribute__((weak)) extern int libc_dladdr1(const void *address, struct libc_symbol_info *info, void **extra, int flags);
__attribute__((weak)) extern char *libc_dlerror(void);
__attribute__((weak)) extern unsigned long libc_getauxval(unsigned long type);
__attribute__((weak)) extern int libc_on_exit(void (*call)(int status, void *argument), void *argument);
/* atexit's like for quick_exit, of the object whose __dso_handle is given (Linux Standard Base). */
__attribute__((weak)) extern int libc_at_quick_exit(void (*call)(void *object), void *object);
/* gnu_get_libc_version: not weak, every glibc has it. */
extern const char *libc_version(void);
/* sigaction and signal, by their other names: we define those two ourselves. Every glibc has them. */
struct sigaction;
extern int libc_sigaction(int signal, const struct sigaction *action, struct sigaction *before);
extern void (*libc_signal(int signal, void (*handler)(int)))(int);

/* ld.so's list of loaded objects (link.h); weak, so that ld.so itself does not become a library we need. */
#pragma weak _r_debug

__asm__(".symver libc_dlsym, dlsym@" LIBC_OLDEST);
__asm__(".symver libc_dladdr1, dladdr1@" LIBC_DLADDR1);
__asm__(".symver libc_dlerror, dlerror@" LIBC_OLDEST);
__asm__(".symver libc_getauxval, getauxval@" LIBC_GETAUXVAL);
__asm__(".symver libc_on_exit, on_exit@" LIBC_OLDEST);
__asm__(".symver libc_at_quick_exit, __cxa_at_quick_exit@" LIBC_QUICK_EXIT);
__asm__(".symver libc_version, gnu_get_libc_version@" LIBC_OLDEST);
__asm__(".symver libc_sigaction, __sigaction@" LIBC_OLDEST);
__asm__(".symver libc_signal, ssignal@" LIBC_OLDEST);

#endif
