// SPDX-License-Identifier: Apache-2.0
/* exec in the same pid: execs PROGRAM ARGUMENTS... after some allocation. */
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    for (int i = 0; i < 5000; i++)
        free(malloc((size_t)i));
    if (argc > 1)
        execvp(argv[1], argv + 1);
    return 126;
}
