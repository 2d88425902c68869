// SPDX-License-Identifier: Apache-2.0
/*
 * libc_malloc.h - glibc's own malloc by another way, for allocator libraries that misbehave on purpose, and
 * where they must not: in imas itself, which probes whether they load, and in the programs of the contract,
 * by which imas examines them.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void __libc_free(void *block);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);

static inline bool is_examined(void) {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    const char *name = strrchr(path, '/');
    return name == NULL || strcmp(name, "/imas") == 0 || strstr(path, "/contract/") != NULL;
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
