// SPDX-License-Identifier: Apache-2.0
/*
 * budget.h - when free pages are given back, and what that may cost: a share of the CPU time that the process takes,
 * and no more than that share of the time that passes, for other threads may wait meanwhile.
 *
 * The cost is the pacer's own CPU time, and COME_BACK_NS for each page that was given back and came back. A page
 * that never comes back costs nothing. No clock and no system call here: the caller says what it sees.
 */
#ifndef IMAS_HOOK_BUDGET_H
#define IMAS_HOOK_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define BUDGET_UNKNOWN UINT64_MAX /* the resident pages, where they cannot be read */

/* What the caller sees of the process. */
struct budget_look {
    uint64_t now_ns;   /* a clock that does not stop */
    uint64_t cpu_ns;   /* of the process, since it began */
    uint64_t resident; /* pages, or BUDGET_UNKNOWN */
    uint64_t wait_ns;  /* how long the process waits in any case, BUDGET_UNKNOWN: no matter */
};

struct budget {
    uint64_t share_millionths; /* of the process's CPU time, and of the time since begun_ns */
    uint64_t begun_ns;
    uint64_t spent_ns;
    uint64_t owed;  /* pages that were given back and have not come back */
    uint64_t floor; /* resident pages, as they were seen last */
    uint64_t last_cost_ns;
    uint64_t pause_ns;
    uint64_t trimmed_ns, trimmed_cpu_ns; /* the last time that pages were given back */
    struct budget_look before;           /* the look before this one */
};

void budget_begin(struct budget *budget, uint64_t share_millionths, const struct budget_look *look);

/* Takes in what is seen: pages that came back are paid for. Returns whether pages may be given back now. */
bool budget_allows(struct budget *budget, const struct budget_look *look);

/* Pages were given back: what is seen afterwards, and the CPU time that it took. Returns how many, or BUDGET_UNKNOWN. */
uint64_t budget_note(struct budget *budget, const struct budget_look *after, uint64_t cost_ns);

/* The pacer's own CPU time besides. */
void budget_spend(struct budget *budget, uint64_t cost_ns);

#endif
