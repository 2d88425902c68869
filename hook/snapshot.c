// SPDX-License-Identifier: Apache-2.0
#include "snapshot.h"

#include <sys/resource.h>
#include <time.h>

#include "estimate.h"
#include "page.h"
#include "proc.h"
#include "sandbox.h"
#include "split.h"
#include "sys.h"
#include "thread.h"

#define MOST_WAITS 20 /* of a millisecond, at the end */
#define PERIOD_NS UINT64_C(5000000000)
#define FIRST_LIVE_MARK (UINT64_C(1) << 20)

/* Nothing is due before snapshot_start: threads of other constructors may be counted already. */
static uint64_t due_ticks = UINT64_MAX;
static uint64_t due_live = UINT64_MAX;
static bool taken;     /* proc.c's buffer, and the snapshots' figures */
static bool splitting; /* allocator_stats.c may walk all free blocks: no snapshot waits for that */

static uint64_t begun_ns; /* the start of this process, or of its image: an own file started again has the page of the one before */

/* The snapshot before, from which resident memory is integrated. */
static uint64_t last_ns;
static uint64_t last_resident;

void snapshot_start(void) {
    struct imas_page_header *header = &thread_page->header;
    begun_ns = sys_monotonic_ns();
    const uint64_t ticks = ticks_now();
    if (header->ns_start == 0) {
        header->ns_start = begun_ns;
        header->ticks_start = ticks;
    }
    snapshot_after_fork();
    split_start(begun_ns, ticks);
    /* until the clock's rate is known: below 5 s for any */
    set_relaxed(due_ticks, ticks + ticks_per_second() / 32);
    set_relaxed(due_live, FIRST_LIVE_MARK);
}

void snapshot_after_fork(void) {
    taken = false;
    splitting = false;
}

static bool enter(bool *flag) {
    return !__atomic_exchange_n(flag, true, __ATOMIC_ACQUIRE);
}

static void leave(bool *flag) {
    __atomic_store_n(flag, false, __ATOMIC_RELEASE);
}

bool snapshot_resident(uint64_t *bytes) {
    if (!enter(&taken))
        return false;
    *bytes = proc_resident_bytes();
    leave(&taken);
    return true;
}

static uint64_t live_bytes(void) {
    return estimate(&thread_page->sampled.live_bytes);
}

struct memory {
    uint64_t heap, resident, live;
};

static struct memory look(void) {
    uint64_t live = live_bytes(); /* first: what other threads add while we look makes another snapshot due */
    return (struct memory){proc_heap_bytes(), proc_resident_bytes(), live};
}

static void note_peaks(struct imas_page_header *header, const struct memory *memory) {
    raise_to(&header->heap_bytes_peak, memory->heap);
    raise_to(&header->resident_bytes_peak, memory->resident);
    raise_to(&header->live_bytes_peak, memory->live);
}

static void note_sums(struct imas_page_header *header, const struct memory *memory) {
    header->heap_bytes_sum += memory->heap;
    header->resident_bytes_sum += memory->resident;
    header->live_bytes_sum += memory->live;
    header->snapshots++;
}

/* Before the first snapshot of this process nothing is known: what it saw stands for the time since the
 * start. */
static void note_time(struct imas_page_header *header, uint64_t resident) {
    uint64_t now = sys_monotonic_ns();
    bool first = last_ns <= begun_ns;
    uint64_t since = first ? begun_ns : last_ns;
    uint64_t kib = (first ? resident : (last_resident + resident) / 2) >> 10;
    header->resident_kib_time += kib * ((now - since) >> 16);
    last_ns = now;
    last_resident = resident;
}

static void note_clocks(struct imas_page_header *header) {
    header->ns_last = sys_monotonic_ns();
    header->ticks_last = ticks_now();
}

static void plan_period(const struct imas_page_header *header) {
    uint64_t since_start = header->ns_last - header->ns_start;
    uint64_t wait = PERIOD_NS - since_start % PERIOD_NS;
    set_relaxed(due_ticks, header->ticks_last + estimate_ticks(wait, header->ns_last, header->ticks_last));
}

