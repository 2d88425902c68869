// SPDX-License-Identifier: Apache-2.0
#include "hold.h"

#include <signal.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

static sigset_t set_of(const int *signals, size_t count) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < count; i++) {
        sigaddset(&set, signals[i]);
    }
    return set;
}

static sigset_t before;
static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
#define ENDING (sizeof ending / sizeof *ending)

void hold_signals(void) {
    sigset_t set = set_of(ending, ENDING);
    sigaddset(&set, SIGPIPE);
    sigaddset(&set, SIGTSTP);
    sigprocmask(SIG_BLOCK, &set, &before);
}

void hold_release(void) {
    sigset_t pipe = set_of((const int[]){SIGPIPE}, 1);
    while (sigtimedwait(&pipe, NULL, &(struct timespec){0}) > 0) {
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
}

bool hold_wait(long nanoseconds) {
    sigset_t set = set_of(ending, ENDING);
    int came = sigtimedwait(&set, NULL, &(struct timespec){.tv_nsec = nanoseconds});
    if (came > 0) {
        kill(getpid(), came); /* the signal ends us now that the file is as it was */
    }
    return came > 0;
}
