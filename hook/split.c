// SPDX-License-Identifier: Apache-2.0
#include "split.h"

#include <time.h>

#include "allocator_stats.h"
#include "estimate.h"
#include "snapshot.h"
#include "sys.h"
#include "thread.h"

#define UNIT_SHIFT 16 /* of time: 65.5 us */
#define FIRST_PART 64  /* of a second, before the clock's rate is known */
#define AGAIN_PART 1024
#define FIRST_STEP_NS (UINT64_C(1) << 24)
#define LAST_STEP_NS UINT64_C(5000000000)
#define MOST_COST 256 /* reading may take this part of the time at most: glibc walks all its free blocks */
#define MOST_PUT_OFF 8

static uint64_t due_ticks = UINT64_MAX; /* until split_start */
static uint64_t step_ns;
static uint64_t last_ns; /* time of the last reading, in whole units since the start */
static unsigned put_off;

void split_start(uint64_t begun_ns, uint64_t begun_ticks) {
    step_ns = FIRST_STEP_NS;
    last_ns = begun_ns;
    put_off = 0;
    set_relaxed(due_ticks, begun_ticks + ticks_per_second() / FIRST_PART);
}

bool split_is_due(void) {
    return ticks_now() >= get_relaxed(due_ticks);
}

/* CPU time of this thread: time in which others ran is no cost of ours. */
static uint64_t cpu_ns(void) {
    return sys_clock_ns(SYS_CLOCK_THREAD_CPU);
}

static void plan(uint64_t cost_ns) {
    uint64_t now_ns = sys_monotonic_ns();
    uint64_t wait_ns = cost_ns * MOST_COST > step_ns ? cost_ns * MOST_COST : step_ns;
    step_ns = step_ns * 2 < LAST_STEP_NS ? step_ns * 2 : LAST_STEP_NS;
    uint64_t now_ticks = ticks_now();
    set_relaxed(due_ticks, now_ticks + estimate_ticks(wait_ns, now_ns, now_ticks));
}

static void add(uint64_t *sum, uint64_t bytes, uint64_t units) {
    *sum += (bytes >> 10) * units;
}

static void note(const struct allocator_stats *stats, bool known, uint64_t resident) {
    struct imas_page_header *header = &thread_page->header;
    uint64_t units = (sys_monotonic_ns() - last_ns) >> UNIT_SHIFT;
    last_ns += units << UNIT_SHIFT;
    add(&header->split_resident_kib_time, resident, units);
    add(&header->split_usable_kib_time, estimate(&thread_page->sampled.live_bytes), units);
    add(&header->split_requested_kib_time, estimate(&thread_page->sampled.live_requested), units);
    add(&header->split_in_use_kib_time, stats->in_use, units);
    add(&header->split_cached_kib_time, stats->cached, units);
    add(&header->split_dirty_kib_time, stats->dirty, units);
    add(&header->split_own_kib_time, stats->own, units);
    header->split_time += units;
    header->split_reported += known;
    header->split_moments++;
}

void split_take(void) {
    uint64_t began_cpu_ns = cpu_ns();
    struct allocator_stats stats = {0};
    bool retry;
    bool known = allocator_stats_read(&stats, &retry);
    if (retry && put_off++ < MOST_PUT_OFF) {
        set_relaxed(due_ticks, ticks_now() + ticks_per_second() / AGAIN_PART);
        return;
    }
    put_off = 0;
    uint64_t resident;
    if (snapshot_resident(&resident)) /* else the next reading stands for this time too */
        note(&stats, known, resident);
    plan(cpu_ns() - began_cpu_ns);
}
