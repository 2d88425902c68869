// SPDX-License-Identifier: Apache-2.0
/* budget - the budget of giving pages back, on a clock and a process that are made up. */
#include <stdio.h>

#include "../../hook/budget.h"

#define SECOND UINT64_C(1000000000)
#define SHARE 10000

static int passed, failed;

#define CHECK(what, condition)                                     \
    do {                                                           \
        if (condition)                                             \
            passed++;                                              \
        else {                                                     \
            failed++;                                              \
            printf("budget: %s: failed (%s)\n", what, #condition); \
        }                                                          \
    } while (0)

/* A process that works `load` of the time, holds `live` pages, and takes and frees `freed` more a second. Each trim costs
 * `walk_ns` and returns all free pages. */
struct process {
    double load;
    uint64_t live, freed, walk_ns;
};

struct course {
    uint64_t trims, cpu_ns, cost_ns, longest_gap, most_given;
};

static struct course follow(struct process process, unsigned seconds) {
    struct budget budget;
    struct course course = {0, 0, 0, 0, 0};
    struct budget_look now = {.resident = process.live, .wait_ns = BUDGET_UNKNOWN};
    uint64_t free_pages = 0, given = 0, last = 0;
    budget_begin(&budget, SHARE, &now);
    for (unsigned second = 1; second <= seconds; second++) {
        uint64_t back = process.freed < given ? process.freed : given;
        given -= back;
        free_pages += process.freed;
        course.cost_ns += back * 500;
        course.cpu_ns += (uint64_t)(process.load * (double)SECOND);
        now = (struct budget_look){second * SECOND, course.cpu_ns, process.live + free_pages, BUDGET_UNKNOWN};
        if (!budget_allows(&budget, &now))
            continue;
        given += free_pages;
        course.most_given = given > course.most_given ? given : course.most_given;
        free_pages = 0;
        course.trims++;
        course.cost_ns += process.walk_ns;
        course.longest_gap = second - last > course.longest_gap ? second - last : course.longest_gap;
        last = second;
        now.resident = process.live;
        budget_note(&budget, &now, process.walk_ns);
    }
    return course;
}

static void the_share_is_kept(void) {
    for (double load = 0.01; load < 4; load *= 2) {
        for (uint64_t walk = 100000; walk <= UINT64_C(100000000); walk *= 10) {
            struct process process = {.load = load, .live = 10000, .freed = 3000, .walk_ns = walk};
            struct course course = follow(process, 3600);
            /* one walk is made before its cost is known, and pages are paid for when they come back */
            double once = (double)walk + 500.0 * (double)course.most_given;
            CHECK("the share is kept", (double)course.cost_ns <= 0.0101 * (double)course.cpu_ns + once);
        }
    }
}

/* 16 processors at work: others may wait while pages are given back. */
static void the_time_is_kept(void) {
    struct course course = follow((struct process){.load = 16, .live = 10000, .freed = 3000, .walk_ns = 100000000}, 3600);
    double once = 100000000 + 500.0 * (double)course.most_given;
    CHECK("the share of the time is kept", course.trims > 10 && (double)course.cost_ns <= 0.0101 * 3600 * (double)SECOND + once);
}

static void a_wait_is_not_prolonged(void) {
    struct budget budget;
    struct budget_look now = {.resident = 1000, .wait_ns = BUDGET_UNKNOWN};
    budget_begin(&budget, SHARE, &now);
    budget.last_cost_ns = 1000000;
    now = (struct budget_look){10 * SECOND, 10 * SECOND, 1000, 1900000};
    CHECK("no trim in a wait that is hardly longer", !budget_allows(&budget, &now));
    now.wait_ns = 2000000;
    CHECK("one in a wait of twice its time", budget_allows(&budget, &now));
}

static void it_acts(void) {
    struct course busy = follow((struct process){.load = 1, .live = 10000, .freed = 3000, .walk_ns = 1000000}, 600);
    CHECK("a busy process is trimmed every other second", busy.trims >= 290 && busy.trims <= 301);
    struct course calm = follow((struct process){.load = 0.1, .live = 10000, .freed = 1000, .walk_ns = 100000}, 600);
    CHECK("a calm one each second, once the first may cost what is expected", calm.trims >= 540);
    struct course full = follow((struct process){.load = 0.1, .live = 100000, .freed = 0, .walk_ns = 100000}, 3600);
    CHECK("one that has nothing to give is asked ever more rarely", full.trims < 80 && full.longest_gap >= 60);
    struct course idle = follow((struct process){.load = 0.0000001, .live = 100000, .freed = 0, .walk_ns = 1000}, 3600);
    CHECK("one that does nothing is left alone", idle.trims == 0);
}

static void what_is_unknown_costs_more(void) {
    struct budget budget;
    struct budget_look now = {.resident = BUDGET_UNKNOWN, .wait_ns = BUDGET_UNKNOWN};
    budget_begin(&budget, SHARE, &now);
    now = (struct budget_look){2 * SECOND, 10 * SECOND, BUDGET_UNKNOWN, BUDGET_UNKNOWN};
    budget_allows(&budget, &now);
    budget_note(&budget, &now, 1000);
    CHECK("its cost counts five times", budget.spent_ns == 5000);
    now = (struct budget_look){7 * SECOND, 11 * SECOND, BUDGET_UNKNOWN, BUDGET_UNKNOWN};
    CHECK("and the pause is long", !budget_allows(&budget, &now));
    now = (struct budget_look){13 * SECOND, 12 * SECOND, BUDGET_UNKNOWN, BUDGET_UNKNOWN};
    CHECK("but ends", budget_allows(&budget, &now));
}

static void what_comes_back_is_paid_once(void) {
    struct budget budget;
    struct budget_look now = {.resident = 1000, .wait_ns = BUDGET_UNKNOWN};
    budget_begin(&budget, SHARE, &now);
    now = (struct budget_look){2 * SECOND, 10 * SECOND, 5000, BUDGET_UNKNOWN};
    budget_allows(&budget, &now);
    now.resident = 2000;
    budget_note(&budget, &now, 100);
    CHECK("given pages cost nothing", budget.spent_ns == 100 && budget.owed == 3000);
    uint64_t seen[] = {3000, 2500, 3000, 9000, 20000};
    for (unsigned i = 0; i < 5; i++) {
        now.resident = seen[i];
        now.now_ns += SECOND / 10;
        budget_allows(&budget, &now);
    }
    CHECK("what came back is paid, and no more than was given", budget.spent_ns == 100 + 3000 * 500 && budget.owed == 0);
}

int main(void) {
    the_share_is_kept();
    the_time_is_kept();
    a_wait_is_not_prolonged();
    it_acts();
    what_is_unknown_costs_more();
    what_comes_back_is_paid_once();
    printf("budget: %d passed, %d failed\n", passed, failed);
    return failed != 0;
}
