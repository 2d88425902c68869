// SPDX-License-Identifier: Apache-2.0
//
// What musl's two mallocs expect of the C library around them, on glibc. Put before their sources with
// -include; the headers they ask for by name (libc.h, atomic.h ...) are empty files. glibc owns brk,
// so it is always refused here and they map memory instead; the process counts as threaded.
#ifndef IMAS_MUSL_PORT_H
#define IMAS_MUSL_PORT_H

#include "keep_errno.h"
#include "kernel_call.h"

#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define hidden __attribute__((visibility("hidden")))
#define PAGE_SIZE 4096
#define PAGESIZE PAGE_SIZE

// Names that the glue's family has already.
#define aligned_alloc musl_aligned_alloc
#define malloc_usable_size musl_usable_size

#define __mmap mmap
#define __madvise imas_keep_errno_madvise
#define __munmap imas_keep_errno_munmap
#define __mremap mremap
// The only system call they make by number is brk.
#define __syscall(number, argument) ((unsigned long)-ENOMEM)

#define __malloc_replaced 0
#define __aligned_alloc_replaced 0

hidden void *__libc_malloc_impl(size_t size);
hidden void *__libc_realloc(void *block, size_t size);
hidden void __libc_free(void *block);
hidden int __malloc_allzerop(void *block);
hidden void __malloc_donate(char *start, char *end);
hidden void __malloc_atfork(int who);

struct musl_libc {
    signed char need_locks;
    size_t *auxv;
    size_t page_size;
};

// auxv in musl's shape: AT_RANDOM alone, which is all they look for.
static size_t musl_auxv[3];
static struct musl_libc libc __attribute__((unused)) = { 1, musl_auxv, PAGE_SIZE };

static __attribute__((constructor(101))) void musl_read_auxv(void)
{
    musl_auxv[1] = getauxval(AT_RANDOM);
    musl_auxv[0] = musl_auxv[1] != 0 ? AT_RANDOM : AT_NULL;
}

static inline int a_swap(volatile int *place, int value)
{
    return __atomic_exchange_n(place, value, __ATOMIC_SEQ_CST);
}

static inline int a_cas(volatile int *place, int expected, int value)
{
    __atomic_compare_exchange_n(place, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

static inline void a_store(volatile int *place, int value)
{
    __atomic_store_n(place, value, __ATOMIC_SEQ_CST);
}

static inline void a_or(volatile int *place, int bits)
{
    __atomic_fetch_or(place, bits, __ATOMIC_SEQ_CST);
}

static inline void a_or_64(volatile uint64_t *place, uint64_t bits)
{
    __atomic_fetch_or(place, bits, __ATOMIC_SEQ_CST);
}

static inline void a_and_64(volatile uint64_t *place, uint64_t bits)
{
    __atomic_fetch_and(place, bits, __ATOMIC_SEQ_CST);
}

static inline int a_ctz_32(uint32_t word)
{
    return __builtin_ctz(word);
}

static inline int a_clz_32(uint32_t word)
{
    return __builtin_clz(word);
}

static inline int a_ctz_64(uint64_t word)
{
    return __builtin_ctzll(word);
}

static inline void a_crash(void)
{
    __builtin_trap();
}

static inline void musl_futex(volatile int *place, int operation, int value)
{
    kernel_call(SYS_futex, (long)place, operation | FUTEX_PRIVATE_FLAG, value, 0, 0, 0);
}

// Waits while *place is value; *waiters counts those asleep.
static inline void __wait(volatile int *place, volatile int *waiters, int value, int private)
{
    (void)private;
    __atomic_fetch_add(waiters, 1, __ATOMIC_SEQ_CST);
    while (*place == value)
        musl_futex(place, FUTEX_WAIT, value);
    __atomic_fetch_sub(waiters, 1, __ATOMIC_SEQ_CST);
}

static inline void __wake(volatile int *place, int count, int private)
{
    (void)private;
    musl_futex(place, FUTEX_WAKE, count);
}

// 0 free, 1 held, 2 held and waited for (Drepper, "Futexes Are Tricky", mutex 3).
static inline void musl_lock(volatile int *place)
{
    if (a_cas(place, 0, 1) == 0)
        return;
    while (a_swap(place, 2) != 0)
        musl_futex(place, FUTEX_WAIT, 2);
}

static inline void musl_unlock(volatile int *place)
{
    if (a_swap(place, 0) == 2)
        musl_futex(place, FUTEX_WAKE, 1);
}

#define LOCK(place) musl_lock(place)
#define UNLOCK(place) musl_unlock(place)

#endif
