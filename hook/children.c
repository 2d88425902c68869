// SPDX-License-Identifier: Apache-2.0
#include "children.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>

#include "../abi/imas_abi.h"
#include "environment.h"
#include "fitting.h"
#include "libc.h"
#include "object.h"
#include "sys.h"
#include "text.h"

extern char **environ;

typedef char *const *strings;
typedef int execve_call(const char *path, strings arguments, strings environment);
typedef int execv_call(const char *path, strings arguments);
/* posix_spawn; the third and the fourth argument are passed on as they are. */
typedef int spawn_call(pid_t *child, const char *path, const void *actions, const void *attributes, strings arguments,
                       strings environment);

static bool inherited; /* children inherit the candidate */

/* ---- the definitions after ours ------------------------------------------------------------------------ */

static struct {
    execve_call *execve, *execvpe;
    execv_call *execv, *execvp;
    spawn_call *posix_spawn, *posix_spawnp;
} real;

#define REAL(name) ((__typeof__(real.name))find((void **)&real.name, #name))

static void *find(void **kept, const char *name) {
    void *found = get_relaxed(*kept);
    if (unlikely(found == NULL)) {
        found = libc_dlsym != NULL ? object_next(name) : object_next_listed(name);
        set_relaxed(*kept, found);
    }
    return found;
}

void children_begin(char **environment) {
    /* Now: a child of vfork that searched would take ld.so's lock with its parent's memory. */
    REAL(execve), REAL(execvpe), REAL(execv), REAL(execvp), REAL(posix_spawn), REAL(posix_spawnp);
    inherited = environment_flag(environment, IMAS_ENV_FOLLOW) || environment_flag(environment, IMAS_ENV_TREE);
    if (inherited)
        fitting_begin();
}

/* ---- the environment ----------------------------------------------------------------------------------- */

/* The program's own environment, in memory of `*bytes`, where the child must not have the candidate; else NULL. Allocates
 * nothing by malloc: a child of vfork shares its parent's heap. */
static char **untouched(const char *path, strings given, size_t *bytes) {
    char **environment = (char **)given;
    if (environment == NULL || environment_value(environment, "LD_PRELOAD") == NULL ||
        (!environment_flag(environment, IMAS_ENV_FOLLOW) && !environment_flag(environment, IMAS_ENV_TREE)) ||
        fitting_can_load(path, environment))
        return NULL;
    size_t count = 0;
    while (environment[count] != NULL)
        count++;
    *bytes = (count + 1) * sizeof *environment;
    char **copy = sys_anonymous(*bytes);
    if (copy == NULL)
        return NULL;
    for (size_t i = 0; i <= count; i++)
        copy[i] = environment[i];
    environment_restore_all(copy);
    return copy;
}

/* Where execvp finds `file`, written to `path`; NULL if it is not known. */
static const char *search(const char *file, char *path) {
    if (text_contains(file, "/"))
        return file;
    const char *folders = environ != NULL ? environment_value(environ, "PATH") : NULL;
    for (const char *at = folders != NULL ? folders : "/bin:/usr/bin"; *at != '\0'; at += *at == ':') {
        const char *end = at;
        while (*end != ':' && *end != '\0')
            end++;
        size_t length = (size_t)(end - at);
        if (length != 0 && length + text_length(file) + 2 < PATH_MAX) {
            for (size_t i = 0; i < length; i++)
                path[i] = at[i];
            path[length] = '/';
            text_copy(path + length + 1, PATH_MAX - length - 1, file);
            if (sys3(SYS_faccessat, AT_FDCWD, path, 1 /* X_OK */) == 0)
                return path;
        }
        at = end;
    }
    return NULL;
}

/* ---- the functions ------------------------------------------------------------------------------------- */

static int not_there(void) {
    errno = ENOSYS;
    return -1;
}

