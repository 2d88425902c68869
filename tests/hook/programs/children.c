// SPDX-License-Identifier: Apache-2.0
/* children N: forks fifty children, each of which makes N calls of malloc and free and ends. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int calls = argc > 1 ? atoi(argv[1]) : 0;
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (int call = 0; call < calls; call++)
                free(malloc(20));
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
    puts("children");
    return 0;
}
