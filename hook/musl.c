// SPDX-License-Identifier: Apache-2.0
/*
 * musl.c - musl/libimas-guard.so: the guard of production for programs of musl. Each allocator of musl/allocators/ is preloaded
 * behind it.
 *
 * musl's loader passes no arguments to constructors and relocates no indirect functions, and its libc has no names
 * of glibc's own: guard.c is refused there. This library asks libc for three names that every libc has, and is compiled
 * without a libc's headers. It restores the environment, so that children start without us, whatever their libc. It
 * keeps no page: how the program ended is not noted. musl has no RTLD_DEEPBIND, and runs fork handlers in an order in which
 * an allocator's own come last where it registers first: what guard.c does about both is not needed.
 */
#include <stddef.h>

#include "environment.h"

extern char **environ;
extern void *malloc(size_t size);
extern void free(void *block);

/* An allocator reads its settings at its first call; afterwards they go. */
static void let_allocator_read_settings(void) {
    void *volatile block = malloc(1);
    free(block);
}

/* A program with raised privileges has no LD_PRELOAD that musl's loader would follow. */
__attribute__((constructor)) static void enter(void) {
    if (environ == NULL)
        return;
    if (environment_has_settings(environ))
        let_allocator_read_settings();
    environment_restore(environ);
}
