// SPDX-License-Identifier: Apache-2.0
#include "told.h"

#include <errno.h>
#include <signal.h>

#include "../allocators/glue/jemalloc_info.h"
#include "next.h"
#include "object.h"
#include "sys.h"

static struct mallinfo2 (*info)(void);
static jemalloc_control *control;
static uint64_t always_blocked; /* since the start, at every look so far */

/* Bit s - 1 for signal s. */
#define BIT(signal) (UINT64_C(1) << ((signal) - 1))
/* What a fault raises is never blocked: the kernel would kill without a word to those who note crashes. */
#define FAULTS (BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGILL) | BIT(SIGFPE) | BIT(SIGTRAP) | BIT(SIGABRT) | BIT(SIGSYS))

/* Answers what was blocked before. */
static uint64_t set_blocked(int how, uint64_t signals) {
    uint64_t before = 0;
    sys4(SYS_rt_sigprocmask, how, &signals, &before, sizeof signals);
    return before;
}

void told_find(void) {
    always_blocked = set_blocked(SIG_BLOCK, 0);
    const void *object = object_of((const void *)next.malloc);
    /* Others have a mallinfo2 too, and mean other things by its fields. */
    bool is_known = object == object_libc() || object_is_ours(object);
    if (is_known && next.mallinfo2 != NULL && object_of((const void *)next.mallinfo2) == object) {
        info = next.mallinfo2;
        return;
    }
    void *found = object_next("mallctl");
    if (found != NULL && object_of(found) == object)
        control = (jemalloc_control *)found;
}

static uint64_t less(uint64_t from, uint64_t part) {
    return from > part ? from - part : 0;
}

/* In the shape of glibc's: keepcost is part of fordblks, and what is neither used nor free is the allocator's own. */
static struct told sorted(const struct mallinfo2 *said) {
    return (struct told){.in_use = said->uordblks + said->hblkhd,
                         .cached = less(said->fordblks, said->keepcost),
                         .dirty = said->keepcost,
                         .own = less(said->arena, said->uordblks + said->fordblks)};
}

static struct told ask(void) {
    int saved = errno;
    struct mallinfo2 said = info != NULL ? info() : jemalloc_info(control);
    errno = saved;
    return sorted(&said);
}

bool told_now(struct told *told, bool *later) {
    *later = false;
    if (info == NULL && control == NULL)
        return false;
    uint64_t blocked = set_blocked(SIG_BLOCK, ~FAULTS);
    always_blocked &= blocked; /* what was let go since may be blocked by a handler next time */
    *later = (blocked & ~always_blocked) != 0;
    if (!*later)
        *told = ask();
    set_blocked(SIG_SETMASK, blocked);
    return told->in_use != 0;
}
