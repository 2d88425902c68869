// SPDX-License-Identifier: Apache-2.0
#include "give_back.h"

#include <errno.h>
#include <linux/futex.h>

#include "asked.h"
#include "libc.h"
#include "object.h"
#include "own_process.h"
#include "raw_filter.h"
#include "sys.h"
#include "text.h"

#define OF_A_PER_CENT 10000 /* millionths */
#define MOST_PER_CENT 100
#define LONGEST_HOLD_NS 100000000

static struct {
    long pid; /* of the process in which it began */
    bool given_up;
    struct budget budget;
    uint64_t share_millionths; /* of the process's CPU time */
    int (*trim)(size_t pad);
    /* Each side stores its own and then loads the other's, so both need SEQ_CST: else each could miss the other. */
    int is_trimming, holds;
    bool filtered;
} state = {.share_millionths = OF_A_PER_CENT, .filtered = true};

/* malloc_trim of the allocator that serves. In a trial it is the hook's, which hands it on. */
static int (*find_trim(void))(size_t) {
    void *trim = object_next("malloc_trim");
    const void *of_libc = object_libc();
    bool libc_serves = object_of(object_next("malloc")) == of_libc;
    /* libc's, behind an allocator that has none, would look at a heap that nobody uses. */
    return trim != NULL && (libc_serves || object_of(trim) != of_libc) ? (int (*)(size_t))trim : NULL;
}

static struct budget_look look(bool measures) {
    return (struct budget_look){.now_ns = sys_monotonic_ns(),
                                .cpu_ns = sys_clock_ns(SYS_CLOCK_PROCESS_CPU),
                                .resident = measures ? own_process_resident() : BUDGET_UNKNOWN};
}

void give_back_set_share(const char *per_cent) {
    uint64_t wanted = text_number(&per_cent);
    if (*per_cent == '\0' && wanted >= 1 && wanted <= MOST_PER_CENT)
        state.share_millionths = wanted * OF_A_PER_CENT;
}

/* Under a filter nothing can be dropped safely: the calls may be the end of the process. And one that is set unseen leaves
 * no call that is safe. */
void give_back_enter(void) {
    struct own_process_bounds bounds = own_process_bounds();
    state.filtered = bounds.filtered;
    if ((bounds.filtered && !bounds.nothing_to_lose) || raw_filter_is_likely())
        give_back_give_up();
    else
        give_back_begin();
}

void give_back_begin(void) {
    if (get_relaxed(state.given_up))
        return;
    if (state.trim == NULL)
        state.trim = find_trim();
    struct budget_look now = look(false);
    budget_begin(&state.budget, state.share_millionths, &now);
    state.is_trimming = state.holds = 0;
    if (state.trim == NULL)
        return;
    set_relaxed(state.pid, sys0(SYS_getpid));
    asked_begin(state.filtered ? IMAS_TRIM_THREAD : IMAS_TRIM_PROCESS);
}

void give_back_give_up(void) {
    asked_end();
    __atomic_store_n(&state.given_up, true, __ATOMIC_SEQ_CST);
}

bool give_back_has_given_up(void) {
    return __atomic_load_n(&state.given_up, __ATOMIC_SEQ_CST);
}

bool give_back_is_ours(void) {
    long pid = get_relaxed(state.pid);
    return pid != 0 && pid == sys0(SYS_getpid);
}

bool give_back_is_on(void) {
    return !give_back_has_given_up() && give_back_is_ours();
}

bool give_back_is_filtered(void) {
    return state.filtered;
}

/* ---- forks and trims keep out of each other's way ------------------------------------------------------ */

static void wait_for_trim(void) {
    struct {
        int64_t seconds, nanoseconds;
    } longest = {0, LONGEST_HOLD_NS};
    if (__atomic_load_n(&state.is_trimming, __ATOMIC_SEQ_CST) != 0)
        sys4(SYS_futex, &state.is_trimming, FUTEX_WAIT_PRIVATE, 1, &longest);
}

void give_back_hold(void) {
    int kept = errno;
    __atomic_fetch_add(&state.holds, 1, __ATOMIC_SEQ_CST);
    wait_for_trim();
    errno = kept;
}

/* Not below 0: a child that was forked by a signal's handler, within another fork, begins anew in between. */
void give_back_release(void) {
    int held = get_relaxed(state.holds);
    while (held > 0 && !__atomic_compare_exchange_n(&state.holds, &held, held - 1, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
}

static bool begin_trim(void) {
    __atomic_store_n(&state.is_trimming, 1, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&state.holds, __ATOMIC_SEQ_CST) == 0;
}

static void end_trim(void) {
    __atomic_store_n(&state.is_trimming, 0, __ATOMIC_SEQ_CST);
    sys3(SYS_futex, &state.is_trimming, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

/* ---- one trim ------------------------------------------------------------------------------------------ */

/* Returns the CPU time at its end. `request`: 0, or the one that this answers. */
static uint64_t trim_and_note(uint64_t began, bool measures, uint64_t request) {
    uint64_t since = sys_monotonic_ns();
    state.trim(0);
    uint64_t ended = sys_clock_ns(SYS_CLOCK_THREAD_CPU);
    struct budget_look after = look(measures);
    uint64_t returned = budget_note(&state.budget, &after, ended - began);
    if (request != 0)
        asked_answer(request, returned, after.now_ns - since);
    return ended;
}

void give_back_if_allowed(bool measures, uint64_t wait_ns) {
    int kept = errno;
    uint64_t paid = sys_clock_ns(SYS_CLOCK_THREAD_CPU);
    struct budget_look now = look(measures);
    now.wait_ns = wait_ns;
    uint64_t request = asked_now();
    if (budget_allows(&state.budget, &now) || request != 0) {
        if (begin_trim())
            paid = trim_and_note(paid, measures, request);
        end_trim();
    }
    budget_spend(&state.budget, sys_clock_ns(SYS_CLOCK_THREAD_CPU) - paid);
    errno = kept;
}
