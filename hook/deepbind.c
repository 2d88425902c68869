// SPDX-License-Identifier: Apache-2.0
#include "deepbind.h"

#include "libc.h"
#include "sys.h"

typedef void *dlopen_call(const char *file, int mode);
typedef void *dlmopen_call(long space, const char *file, int mode);

static dlopen_call *real_dlopen;
static dlmopen_call *real_dlmopen;
static bool strips = true;

void deepbind_strip(bool strip) {
    strips = strip;
}

/* A libc before 2.34, in a program without libdl, has no dlopen. An allocator may still ask for it. */
static void *no_dlopen(const char *file, int mode) {
    (void)file, (void)mode;
    return NULL;
}

static void *no_dlmopen(long space, const char *file, int mode) {
    (void)space, (void)file, (void)mode;
    return NULL;
}

static NOINLINE dlopen_call *find_dlopen(void) {
    dlopen_call *found = libc_dlsym != NULL ? (dlopen_call *)libc_dlsym(LIBC_RTLD_NEXT, "dlopen") : no_dlopen;
    set_relaxed(real_dlopen, found);
    return found;
}

static NOINLINE dlmopen_call *find_dlmopen(void) {
    dlmopen_call *found = libc_dlsym != NULL ? (dlmopen_call *)libc_dlsym(LIBC_RTLD_NEXT, "dlmopen") : no_dlmopen;
    set_relaxed(real_dlmopen, found);
    return found;
}

/* The call at the end must be a jump: dlopen looks at its return address to find whose RUNPATH to search, and
 * that has to be the caller's and not ours. tests/hook disassembles it. */
EXPORT void *dlopen(const char *file, int mode) {
    dlopen_call *real = get_relaxed(real_dlopen);
    if (unlikely(real == NULL))
        real = find_dlopen();
    if (file != NULL && strips)
        mode &= ~LIBC_RTLD_DEEPBIND;
    return real(file, mode);
}

#define LIBC_LM_ID_BASE 0

/* Another namespace has a libc of its own, whose malloc serves all in it: the flag does no harm there. Also a
 * jump. */
EXPORT void *dlmopen(long space, const char *file, int mode) {
    dlmopen_call *real = get_relaxed(real_dlmopen);
    if (unlikely(real == NULL))
        real = find_dlmopen();
    if (space == LIBC_LM_ID_BASE && file != NULL && strips)
        mode &= ~LIBC_RTLD_DEEPBIND;
    return real(space, file, mode);
}
