// SPDX-License-Identifier: Apache-2.0
/*
 * sys.h - system calls made without libc, and the cycle counter.
 *
 * libc's wrappers may be interposed by other libraries, set errno and are cancellation points; inside malloc
 * none of that may happen. Every function returns what the kernel does: a negative value is -errno.
 */
#ifndef IMAS_HOOK_SYS_H
#define IMAS_HOOK_SYS_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "../allocators/glue/kernel_call.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define NOINLINE __attribute__((noinline))
#define EXPORT __attribute__((visibility("default")))
/* -fvisibility applies to definitions only. An extern variable needs the attribute, or it is reached through
 * the GOT. */
#define HIDDEN __attribute__((visibility("hidden")))

#if defined(__x86_64__)
/* The fence lets all earlier instructions finish: without it the clock is read while a short malloc still
 * runs, and that seems to take no time. Both reads of a pair have it, so its cost is subtracted with the
 * empty pair. */
static inline uint64_t ticks_now(void) {
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high)::"memory");
    return (uint64_t)high << 32 | low;
}

/* Of the clock above, roughly; the true rate is known only after a while. */
static inline uint64_t ticks_per_second(void) {
    return UINT64_C(1) << 31;
}
#elif defined(__aarch64__)
static inline uint64_t ticks_now(void) {
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks)::"memory");
    return ticks;
}

static inline uint64_t ticks_per_second(void) {
    uint64_t rate;
    __asm__("mrs %0, cntfrq_el0" : "=r"(rate));
    return rate;
}
#endif

#define sys6 kernel_call
#define sys0(nr) sys6(nr, 0, 0, 0, 0, 0, 0)
#define sys1(nr, a) sys6(nr, (long)(a), 0, 0, 0, 0, 0)
#define sys2(nr, a, b) sys6(nr, (long)(a), (long)(b), 0, 0, 0, 0)
#define sys3(nr, a, b, c) sys6(nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define sys4(nr, a, b, c, d) sys6(nr, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

static inline int sys_open(const char *path, int flags, int mode) {
    return (int)sys4(SYS_openat, AT_FDCWD, path, flags, mode);
}

static inline void sys_close(int fd) {
    sys1(SYS_close, fd);
}

/* The first room - 1 bytes of a small file (of /proc: one read gives it whole), ended by '\0'. Returns how many, or -1
   if the file cannot be opened. */
static inline long sys_read_text(const char *path, char *text, size_t room) {
    int fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    long got = sys3(SYS_read, fd, text, room - 1);
    sys_close(fd);
    got = got > 0 ? got : 0;
    text[got] = '\0';
    return got;
}

/* Anonymous memory for ourselves, or NULL. */
static inline void *sys_anonymous(size_t bytes) {
    const long prot_read_write = 3, map_private_anonymous = 0x22;
    long at = sys6(SYS_mmap, 0, (long)bytes, prot_read_write, map_private_anonymous, -1, 0);
    return at < 0 && at > -4096 ? NULL : (void *)at;
}

/* A file mapped shared and writable, or NULL. */
static inline void *sys_map_file(int fd, size_t bytes) {
    const long prot_read_write = 3, map_shared = 1;
    long at = sys6(SYS_mmap, 0, (long)bytes, prot_read_write, map_shared, fd, 0);
    return at < 0 && at > -4096 ? NULL : (void *)at;
}

enum sys_clock { SYS_CLOCK_REALTIME = 0, SYS_CLOCK_PROCESS_CPU = 2, SYS_CLOCK_THREAD_CPU = 3, SYS_CLOCK_MONOTONIC_RAW = 4 };

/* A clock in nanoseconds, 0 if the kernel refuses; a real system call, the vDSO is reached through libc only. */
static inline uint64_t sys_clock_ns(enum sys_clock clock) {
    struct {
        int64_t seconds, nanoseconds;
    } now = {0, 0};
    sys2(SYS_clock_gettime, clock, &now);
    return (uint64_t)now.seconds * UINT64_C(1000000000) + (uint64_t)now.nanoseconds;
}

static inline uint64_t sys_monotonic_ns(void) {
    return sys_clock_ns(SYS_CLOCK_MONOTONIC_RAW);
}

/* Takes `price` out of a purse; true unless something is left. It then holds 0 or a huge number until it is
 * refilled. An empty purse can pay nothing, not even a price of 0. The compiler would use three instructions
 * and a register for the two that this is, and it runs in every call. */
static inline bool overdraw64(uint64_t *purse, uint64_t price) {
#if defined(__x86_64__)
    bool nothing_left;
    __asm__("subq %2, %0" : "+m"(*purse), "=@ccbe"(nothing_left) : "er"(price));
    return nothing_left;
#else
    uint64_t held = *purse;
    *purse = held - price;
    return held <= price;
#endif
}

static inline bool overdraw32(uint32_t *purse) {
#if defined(__x86_64__)
    bool short_of_it;
    __asm__("subl $1, %0" : "+m"(*purse), "=@ccc"(short_of_it));
    return short_of_it;
#else
    return __builtin_sub_overflow(*purse, 1u, purse);
#endif
}

#define add_relaxed(where, value) __atomic_fetch_add(&(where), (value), __ATOMIC_RELAXED)
#define get_relaxed(where) __atomic_load_n(&(where), __ATOMIC_RELAXED)
#define set_relaxed(where, value) __atomic_store_n(&(where), (value), __ATOMIC_RELAXED)

/* Raises `where` to `value` if it is lower. */
static inline void raise_to(uint64_t *where, uint64_t value) {
    uint64_t seen = get_relaxed(*where);
    while (seen < value && !__atomic_compare_exchange_n(where, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

#endif
