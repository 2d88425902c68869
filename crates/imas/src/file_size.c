// SPDX-License-Identifier: Apache-2.0
/*
 * Under a limit for the size of files (`ulimit -f`) a write beyond it kills the process by SIGXFSZ: a start
 * would end in IMAS's own files. With a handler the write fails instead, and the program starts without us. A
 * handler, and not SIG_IGN: exec gives a signal that has a handler its default again, so the program finds
 * what was there before. Where the signal is ignored already it stays ignored.
 */
#include <signal.h>
#include <stddef.h>

static void let_the_write_fail(int signal_number) {
    (void)signal_number;
}

__attribute__((constructor)) static void survive_file_size_limit(void) {
    struct sigaction was;
    if (sigaction(SIGXFSZ, NULL, &was) != 0 || was.sa_handler != SIG_DFL)
        return;
    struct sigaction ours = {.sa_handler = let_the_write_fail, .sa_flags = SA_RESTART};
    sigaction(SIGXFSZ, &ours, NULL);
}
