// SPDX-License-Identifier: Apache-2.0
// jemalloc's figures of its memory in the form of mallinfo2, by its mallctl: for the glue of those that we build or
// wrap, and for the hook where a program brings a jemalloc of its own.
#ifndef IMAS_JEMALLOC_INFO_H
#define IMAS_JEMALLOC_INFO_H

#include <malloc.h>
#include <stddef.h>
#include <stdint.h>

typedef int jemalloc_control(const char *name, void *old, size_t *old_length, void *new_value, size_t new_length);

// 0 for what this version does not report.
static inline size_t jemalloc_ask(jemalloc_control *control, const char *name)
{
    size_t value = 0, length = sizeof value;
    return control(name, &value, &length, NULL, 0) == 0 ? value : 0;
}

static inline size_t jemalloc_less(size_t from, size_t part)
{
    return from > part ? from - part : 0;
}

// jemalloc(3): active pages hold blocks, those of the thread caches among them although nobody uses these; resident ones
// are active, metadata or dirty, that is not yet given back. All zero where it was built without statistics.
// fsmblks: the thread caches; keepcost: dirty pages; arena - uordblks - fordblks: its metadata.
static inline struct mallinfo2 jemalloc_info(jemalloc_control *control)
{
    uint64_t epoch = 1;
    if (control("epoch", NULL, NULL, &epoch, sizeof epoch) != 0) // its figures are of the moment of this call
        return (struct mallinfo2){ 0 };
    size_t allocated = jemalloc_ask(control, "stats.allocated"), active = jemalloc_ask(control, "stats.active");
    size_t resident = jemalloc_ask(control, "stats.resident"), metadata = jemalloc_ask(control, "stats.metadata");
    size_t cached = jemalloc_ask(control, "stats.arenas.4096.tcache_bytes"); // 4096: all arenas
    size_t in_use = jemalloc_less(allocated, cached);
    size_t dirty = jemalloc_less(resident, active + metadata);
    size_t free_blocks = jemalloc_less(active, in_use);
    return (struct mallinfo2){ .arena = in_use + free_blocks + dirty + metadata,
        .uordblks = in_use,
        .fsmblks = cached,
        .fordblks = free_blocks + dirty,
        .keepcost = dirty };
}

#endif
