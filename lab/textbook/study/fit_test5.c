// SPDX-License-Identifier: Apache-2.0
/* Test 5: fragmentation after a mixed load: the share of the heap that no live block uses,
 * (heap - live) / heap, in parts per million, when a random load has long been in balance. */
#include "workload.h"

enum { STEPS = 60000 };

int main(int argc, char **argv)
{
    static struct workload w;
    workload_start(&w, argc, argv, "test 5 to measure fragmentation after a mixed load");
    workload_mix(&w, STEPS);
    size_t heap_bytes = workload_heap_bytes(&w);
    report("live_bytes", w.live_bytes);
    report("heap_bytes", heap_bytes);
    report("fragmentation_ppm", (heap_bytes - w.live_bytes) * 1000000 / heap_bytes);
    return 0;
}
