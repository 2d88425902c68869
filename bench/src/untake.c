// SPDX-License-Identifier: Apache-2.0
/* untake PAGE PROGRAM ARGUMENTS... - removes the page of a trial, so that it is due again, then executes the
 * program. */
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    unlink(argv[1]);
    execv(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
