// SPDX-License-Identifier: Apache-2.0
/*
 * interface.c - calls functions of an allocator's own beside malloc, as that allocator's manual allows.
 * JEMALLOC, TCMALLOC and MIMALLOC mix its blocks with malloc's; CONTROLS (jemalloc), SCALABLE (oneTBB) and
 * PRIVATE_* keep them apart. LIBRARY: what a library does; PROGRAM: what calls that library; WEAK: it does
 * without the allocator where it is not loaded.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#if defined JEMALLOC
#ifdef WEAK
#define IF_THERE __attribute__((weak))
#else
#define IF_THERE
#endif
IF_THERE void *mallocx(size_t size, int flags);
IF_THERE size_t sallocx(const void *block, int flags);
IF_THERE void sdallocx(void *block, size_t size, int flags);
static size_t mix(size_t size) {
#ifdef WEAK
    if (mallocx == NULL)
        return size;
#endif
    void *own = mallocx(size, 0), *usual = malloc(size);
    size_t usable = sallocx(usual, 0);
    free(own);
    sdallocx(usual, size, 0);
    return usable;
}
#elif defined TCMALLOC
void *tc_malloc(size_t size);
void tc_free(void *block);
size_t tc_malloc_size(void *block);
static size_t mix(size_t size) {
    void *own = tc_malloc(size), *usual = malloc(size);
    size_t usable = tc_malloc_size(usual);
    free(own);
    tc_free(usual);
    return usable;
}
#elif defined MIMALLOC
void *mi_malloc(size_t size);
void mi_free(void *block);
size_t mi_usable_size(const void *block);
static size_t mix(size_t size) {
    void *own = mi_malloc(size), *usual = malloc(size);
    size_t usable = mi_usable_size(usual);
    free(own);
    mi_free(usual);
    return usable;
}
#elif defined CONTROLS
#include <malloc.h>
int mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size);
size_t nallocx(size_t size, int flags);
static size_t mix(size_t size) {
    unsigned arenas;
    size_t bytes = sizeof arenas, good = nallocx(size, 0);
    void *block = malloc(good);
    size_t usable = malloc_usable_size(block);
    free(block);
    return mallctl("arenas.narenas", &arenas, &bytes, NULL, 0) == 0 && usable >= size ? size : 0;
}
#elif !defined PROGRAM
#if defined SCALABLE
#define TAKE(size) scalable_malloc(size)
#define GIVE(block) scalable_free(block)
#elif defined PRIVATE_TCMALLOC
#define TAKE(size) tc_malloc(size)
#define GIVE(block) tc_free(block)
#elif defined PRIVATE_MIMALLOC
#define TAKE(size) mi_malloc(size)
#define GIVE(block) mi_free(block)
#elif defined PRIVATE_JEMALLOC
#define TAKE(size) mallocx(size, 0)
#define GIVE(block) dallocx(block, 0)
#endif
#ifdef PRIVATE_JEMALLOC
void *mallocx(size_t size, int flags);
void dallocx(void *block, int flags);
#else
void *TAKE(size_t size);
void GIVE(void *block);
#endif
static size_t mix(size_t size) {
    void *own = TAKE(size), *usual = malloc(size);
    GIVE(own);
    free(usual);
    return size;
}
#endif

#ifdef PROGRAM
size_t mixed(size_t size);
#else
size_t mixed(size_t size) {
    return mix(size);
}
#endif

#ifndef LIBRARY
int main(void) {
    for (size_t size = 1; size < 3000; size++) {
        if (mixed(size) < size)
            return 1;
    }
    puts("mixed");
    return 0;
}
#endif
