// SPDX-License-Identifier: Apache-2.0
/* Test 8: time of a long mixed load, nanoseconds of the process's own time per malloc or free, the
 * load's own work (drawing, writing each block once) included. */
#include "workload.h"

#include <time.h>

enum { STEPS = 400000 };

static size_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (size_t)now.tv_sec * 1000000000u + (size_t)now.tv_nsec;
}

int main(int argc, char **argv)
{
    static struct workload w;
    workload_start(&w, argc, argv, "test 8 to time a long mixed load");
    size_t start_ns = now_ns();
    workload_mix(&w, STEPS);
    size_t elapsed_ns = now_ns() - start_ns;
    report("operations", w.operations);
    report("ns_per_operation", elapsed_ns / w.operations);
    return 0;
}
