// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "served.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "fact.h"

enum { BLOCKS = 300 };

static const char *file_of(void *function)
{
    Dl_info info;
    if (function == NULL || dladdr(function, &info) == 0)
        return "nowhere";
    return info.dli_fname;
}

static void check_file(const char *function, const char *wanted)
{
    const char *file = file_of(dlsym(RTLD_DEFAULT, function));
    fact("served-by", strstr(file, wanted) != NULL, "%s is in %s", function, file);
}

static void check_name(const char *wanted)
{
    const char *name = dlsym(RTLD_DEFAULT, "imas_allocator_name");
    fact("served-by", name != NULL && strcmp(name, wanted) == 0, "imas_allocator_name is %s", name ? name : "not there");
}

// Bytes in use in glibc's heap, even if another library defines mallinfo2.
static size_t glibc_bytes(void)
{
    void *libc = dlopen("libc.so.6", RTLD_NOLOAD | RTLD_NOW);
    struct mallinfo2 (*info)(void) = (struct mallinfo2(*)(void))dlsym(libc, "mallinfo2");
    struct mallinfo2 now = info();
    dlclose(libc);
    return now.uordblks + now.hblkhd;
}

static void check_glibc_idle(void)
{
    static void *blocks[BLOCKS];
    size_t before = glibc_bytes();
    for (int index = 0; index < BLOCKS; index++)
        blocks[index] = opaque(malloc(opaque_size(3000)));
    size_t after = glibc_bytes();
    for (int index = 0; index < BLOCKS; index++)
        free(blocks[index]);
    fact("glibc-idle", after < before + BLOCKS * 1000, "glibc's heap grew by %zu bytes", after - before);
}

void check_served(void)
{
    static const char *const family[] = { "malloc", "calloc", "realloc", "free", "memalign", "posix_memalign",
        "aligned_alloc", "valloc", "pvalloc", "malloc_usable_size", "malloc_trim", "mallinfo2", "mallopt" };
    const char *file = getenv("CONFORMANCE_MALLOC");
    const char *name = getenv("CONFORMANCE_NAME");
    for (size_t index = 0; file != NULL && index < sizeof family / sizeof *family; index++)
        check_file(family[index], file);
    if (name == NULL)
        return;
    check_name(name);
    check_glibc_idle();
}
