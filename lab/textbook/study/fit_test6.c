// SPDX-License-Identifier: Apache-2.0
/* Test 6: heap growth under sizes that creep up, the load that punishes crumbs. In each round a
 * random half of the blocks goes and is replaced by blocks one eighth larger on average. Prints
 * how far the break moved, and how often. */
#include "workload.h"

enum { BLOCKS = 1000, ROUNDS = 20, FIRST_BYTES = 64 };

static void fill(struct workload *w, size_t mean_bytes)
{
    for (size_t at = 0; at < BLOCKS; at++)
        if (!w->slot[at])
            workload_allocate(w, at, workload_draw(w, mean_bytes / 2, mean_bytes * 3 / 2));
}

static void thin_out(struct workload *w)
{
    for (size_t at = 0; at < BLOCKS; at++)
        if (workload_draw(w, 0, 1))
            workload_release(w, at);
}

int main(int argc, char **argv)
{
    static struct workload w;
    workload_start(&w, argc, argv, "test 6 to measure heap growth as sizes creep up");
    size_t mean_bytes = FIRST_BYTES;
    for (int round = 0; round < ROUNDS; round++) {
        fill(&w, mean_bytes);
        thin_out(&w);
        mean_bytes += mean_bytes / 8;
    }
    report("live_bytes", w.live_bytes);
    report("growth_bytes", workload_heap_bytes(&w));
    report("break_moves", w.break_moves);
    return 0;
}
