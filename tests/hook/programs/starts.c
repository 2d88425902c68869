// SPDX-License-Identifier: Apache-2.0
/* starts WAY NAME=VALUE PROGRAM: starts PROGRAM with one argument and that variable, in that way. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int finish(pid_t pid) {
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int spawn(const char *way, const char *path, char **arguments) {
    pid_t pid;
    int error = strcmp(way, "posix_spawn") == 0 ? posix_spawn(&pid, path, NULL, NULL, arguments, environ)
                                                : posix_spawnp(&pid, path, NULL, NULL, arguments, environ);
    return error != 0 ? 127 : finish(pid);
}

static int in_vfork(const char *path, char **arguments) {
    pid_t pid = vfork();
    if (pid == 0) {
        execve(path, arguments, environ);
        _exit(127);
    }
    return finish(pid);
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    const char *way = argv[1], *path = argv[3];
    char *arguments[] = {argv[3], "-0", NULL};
    putenv(argv[2]);
    if (strcmp(way, "execve") == 0)
        execve(path, arguments, environ);
    else if (strcmp(way, "execv") == 0)
        execv(path, arguments);
    else if (strcmp(way, "execvp") == 0)
        execvp(path, arguments);
    else if (strcmp(way, "execvpe") == 0)
        execvpe(path, arguments, environ);
    else if (strcmp(way, "execl") == 0)
        execl(path, argv[3], "-0", (char *)NULL);
    else if (strcmp(way, "execlp") == 0)
        execlp(path, argv[3], "-0", (char *)NULL);
    else if (strcmp(way, "execle") == 0)
        execle(path, argv[3], "-0", (char *)NULL, environ);
    else if (strcmp(way, "vfork") == 0)
        return in_vfork(path, arguments);
    else
        return spawn(way, path, arguments);
    return 127;
}