/* Runs `call` with the program's own environment or, where there is none, returns false. */
#define WITH_UNTOUCHED(path, environment, call)                                                                        \
    size_t bytes;                                                                                                      \
    char **own = unlikely(inherited) ? untouched(path, environment, &bytes) : NULL;                                    \
    if (unlikely(own != NULL)) {                                                                                       \
        int result = call;                                                                                             \
        sys2(SYS_munmap, own, bytes);                                                                                  \
        return result;                                                                                                 \
    }

EXPORT int execve(const char *path, strings arguments, strings environment) {
    execve_call *next = REAL(execve);
    if (unlikely(next == NULL))
        return not_there();
    WITH_UNTOUCHED(path, environment, next(path, arguments, own))
    return next(path, arguments, environment);
}

EXPORT int execv(const char *path, strings arguments) {
    execve_call *with = REAL(execve);
    execv_call *next = REAL(execv);
    if (unlikely(with == NULL || next == NULL))
        return not_there();
    WITH_UNTOUCHED(path, environ, with(path, arguments, own))
    return next(path, arguments);
}

EXPORT int execvpe(const char *file, strings arguments, strings environment) {
    char path[PATH_MAX];
    execve_call *next = REAL(execvpe);
    if (unlikely(next == NULL))
        return not_there();
    WITH_UNTOUCHED(search(file, path), environment, next(file, arguments, own))
    return next(file, arguments, environment);
}

EXPORT int execvp(const char *file, strings arguments) {
    char path[PATH_MAX];
    execve_call *with = REAL(execvpe);
    execv_call *next = REAL(execvp);
    if (unlikely(with == NULL || next == NULL))
        return not_there();
    WITH_UNTOUCHED(search(file, path), environ, with(file, arguments, own))
    return next(file, arguments);
}

EXPORT int posix_spawn(pid_t *child, const char *path, const void *actions, const void *attributes, strings arguments,
                       strings environment) {
    spawn_call *next = REAL(posix_spawn);
    if (unlikely(next == NULL))
        return ENOSYS;
    WITH_UNTOUCHED(path, environment, next(child, path, actions, attributes, arguments, own))
    return next(child, path, actions, attributes, arguments, environment);
}

EXPORT int posix_spawnp(pid_t *child, const char *file, const void *actions, const void *attributes, strings arguments,
                        strings environment) {
    char path[PATH_MAX];
    spawn_call *next = REAL(posix_spawnp);
    if (unlikely(next == NULL))
        return ENOSYS;
    WITH_UNTOUCHED(search(file, path), environment, next(child, file, actions, attributes, arguments, own))
    return next(child, file, actions, attributes, arguments, environment);
}

/* The arguments of execl and its like, after the first, as an array of `count` and a NULL. */
static void collect(char **arguments, const char *first, size_t count, va_list list) {
    arguments[0] = (char *)first;
    for (size_t i = 1; i <= count; i++)
        arguments[i] = va_arg(list, char *);
}

static size_t count_in(const char *first, va_list list) {
    size_t count = 0;
    for (; first != NULL; first = va_arg(list, const char *))
        count++;
    return count;
}

#define COLLECTED(first)                                                                                               \
    va_list list;                                                                                                      \
    va_start(list, first);                                                                                             \
    size_t count = count_in(first, list);                                                                              \
    va_end(list);                                                                                                      \
    char *arguments[count + 1];                                                                                        \
    va_start(list, first);                                                                                             \
    collect(arguments, first, count, list);

EXPORT int execl(const char *path, const char *first, ...) {
    COLLECTED(first)
    va_end(list);
    return execv(path, arguments);
}

EXPORT int execlp(const char *file, const char *first, ...) {
    COLLECTED(first)
    va_end(list);
    return execvp(file, arguments);
}

EXPORT int execle(const char *path, const char *first, ...) {
    COLLECTED(first)
    strings environment = va_arg(list, strings);
    va_end(list);
    return execve(path, arguments, environment);
}
