// SPDX-License-Identifier: Apache-2.0
// What the programs of the mobile study share: CPU time, and figures as one JSON object on standard output.
#ifndef IMAS_MOBILE_FIGURES_H
#define IMAS_MOBILE_FIGURES_H

#include "../literature/common.h"

#include <time.h>

static inline double seconds_of(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) fail("the clock cannot be read");
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// CPU time of all threads: on a shared machine elapsed time says more of the others.
static inline double cpu_seconds(void) { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }

static inline void figure(const char *name, double value)
{
    static int any;
    printf("%s\"%s\":%.3f", any++ ? "," : "{", name, value);
}

static inline void end_of_figures(void)
{
    puts("}");
    if (fflush(stdout) != 0) fail("the figures cannot be written");
}

// A volatile store per page: memory that was only reserved would look free.
static inline void touch(void *block, size_t size)
{
    volatile unsigned char *bytes = block;
    for (size_t i = 0; i < size; i += 4096) bytes[i] = (unsigned char)i;
    bytes[size - 1] = 1;
}

#endif
