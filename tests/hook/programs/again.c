// SPDX-License-Identifier: Apache-2.0
/*
 * again WAY TIMES PATH: allocates, prints what serves and its environment, and starts PATH with TIMES - 1 in that way, until
 * TIMES is 0. A way that begins with "child-" does it in a child. "set" gives other values before, "fail" is
 * refused first, "upgrade:COMMAND" runs a shell's command before.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { BLOCKS = 3000 };

static void show(const char *times) {
    const char *name = dlsym(RTLD_DEFAULT, "imas_allocator_name");
    printf("%s\t%s\t", times, name != NULL ? name : "libc");
    for (char **entry = environ; *entry != NULL; entry++)
        printf(" %s", *entry);
    printf("\n");
    fflush(stdout);
}

static int spawned(const char *way, const char *path, char **arguments) {
    pid_t pid;
    int error = strcmp(way, "posix_spawn") == 0 ? posix_spawn(&pid, path, NULL, NULL, arguments, environ)
                                                : posix_spawnp(&pid, path, NULL, NULL, arguments, environ);
    int status = -1;
    if (error == 0)
        waitpid(pid, &status, 0);
    return status;
}

static int replace(const char *way, const char *path, char **arguments) {
    if (strcmp(way, "execv") == 0)
        return execv(path, arguments);
    if (strcmp(way, "execvp") == 0)
        return execvp(path, arguments);
    if (strcmp(way, "execvpe") == 0)
        return execvpe(path, arguments, environ);
    if (strcmp(way, "execl") == 0)
        return execl(path, path, arguments[1], arguments[2], arguments[3], (char *)NULL);
    if (strcmp(way, "syscall") == 0)
        return (int)syscall(SYS_execve, path, arguments, environ);
    if (strcmp(way, "fexecve") == 0)
        return fexecve(open(path, O_RDONLY | O_CLOEXEC), arguments, environ);
    if (strcmp(way, "fail") == 0)
        execve(path, (char **)-1L, environ);
    if (strncmp(way, "upgrade:", 8) == 0 && system(way + 8) != 0)
        return 1;
    if (strcmp(way, "set") == 0)
        setenv("MALLOC_CONF", "narenas:2", 1), setenv("LD_PRELOAD", "libm.so.6", 1), setenv("NEW", "1", 1);
    return execve(path, arguments, environ);
}

static int in_child(const char *way, const char *path, char **arguments) {
    pid_t pid = strcmp(way, "vfork") == 0 ? vfork() : fork();
    if (pid == 0) {
        replace(way, path, arguments);
        _exit(127);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

int main(int count, char **words) {
    if (count != 4)
        return 2;
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(1000);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    show(words[2]);
    if (*words[2] == '0')
        return 0;
    char times[] = {(char)(*words[2] - 1), '\0'};
    char *arguments[] = {words[0], words[1], times, words[3], NULL};
    const char *way = words[1];
    if (strncmp(way, "posix_spawn", 11) == 0)
        return spawned(way, words[3], arguments) != 0;
    if (strncmp(way, "child-", 6) == 0)
        return in_child(way + 6, words[3], arguments) != 0;
    replace(way, words[3], arguments);
    return 127;
}
