// SPDX-License-Identifier: Apache-2.0
/*
 * Rust's start-up ignores SIGPIPE before main, whatever it was before, and std::process gives every child the
 * default. A service of systemd begins with SIGPIPE ignored: started through `imas run` it would die of its
 * first client that hangs up. So what it was is noted before Rust begins, where the rest of the command can
 * read it without unsafe code: in the environment.
 */
#include <signal.h>
#include <stdlib.h>

#define NOTE "IMAS_SIGPIPE_IGNORED" /* imas_linux::environment::SIGPIPE_IGNORED */

__attribute__((constructor)) static void note_sigpipe(void) {
    struct sigaction was;
    if (sigaction(SIGPIPE, NULL, &was) == 0 && was.sa_handler == SIG_IGN) {
        setenv(NOTE, "1", 1);
    } else {
        unsetenv(NOTE);
    }
}
