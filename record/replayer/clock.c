// SPDX-License-Identifier: Apache-2.0
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "replayer.h"

#define SECOND UINT64_C(1000000000)

static uint64_t now_ns; /* since the recording began */

void clock_set(uint64_t ns_since_begin) {
    __atomic_store_n(&now_ns, ns_since_begin, __ATOMIC_RELAXED);
}

static bool is_cpu_clock(clockid_t clock) {
    return clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID || clock < 0;
}

/* The clock of the allocators that we build (allocators/glue/kernel.c). The time starts a day after the epoch of each
 * clock, so that no difference is negative. */
int imas_replay_clock(clockid_t clock, struct timespec *time);
int imas_replay_clock(clockid_t clock, struct timespec *time) {
    if (is_cpu_clock(clock))
        return (int)syscall(SYS_clock_gettime, clock, time);
    uint64_t ns = 86400 * SECOND + __atomic_load_n(&now_ns, __ATOMIC_RELAXED);
    time->tv_sec = (time_t)(ns / SECOND);
    time->tv_nsec = (long)(ns % SECOND);
    return 0;
}

/* Overrides libc's function for all other libraries, because the executable comes first in symbol resolution. */
int clock_gettime(clockid_t clock, struct timespec *time) {
    return imas_replay_clock(clock, time);
}

uint64_t clock_cpu_ns(void) {
    struct timespec time = {0};
    syscall(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}
