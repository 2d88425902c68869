// SPDX-License-Identifier: Apache-2.0
/*
 * dies_early.c - an allocator library (glibc's own malloc by another way) that dies in its constructor,
 * before libimas.so or the guard can note anything. In imas itself, which probes whether it loads, and in the
 * programs of the contract, by which imas examines it, it behaves.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void __libc_free(void *block);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);

const char imas_allocator_name[] = "dies-early 1";

void *malloc(size_t size) {
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

__attribute__((constructor)) static void die(void) {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    const char *name = strrchr(path, '/');
    if (name == NULL || strcmp(name, "/imas") == 0 || strstr(path, "/contract/") != NULL)
        return;
    signal(SIGSEGV, SIG_DFL);
    volatile int *nowhere = NULL;
    *nowhere = 1;
}
