// SPDX-License-Identifier: Apache-2.0
#include "budget.h"

#include <stddef.h>

#define SECOND UINT64_C(1000000000)
#define COME_BACK_NS 500 /* a soft page fault, and the page cleared */
#define WALK_NS 400      /* for each resident page: expected of the first trim, before one was measured */
#define UNKNOWN_FACTOR 5 /* for the trim, and four times that for pages that come back: a guess on the high side */
#define SHORTEST SECOND
#define LONGEST (60 * SECOND)
#define UNKNOWN_PAUSE (10 * SECOND)
#define LITTLE 64 /* pages; and less than a hundredth of those that are resident */
#define WORTH_A_LOOK_NS 1000000 /* with less CPU time since the last time the heap has hardly changed */

void budget_begin(struct budget *budget, uint64_t share_millionths, const struct budget_look *look) {
    *budget = (struct budget){.share_millionths = share_millionths, .pause_ns = SHORTEST, .floor = look->resident, .before = *look};
    budget->begun_ns = budget->trimmed_ns = look->now_ns;
}

static void pay_for_what_came_back(struct budget *budget, uint64_t resident) {
    if (resident == BUDGET_UNKNOWN)
        return;
    if (budget->floor != BUDGET_UNKNOWN && resident > budget->floor) {
        uint64_t grown = resident - budget->floor, back = grown < budget->owed ? grown : budget->owed;
        budget->owed -= back;
        budget->spent_ns += back * COME_BACK_NS;
    }
    budget->floor = resident;
}

static uint64_t expected_cost(const struct budget *budget, uint64_t resident) {
    bool first = budget->last_cost_ns == 0;
    return !first ? budget->last_cost_ns : resident != BUDGET_UNKNOWN ? resident * WALK_NS : WORTH_A_LOOK_NS;
}

/* With several threads the CPU time grows faster than the time. */
static uint64_t allowed_cost(const struct budget *budget, const struct budget_look *look) {
    uint64_t passed = look->now_ns - budget->begun_ns, least = look->cpu_ns < passed ? look->cpu_ns : passed;
    return least / 1000000 * budget->share_millionths + least % 1000000 * budget->share_millionths / 1000000;
}

/* A process that works may wait twice as long, for a quiet moment. */
static bool is_busy(const struct budget_look *before, const struct budget_look *now) {
    return (now->cpu_ns - before->cpu_ns) * 4 > now->now_ns - before->now_ns;
}

bool budget_allows(struct budget *budget, const struct budget_look *look) {
    pay_for_what_came_back(budget, look->resident);
    uint64_t since = look->now_ns - budget->trimmed_ns, worked = look->cpu_ns - budget->trimmed_cpu_ns;
    uint64_t pause = is_busy(&budget->before, look) ? budget->pause_ns * 2 : budget->pause_ns;
    uint64_t cost = expected_cost(budget, look->resident);
    budget->before = *look;
    return since >= pause && worked >= WORTH_A_LOOK_NS && cost <= look->wait_ns / 2 && budget->spent_ns + cost <= allowed_cost(budget, look);
}

static uint64_t next_pause(const struct budget *budget, uint64_t given, uint64_t resident) {
    if (given >= LITTLE && given >= resident / 100)
        return SHORTEST;
    return budget->pause_ns * 2 < LONGEST ? budget->pause_ns * 2 : LONGEST;
}

uint64_t budget_note(struct budget *budget, const struct budget_look *after, uint64_t cost_ns) {
    uint64_t before = budget->before.resident;
    bool known = before != BUDGET_UNKNOWN && after->resident != BUDGET_UNKNOWN;
    uint64_t given = known && before > after->resident ? before - after->resident : 0;
    budget->owed += given;
    budget->last_cost_ns = known ? cost_ns : cost_ns * UNKNOWN_FACTOR;
    budget->spent_ns += budget->last_cost_ns;
    budget->pause_ns = known ? next_pause(budget, given, after->resident) : UNKNOWN_PAUSE;
    budget->floor = after->resident;
    budget->trimmed_ns = after->now_ns;
    budget->trimmed_cpu_ns = after->cpu_ns;
    budget->before = *after;
    return known ? given : BUDGET_UNKNOWN;
}

void budget_spend(struct budget *budget, uint64_t cost_ns) {
    budget->spent_ns += cost_ns;
}
