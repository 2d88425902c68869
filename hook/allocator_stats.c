// SPDX-License-Identifier: Apache-2.0
#include "allocator_stats.h"

#include <errno.h>
#include <signal.h>

#include "../allocators/glue/jemalloc_info.h"
#include "next.h"
#include "object.h"
#include "sys.h"

static struct mallinfo2 (*get_mallinfo)(void);
static jemalloc_control *control;
static uint64_t always_blocked; /* signals that were blocked at the start and at every reading since */

/* Bit s - 1 for signal s. */
#define BIT(signal) (UINT64_C(1) << ((signal) - 1))
/* Signals of faults are never blocked: the kernel would end the process at once, and fatal.c could note
 * nothing. */
#define FAULTS (BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGILL) | BIT(SIGFPE) | BIT(SIGTRAP) | BIT(SIGABRT) | BIT(SIGSYS))

/* Returns what was blocked before. */
static uint64_t set_blocked(int how, uint64_t signals) {
    uint64_t before = 0;
    sys4(SYS_rt_sigprocmask, how, &signals, &before, sizeof signals);
    return before;
}

void allocator_stats_find(void) {
    always_blocked = set_blocked(SIG_BLOCK, 0);
    const void *object = object_of((const void *)next.malloc);
    /* Other allocators have a mallinfo2 too, but its fields mean other things there. */
    bool is_known = object == object_libc() || object_is_ours(object);
    if (is_known && next.mallinfo2 != NULL && object_of((const void *)next.mallinfo2) == object) {
        get_mallinfo = next.mallinfo2;
        return;
    }
    void *found = object_next("mallctl");
    if (found != NULL && object_of(found) == object)
        control = (jemalloc_control *)found;
}

static uint64_t less(uint64_t from, uint64_t part) {
    return from > part ? from - part : 0;
}

/* As glibc fills the fields in: keepcost is part of fordblks; what is neither in use nor free is
 * bookkeeping. */
static struct allocator_stats sorted(const struct mallinfo2 *info) {
    return (struct allocator_stats){.in_use = info->uordblks + info->hblkhd,
                         .cached = less(info->fordblks, info->keepcost),
                         .dirty = info->keepcost,
                         .own = less(info->arena, info->uordblks + info->fordblks)};
}

static struct allocator_stats read_stats(void) {
    int saved = errno;
    struct mallinfo2 filled = get_mallinfo != NULL ? get_mallinfo() : jemalloc_info(control);
    errno = saved;
    return sorted(&filled);
}

bool allocator_stats_read(struct allocator_stats *stats, bool *retry) {
    *retry = false;
    if (get_mallinfo == NULL && control == NULL)
        return false;
    uint64_t blocked = set_blocked(SIG_BLOCK, ~FAULTS);
    always_blocked &= blocked; /* a signal unblocked since then may be blocked by a handler next time */
    *retry = (blocked & ~always_blocked) != 0;
    if (!*retry)
        *stats = read_stats();
    set_blocked(SIG_SETMASK, blocked);
    return stats->in_use != 0;
}
