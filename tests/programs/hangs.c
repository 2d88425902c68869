// SPDX-License-Identifier: Apache-2.0
/*
 * hangs.c - an allocator library (glibc's own malloc by another way) whose malloc waits at the 1000th call
 * for a lock that nobody gives back. In imas itself, which probes whether it loads, and in the programs of
 * the contract, by which imas examines it, it behaves.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void __libc_free(void *block);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);

const char imas_allocator_name[] = "hangs 1";

static atomic_int calls, lock = 1;

static int behaves(void) {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    const char *name = strrchr(path, '/');
    return name == NULL || strcmp(name, "/imas") == 0 || strstr(path, "/contract/") != NULL;
}

void *malloc(size_t size) {
    if (atomic_fetch_add(&calls, 1) == 999 && !behaves()) {
        while (atomic_load(&lock) == 1)
            syscall(SYS_futex, &lock, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
    }
    return __libc_malloc(size);
}
void free(void *block) {
    __libc_free(block);
}
void *calloc(size_t count, size_t size) {
    return __libc_calloc(count, size);
}
void *realloc(void *block, size_t size) {
    return __libc_realloc(block, size);
}

/* The rest is libc's, as it is. */
#define AS_IT_IS(type, name, parameters, arguments)                          \
    type name parameters {                                                   \
        return ((type(*) parameters)dlsym(RTLD_NEXT, #name)) arguments;      \
    }
AS_IT_IS(void *, memalign, (size_t alignment, size_t size), (alignment, size))
AS_IT_IS(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size))
AS_IT_IS(void *, valloc, (size_t size), (size))
AS_IT_IS(void *, pvalloc, (size_t size), (size))
AS_IT_IS(int, posix_memalign, (void **block, size_t alignment, size_t size), (block, alignment, size))
AS_IT_IS(size_t, malloc_usable_size, (void *block), (block))
