// SPDX-License-Identifier: Apache-2.0
#include "full.h"

#include "environment.h"
#include "libc.h"
#include "page.h"
#include "plausible.h"
#include "sample.h"
#include "sys.h"
#include "thread.h"

static struct full_record nowhere;
static struct full_record *record = &nowhere;
static int (*mallctl)(const char *, void *, size_t *, void *, size_t);

void full_begin(char **environment) {
    const char *path = environment_value(environment, FULL_ENV_FILE);
    int fd = path != NULL ? sys_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    struct full_record *mapped = sys2(SYS_ftruncate, fd, sizeof *mapped) == 0 ? sys_map_file(fd, sizeof *mapped) : NULL;
    sys_close(fd);
    if (mapped == NULL)
        return;
    record = mapped;
    mallctl = (int (*)(const char *, void *, size_t *, void *, size_t))libc_dlsym(LIBC_RTLD_NEXT, "mallctl");
    record->kind = mallctl != NULL;
}

/* ---- every call ---------------------------------------------------------------------------------------- */

static void add_time(struct full_times *times, uint64_t bytes, uint64_t ticks, uint64_t weight) {
    unsigned bucket = sample_log2(ticks);
    bucket = bucket < IMAS_LATENCY_BUCKETS ? bucket : IMAS_LATENCY_BUCKETS - 1;
    add_relaxed(times->weight[bucket], weight);
    add_relaxed(times->ticks[bucket], weight * ticks);
    if (plausible_duration(ticks, bytes)) {
        add_relaxed(times->plausible_weight, weight);
        add_relaxed(times->plausible_ticks, weight * ticks);
    }
}

void full_timed(enum imas_op op, uint64_t bytes, uint64_t ticks) {
    add_time(&record->all[op], bytes, ticks, 1);
}

void full_noted(enum imas_op op, uint64_t bytes, uint64_t ticks, uint64_t weight) {
    add_time(&record->sampled[op], bytes, ticks, weight);
}

#ifdef IMAS_FULL_LIVE
struct full_before full_before(void *old) {
    bool block = old != NULL && !boot_owns(old);
    return (struct full_before){.block = block, .usable = block ? next.usable_size(old) : 0};
}

void full_after(const struct full_before *before, void *block, size_t bytes) {
    if (block == NULL && bytes != 0)
        return; /* refused: what was there lives on */
    int64_t usable = block != NULL ? (int64_t)next.usable_size(block) : 0;
    add_relaxed(record->live, usable - (int64_t)before->usable);
    add_relaxed(record->blocks, (block != NULL) - (int64_t)before->block);
}
#endif

/* ---- moments ------------------------------------------------------------------------------------------- */

#ifdef IMAS_FULL_LIVE
static uint64_t ask_jemalloc(const char *name) {
    uint64_t value = 0;
    size_t length = sizeof value;
    return mallctl(name, &value, &length, NULL, 0) == 0 ? value : 0;
}

static void ask_allocator(struct full_moment *moment) {
    if (mallctl != NULL) {
        uint64_t epoch = 1;
        mallctl("epoch", NULL, NULL, &epoch, sizeof epoch); /* its figures are of the moment of this call */
        moment->allocator = ask_jemalloc("stats.allocated");
        moment->cached = ask_jemalloc("stats.arenas.4096.tcache_bytes"); /* 4096: all arenas */
    } else if (next.mallinfo2 != NULL) {
        struct mallinfo2 reported = next.mallinfo2();
        moment->allocator = reported.uordblks + reported.hblkhd;
        moment->mapped_blocks = reported.hblks;
    }
}

static void note_moment(void) {
    static uint64_t step = 1, until_next = 1;
    if (--until_next > 0)
        return;
    if (record->moments == FULL_MOMENTS) { /* full: every second one stays, and from now on half as many come */
        for (unsigned i = 0; i < FULL_MOMENTS / 2; i++)
            record->moment[i] = record->moment[2 * i];
        record->moments = FULL_MOMENTS / 2;
        step *= 2;
    }
    until_next = step;
    struct full_moment moment = {.estimate = get_relaxed(thread_page->sampled.live_bytes),
                                 .exact = get_relaxed(record->live),
                                 .blocks = get_relaxed(record->blocks)};
    ask_allocator(&moment);
    record->moment[record->moments++] = moment;
}

#endif

void full_look(void) {
#ifdef IMAS_FULL_LIVE
    static bool taken;
    if (record == &nowhere || !page_is_ours() || __atomic_exchange_n(&taken, true, __ATOMIC_ACQUIRE))
        return;
    note_moment();
    __atomic_store_n(&taken, false, __ATOMIC_RELEASE);
#endif
}
