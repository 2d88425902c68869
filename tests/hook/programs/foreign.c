// SPDX-License-Identifier: Apache-2.0
/* An allocator from elsewhere to preload: no name of its own, no pvalloc, a mallinfo2 with a mind of its own.
 * With -DPARTIAL only half a family; with -DDAWDLES it takes 8 ms for a block of 4,321 bytes, as if it were
 * interrupted, and for large ones, as if it copied them; with -DLOCKS it has a lock of its own, which its
 * fork handlers take and release; where the environment has SIGNAL_IN_FORK, they also raise SIGUSR1, as if it
 * came just then. With -DMALLOCX it has functions of jemalloc's own interface; with -DNEWER it
 * asks for GLIBC_2.34. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

extern void *__libc_malloc(size_t size), *__libc_calloc(size_t count, size_t size), *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

#ifdef DAWDLES
static void dawdle(size_t size) {
    struct timespec begun, now;
    if (size != 4321 && size < (size_t)1 << 28)
        return;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begun.tv_sec) * 1000000000L + now.tv_nsec - begun.tv_nsec < 8000000L);
}
#else
#define dawdle(size) ((void)0)
#endif

#ifdef NEWER
void *needs_newer(pthread_key_t key) { return pthread_getspecific(key); }
#endif

#ifdef LOCKS
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int signals;
static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }
static void before_fork(void) {
    lock();
    if (signals)
        raise(SIGUSR1);
}
static void after_fork(void) {
    if (signals)
        raise(SIGUSR1);
    unlock();
}
__attribute__((constructor)) static void enter(void) {
    signals = getenv("SIGNAL_IN_FORK") != NULL;
    pthread_atfork(before_fork, after_fork, unlock);
}
#else
#define lock() ((void)0)
#define unlock() ((void)0)
#endif

void *malloc(size_t size) {
    dawdle(size);
    lock();
    void *block = __libc_malloc(size);
    unlock();
    return block;
}
void free(void *block) {
    lock();
    __libc_free(block);
    unlock();
}
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { return __libc_realloc(block, size); }
#ifndef PARTIAL
struct mallinfo2 mallinfo2(void) { return (struct mallinfo2){.uordblks = 1 << 30, .fordblks = 1 << 29}; }
void *memalign(size_t alignment, size_t size) { return __libc_memalign(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return __libc_memalign(alignment, size); }
void *valloc(size_t size) { return __libc_memalign(4096, size); }
size_t malloc_usable_size(void *block) { return block != NULL ? (((size_t *)block)[-1] & ~(size_t)7) - 8 : 0; }
int posix_memalign(void **block, size_t alignment, size_t size) {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0)
        return EINVAL;
    void *made = __libc_memalign(alignment, size);
    if (made != NULL)
        *block = made;
    return made != NULL ? 0 : ENOMEM;
}
#endif
#ifdef MALLOCX
void *mallocx(size_t size, int flags) { return flags == 0 ? malloc(size) : NULL; }
size_t sallocx(const void *block, int flags) { return flags == 0 ? malloc_usable_size((void *)block) : 0; }
void sdallocx(void *block, size_t size, int flags) {
    if (size != 0 && flags == 0)
        free(block);
}
#endif
