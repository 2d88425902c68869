// SPDX-License-Identifier: Apache-2.0
/* A malloc_trim during which a signal comes. Preloaded behind what gives back, which takes it for that of libc. */
#include <signal.h>
#include <unistd.h>

volatile int trims, in_trim;

int malloc_trim(unsigned long pad) {
    (void)pad;
    in_trim = 1;
    kill(getpid(), SIGALRM);
    for (volatile int i = 0; i < 1000000; i++) {
    }
    in_trim = 0;
    trims++;
    return 1;
}
