// SPDX-License-Identifier: Apache-2.0
#include "snapshot.h"

#include <sys/resource.h>

#include "page.h"
#include "proc.h"
#include "quiet.h"
#include "split.h"
#include "sys.h"
#include "thread.h"

#define PERIOD_NS UINT64_C(5000000000)
#define FIRST_LIVE_MARK (INT64_C(1) << 20)

static uint64_t due_ticks;
static int64_t due_live;
static bool taken;

/* The snapshot before, from which resident memory is integrated. */
static uint64_t last_ns;
static uint64_t last_resident;

void snapshot_start(void) {
    struct imas_page_header *header = &thread_page->header;
    header->ns_start = sys_monotonic_ns();
    header->ticks_start = ticks_now();
    due_ticks = header->ticks_start + (UINT64_C(1) << 26); /* until the clock's rate is known: below 5 s for any */
    due_live = FIRST_LIVE_MARK;
    taken = false;
    split_start();
}

void snapshot_after_fork(void) {
    taken = false;
}

static bool enter(void) {
    return !__atomic_exchange_n(&taken, true, __ATOMIC_ACQUIRE);
}

static void leave(void) {
    __atomic_store_n(&taken, false, __ATOMIC_RELEASE);
}

/* Ticks of `ns` nanoseconds, by what both clocks did since the start. */
static uint64_t ticks_of(uint64_t ns, uint64_t now_ns, uint64_t now_ticks) {
    const struct imas_page_header *header = &thread_page->header;
    uint64_t passed_ns = now_ns - header->ns_start;
    uint64_t passed_ticks = now_ticks - header->ticks_start;
    if (passed_ns == 0)
        return 0;
    return (uint64_t)((unsigned __int128)ns * (passed_ticks << 16) / passed_ns >> 16);
}

static int64_t live_bytes(void) {
    int64_t live = get_relaxed(thread_page->sampled.live_bytes);
    return live > 0 ? live : 0;
}

struct memory {
    uint64_t heap, resident, live;
};

static struct memory look(void) {
    uint64_t live = (uint64_t)live_bytes(); /* first: what other threads add while we look makes another snapshot due */
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

/* Before the first snapshot of this process nothing is known: what it saw stands for the time since the start. */
static void note_time(struct imas_page_header *header, uint64_t resident) {
    uint64_t now = sys_monotonic_ns();
    bool first = last_ns <= header->ns_start;
    uint64_t since = first ? header->ns_start : last_ns;
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
    set_relaxed(due_ticks, header->ticks_last + ticks_of(wait, header->ns_last, header->ticks_last));
}

static void plan_growth(int64_t seen) {
    int64_t due = due_live;
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
    plan_growth((int64_t)memory.live);
}

static NOINLINE void take(void) {
    if (!enter())
        return;
    struct imas_page_header *header = &thread_page->header;
    if (!has_grown() && period_is_over(header))
        look_and_note(header);
    while (has_grown()) /* again when others doubled it meanwhile: their turn was refused */
        look_and_note(header);
    note_clocks(header);
    plan_period(header);
    leave();
}

static NOINLINE void take_split(void) {
    if (!enter())
        return;
    if (split_is_due()) /* still: another thread may have been here */
        split_take();
    leave();
}

void snapshot_if_due(bool may_ask) {
    if (unlikely(quiet_now()))
        return;
    if (unlikely(has_grown() || ticks_now() >= get_relaxed(due_ticks)))
        take();
    if (may_ask && unlikely(split_is_due()))
        take_split();
}

/* ---- the end --------------------------------------------------------------------------------------------- */

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

/* A program that has just freed everything says nothing about its fragmentation: the sums take this snapshot in only
 * when there is no other. */
static void note_end(struct imas_page_header *header) {
    struct memory memory = look();
    note_peaks(header, &memory);
    if (header->snapshots == 0)
        note_sums(header, &memory);
    note_time(header, memory.resident);
    note_usage(header);
    note_clocks(header);
}

bool snapshot_at_exit(void) {
    if (quiet_now())
        return true; /* vfork cannot be told from the program without a system call */
    struct imas_page_header *header = &thread_page->header;
    if ((long)header->pid != sys0(SYS_getpid))
        return false;
    if (enter())
        note_end(header); /* and nobody comes after */
    return true;
}
