// SPDX-License-Identifier: Apache-2.0
//
// The functions that glibc 2.32 and 2.34 moved into libc, bound to the versions that they had in libpthread and libdl.
// Linked into each allocator that we build. A library that asks for GLIBC_2.34 ends the program that is loaded by an
// older libc, and a child may bring one in a folder of its own.
//
// Each is chosen once, as the library is loaded, so a call costs what it costs without this file. The choice is libc's
// function. A program of an older libc may have no libpthread and no libdl: it has one thread and opens no library.
// It gets the replacements below. If it has libdl it may open a library that brings libpthread, and then have threads: locks
// lock for these too, but the values of keys are not theirs (tbb, nedmalloc), and nothing is given back when they end.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "kernel_call.h"

#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#define FIRST_SETNAME "GLIBC_2.12"
#else
#define FIRST "GLIBC_2.17"
#define FIRST_SETNAME FIRST
#endif

#define OLD_LIBC(name, version, without)                                            \
    extern __attribute__((weak)) __typeof__(name) old_##name;                       \
    __asm__(".symver old_" #name ", " #name "@" version);                           \
    static __typeof__(name) *choose_##name(void)                                    \
    {                                                                               \
        return old_##name != NULL ? old_##name : without;                           \
    }                                                                               \
    __typeof__(name) name __attribute__((visibility("hidden"), ifunc("choose_" #name)));

extern int __pthread_key_create(pthread_key_t *key, void (*end)(void *value));

// ---- one thread: a key's value is that thread's, and no thread ends before the process does

enum { KEYS = 16 };
static void *values[KEYS];
static pthread_key_t made;

static int key_create(pthread_key_t *key, void (*end)(void *value))
{
    (void)end;
    if (made == KEYS)
        return EAGAIN;
    *key = made++;
    return 0;
}

static int key_delete(pthread_key_t key)
{
    values[key % KEYS] = NULL;
    return 0;
}

static int setspecific(pthread_key_t key, const void *value)
{
    values[key % KEYS] = (void *)(uintptr_t)value;
    return 0;
}

static void *getspecific(pthread_key_t key)
{
    return values[key % KEYS];
}

static int once(pthread_once_t *control, void (*call)(void))
{
    if (*control == PTHREAD_ONCE_INIT) {
        *control = !PTHREAD_ONCE_INIT;
        call();
    }
    return 0;
}

// libc has this one itself, and it begins to lock when libpthread is loaded.
static int trylock(pthread_mutex_t *mutex)
{
    return pthread_mutex_lock(mutex);
}

static int attribute(pthread_mutexattr_t *attributes)
{
    *attributes = (pthread_mutexattr_t){ 0 }; // the usual kind
    return 0;
}

static int attribute_type(pthread_mutexattr_t *attributes, int type)
{
    (void)attributes;
    (void)type;
    return 0;
}

static int create(pthread_t *thread, const pthread_attr_t *attributes, void *(*begin)(void *), void *argument)
{
    (void)thread;
    (void)attributes;
    (void)begin;
    (void)argument;
    return EAGAIN;
}

static int join(pthread_t thread, void **result)
{
    (void)thread;
    (void)result;
    return ESRCH;
}

static int set_name(pthread_t thread, const char *name)
{
    (void)thread;
    (void)name;
    return 0;
}

static int mask(int how, const sigset_t *wanted, sigset_t *before)
{
    return (int)-kernel_call(SYS_rt_sigprocmask, how, (long)wanted, (long)before, sizeof(uint64_t), 0, 0);
}

// ---- no library is opened

static void *find(void *restrict handle, const char *restrict name)
{
    (void)handle;
    (void)name;
    return NULL;
}

static void *open_none(const char *file, int mode)
{
    (void)file;
    (void)mode;
    return NULL;
}

#ifndef EXPORTS_pthread_key_create // wrapped_keys.h defines it
OLD_LIBC(pthread_key_create, FIRST, key_create)
#endif
OLD_LIBC(__pthread_key_create, FIRST, key_create)
OLD_LIBC(pthread_key_delete, FIRST, key_delete)
OLD_LIBC(pthread_setspecific, FIRST, setspecific)
OLD_LIBC(pthread_getspecific, FIRST, getspecific)
OLD_LIBC(pthread_once, FIRST, once)
OLD_LIBC(pthread_mutex_trylock, FIRST, trylock)
OLD_LIBC(pthread_mutexattr_init, FIRST, attribute)
OLD_LIBC(pthread_mutexattr_destroy, FIRST, attribute)
OLD_LIBC(pthread_mutexattr_settype, FIRST, attribute_type)
OLD_LIBC(pthread_create, FIRST, create)
OLD_LIBC(pthread_join, FIRST, join)
OLD_LIBC(pthread_setname_np, FIRST_SETNAME, set_name)
OLD_LIBC(pthread_sigmask, FIRST, mask)
OLD_LIBC(dlsym, FIRST, find)
OLD_LIBC(dlopen, FIRST, open_none)
