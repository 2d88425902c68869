// SPDX-License-Identifier: Apache-2.0
/* Test 7: the largest heap of a program that works in peaks: build up to a megabyte, tear nine
 * tenths of it down, each peak with blocks of another size range. What is kept of one peak decides
 * how much of the heap the next can use. Prints the peak of the live bytes beside the heap. */
#include "workload.h"

enum { PEAKS = 20, PEAK_BYTES = 1024 * 1024, LEAST_MAX = 1024, KEPT_OF_TEN = 1 };

static void build_up(struct workload *w, size_t least, size_t most)
{
    for (size_t at = 0; at < SLOTS && w->live_bytes < PEAK_BYTES; at++)
        if (!w->slot[at])
            workload_allocate(w, at, workload_draw(w, least, most));
}

static void tear_down(struct workload *w)
{
    for (size_t at = 0; at < SLOTS; at++)
        if (w->slot[at] && workload_draw(w, 1, 10) > KEPT_OF_TEN)
            workload_release(w, at);
}

/* Small sizes as often as large ones: the range is drawn by its power of two. */
static size_t draw_least(struct workload *w)
{
    size_t least = 64;
    while (least < LEAST_MAX && workload_draw(w, 0, 3))
        least *= 2;
    return least;
}

int main(int argc, char **argv)
{
    static struct workload w;
    workload_start(&w, argc, argv, "test 7 to measure the largest heap of a load with peaks");
    for (int peak = 0; peak < PEAKS; peak++) {
        size_t least = draw_least(&w);
        build_up(&w, least, least * workload_draw(&w, 2, 8));
        tear_down(&w);
    }
    report("peak_live_bytes", w.peak_live_bytes);
    report("max_heap_bytes", workload_heap_bytes(&w));
    return 0;
}
