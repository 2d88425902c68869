// SPDX-License-Identifier: Apache-2.0
/* longjmp out of nested calls, and siglongjmp out of a handler that runs at any instant outside malloc. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static jmp_buf back;
static sigjmp_buf out;
static volatile sig_atomic_t may_jump, jumps;

static int compare(const void *a, const void *b) {
    static int calls;
    free(malloc(300));
    if (++calls % 7 == 0)
        longjmp(back, 1);
    return *(const int *)a - *(const int *)b;
}

static void on_alarm(int signal) {
    (void)signal;
    free(malloc(64)); /* legal here: the program is interrupted in its own loop only */
    if (may_jump) {
        may_jump = 0;
        jumps++;
        siglongjmp(out, 1);
    }
}

static void out_of_handler(void) {
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm, NULL);
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &timer, NULL);
    while (jumps < 100) {
        for (int i = 0; i < 500; i++)
            free(malloc((size_t)i));
        if (sigsetjmp(out, 1) == 0) {
            may_jump = 1;
            sigprocmask(SIG_UNBLOCK, &alarm, NULL);
            for (;;) {
            }
        }
    }
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
}

int main(void) {
    int numbers[64];
    volatile int rounds = 0;
    while (rounds < 1000) {
        for (int i = 0; i < 64; i++)
            numbers[i] = (i * 37) % 64;
        if (setjmp(back) == 0)
            qsort(numbers, 64, sizeof *numbers, compare);
        rounds++;
    }
    out_of_handler();
    printf("%d %d\n", rounds, (int)jumps);
    return 0;
}
