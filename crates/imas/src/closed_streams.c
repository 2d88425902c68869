// SPDX-License-Identifier: Apache-2.0
/*
 * Rust's start-up opens /dev/null for each standard stream that is closed, and a program that is started by
 * `imas run` would inherit it: what it writes would be lost without an error. So it is opened before Rust
 * begins, as a file that exec closes again: IMAS has its three streams, and the program finds those closed
 * that were.
 */
#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void fill_closed_streams(void) {
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        // The lowest number that is free is this one.
        if (fcntl(stream, F_GETFD) == -1 && open("/dev/null", O_RDWR | O_CLOEXEC) == -1)
            return;
    }
}