static void plan_growth(uint64_t seen) {
    uint64_t due = due_live;
    while (due <= seen)
        due *= 2;
    set_relaxed(due_live, due);
}

static bool period_is_over(const struct imas_page_header *header) {
    return header->snapshots > 0 || sys_monotonic_ns() - header->ns_start >= PERIOD_NS;
}

static bool has_grown(void) {
    return live_bytes() >= get_relaxed(due_live);
}

static void look_and_note(struct imas_page_header *header) {
    struct memory memory = look();
    note_peaks(header, &memory);
    note_sums(header, &memory);
    note_time(header, memory.resident);
    plan_growth(memory.live);
}

static NOINLINE void take(void) {
    if (!enter(&taken))
        return;
    page_begin_own_calls();
    struct imas_page_header *header = &thread_page->header;
    if (!has_grown() && period_is_over(header))
        look_and_note(header);
    while (has_grown()) /* once more if others doubled it meanwhile: they were refused */
        look_and_note(header);
    note_clocks(header);
    plan_period(header);
    page_end_own_calls();
    leave(&taken);
}

static NOINLINE void take_split(void) {
    if (!enter(&splitting))
        return;
    page_begin_own_calls();
    if (split_is_due()) /* still: another thread may have been here */
        split_take();
    page_end_own_calls();
    leave(&splitting);
}

void snapshot_if_due(bool may_ask) {
    if (unlikely(sandbox_entered()))
        return;
    if (unlikely(has_grown() || ticks_now() >= get_relaxed(due_ticks)))
        take();
    if (may_ask && unlikely(split_is_due()))
        take_split();
}

/* ---- the end ------------------------------------------------------------------------------------------- */

static uint64_t microseconds(const struct timeval *time) {
    return (uint64_t)time->tv_sec * 1000000 + (uint64_t)time->tv_usec;
}

static void note_usage(struct imas_page_header *header) {
    struct rusage usage;
    if (sys2(SYS_getrusage, RUSAGE_SELF, &usage) < 0)
        return;
    header->user_us = microseconds(&usage.ru_utime);
    header->system_us = microseconds(&usage.ru_stime);
    header->minor_faults = (uint64_t)usage.ru_minflt;
    header->major_faults = (uint64_t)usage.ru_majflt;
    header->voluntary_switches = (uint64_t)usage.ru_nvcsw;
    header->involuntary_switches = (uint64_t)usage.ru_nivcsw;
    header->max_rss_bytes = proc_peak_resident_bytes();
}

/* A program that has just freed everything shows no fragmentation: this snapshot enters the sums only when
 * there is no other. */
static void note_end(struct imas_page_header *header) {
    struct memory memory = look();
    note_peaks(header, &memory);
    if (header->snapshots == 0)
        note_sums(header, &memory);
    note_time(header, memory.resident);
    note_usage(header);
    note_clocks(header);
}

/* Another thread may be reading /proc, for some milliseconds at most. No longer: it may be this one, that a
 * handler has interrupted and now ends. */
static bool enter_at_last(void) {
    const struct timespec millisecond = {.tv_nsec = 1000000};
    bool entered = enter(&taken);
    for (int waits = 0; !entered && waits < MOST_WAITS; waits++) {
        sys2(SYS_nanosleep, &millisecond, NULL);
        entered = enter(&taken);
    }
    return entered;
}

static bool note_exit(struct imas_page_header *header) {
    if ((long)header->pid != sys0(SYS_getpid))
        return false;
    if (enter_at_last())
        note_end(header); /* and nobody comes after */
    return true;
}

bool snapshot_at_exit(void) {
    if (sandbox_entered())
        return true; /* a child of vfork cannot be distinguished without a system call */
    page_begin_own_calls();
    bool is_ours = note_exit(&thread_page->header);
    page_end_own_calls();
    return is_ours;
}
