// SPDX-License-Identifier: Apache-2.0
/*
 * holes [blocked]: fills 28 MB with blocks of 36 bytes, frees seven of eight, and allocates a little for a
 * second and four times as long as that took, and until standard input ends: most of what is resident is then
 * free blocks that the allocator keeps. With `blocked`, a signal is blocked all the while.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCKS 600000

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Whether nobody is left who could write to it; true of a file and of /dev/null at once. */
static int input_has_ended(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, 0) != 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "blocked") == 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
    }
    static char *block[BLOCKS];
    double begin = now();
    for (int i = 0; i < BLOCKS; i++)
        memset(block[i] = malloc(36), 1, 36);
    for (int i = 0; i < BLOCKS; i++) {
        if (i % 8 != 0)
            free(block[i]);
    }
    for (double end = now() + 1 + 4 * (now() - begin); now() < end || !input_has_ended();) {
        for (int i = 0; i < 1000; i++) {
            char *volatile one = malloc(64);
            *one = 1;
            free(one);
        }
    }
    puts("done");
    return 0;
}
