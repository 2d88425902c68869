// SPDX-License-Identifier: Apache-2.0
/* old_spawn SCRIPT: starts a file without #! by posix_spawn and posix_spawnp, as glibc had them before 2.15 and has them
 * now. Prints the errors, and what the script says. */
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

extern char **environ;

#ifdef OLD
__asm__(".symver posix_spawn, posix_spawn@GLIBC_2.2.5");
__asm__(".symver posix_spawnp, posix_spawnp@GLIBC_2.2.5");
#endif

static void report(int error, pid_t child) {
    int status = -1;
    if (error == 0)
        waitpid(child, &status, 0);
    printf("error %d, status %d\n", error, status);
    fflush(stdout);
}

int main(int count, char **words) {
    char *arguments[] = {"shown as", "first", "second word", NULL};
    pid_t child = 0;
    (void)count;
    int error = posix_spawn(&child, words[1], NULL, NULL, arguments, environ);
    report(error, child);
    error = posix_spawnp(&child, words[2], NULL, NULL, arguments, environ);
    report(error, child);
    return 0;
}
