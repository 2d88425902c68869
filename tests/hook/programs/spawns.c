// SPDX-License-Identifier: Apache-2.0
/* vfork with _exit and with exec, posix_spawn, system, popen; what they start sees the environment of the
 * caller. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char look[] = "env | grep -E '^(LD_PRELOAD|IMAS|GLIBC_TUNABLES)' ; exit 5";

static int finish(pid_t pid) {
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int vfork_exit(void) {
    pid_t pid = vfork();
    if (pid == 0)
        _exit(9);
    return finish(pid);
}

static int vfork_exec(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", look, (char *)NULL);
        _exit(127);
    }
    return finish(pid);
}

static int spawn(void) {
    char *arguments[] = {"sh", "-c", (char *)look, NULL};
    pid_t pid;
    if (posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ) != 0)
        return -1;
    return finish(pid);
}

int main(void) {
    void *block = malloc(100);
    for (int i = 0; i < 20; i++)
        if (vfork_exit() != 9)
            return 1;
    fflush(stdout);
    printf("%d %d %d\n", vfork_exec(), spawn(), WEXITSTATUS(system(look)));
    FILE *pipe = popen("env | grep -c IMAS", "r");
    char line[100] = "";
    printf("%s", fgets(line, sizeof line, pipe));
    pclose(pipe);
    free(block);
    return 0;
}
