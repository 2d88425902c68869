// SPDX-License-Identifier: Apache-2.0
#include "children.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "../abi/imas_abi.h"
#include "again.h"
#include "clean_environment.h"
#include "environment.h"
#include "exit_note.h"
#include "fitting.h"
#include "next_found.h"
#include "page.h"
#include "sys.h"
#include "text.h"

extern char **environ;

typedef char *const *strings;
typedef int execve_call(const char *path, strings arguments, strings environment);
typedef int execv_call(const char *path, strings arguments);
typedef int fexecve_call(int fd, strings arguments, strings environment);
/* posix_spawn; the third and the fourth argument are passed on as they are. */
typedef int spawn_call(pid_t *child, const char *path, const void *actions, const void *attributes, strings arguments,
                       strings environment);

static bool inherited; /* children inherit the candidate */
static bool watching;  /* which programs are started matters */
static bool by_shell;  /* what is no program is started by a shell */

/* ---- the definitions after ours ------------------------------------------------------------------------ */

static struct {
    execve_call *execve, *execvpe;
    execv_call *execv, *execvp;
    fexecve_call *fexecve;
    spawn_call *posix_spawn, *posix_spawnp;
} real;

#define REAL(name) NEXT_FOUND(real.name, #name)

/* Of this version posix_spawn lets a shell run what is neither a program nor begins with #!; since 2.15 it refuses it.
 * Ours is without a version, and what it passes on to is libc's newest. */
#define SPAWNS_BY_SHELL "GLIBC_2.2.5"

void children_begin(char **environment) {
    /* Now: a child of vfork that searched would take ld.so's lock with its parent's memory. */
    REAL(execve), REAL(execvpe), REAL(execv), REAL(execvp), REAL(posix_spawn), REAL(posix_spawnp);
    REAL(fexecve);
    inherited = environment_flag(environment, IMAS_ENV_FOLLOW) || environment_flag(environment, IMAS_ENV_TREE);
    by_shell = fitting_program_asks_for("posix_spawn", SPAWNS_BY_SHELL) || fitting_program_asks_for("posix_spawnp", SPAWNS_BY_SHELL);
    if (inherited)
        fitting_begin();
    else
        again_begin(environment);
    watching = inherited || again_is_possible();
}

/* ---- children that must not have the candidate --------------------------------------------------------- */

/* A larger environment is passed on as it is: its copy is on the stack. */
#define MOST_VARIABLES 4096

static bool write_path(const char *file, bool by_path, char *path) {
    if (by_path && !text_contains(file, "/"))
        return fitting_find(environ != NULL ? environment_value(environ, "PATH") : NULL, file, path);
    text_copy(path, FITTING_PATH_BYTES, file);
    return text_length(file) < FITTING_PATH_BYTES;
}

/* The path is in memory of its own, given back before the program starts: small stacks have no room for it. */
static bool can_load(const char *file, bool by_path, char **environment) {
    char *path = sys_anonymous(FITTING_PATH_BYTES);
    if (path == NULL)
        return true;
    bool can = fitting_can_load(write_path(file, by_path, path) ? path : NULL, environment);
    sys2(SYS_munmap, path, FITTING_PATH_BYTES);
    return can;
}

static size_t count_of(strings environment) {
    size_t count = 0;
    while (environment[count] != NULL)
        count++;
    return count;
}

/* Whether the child must not have the candidate. */
static bool must_be_clean(const char *file, bool by_path, strings environment) {
    char **own = (char **)environment;
    return own != NULL && file != NULL && environment_value(own, "LD_PRELOAD") != NULL &&
           (environment_flag(own, IMAS_ENV_FOLLOW) || environment_flag(own, IMAS_ENV_TREE)) &&
           count_of(environment) < MOST_VARIABLES && !can_load(file, by_path, own);
}

/* The program's own environment. On the stack of its user, for after vfork what is mapped would stay in the parent. */
#define CLEAN(environment)                                                                                             \
    size_t count = count_of(environment);                                                                              \
    char *own[count + 2], preload[clean_environment_bytes((char **)environment)];                                      \
    for (size_t i = 0; i <= count; i++)                                                                                \
        own[i] = environment[i];                                                                                       \
    clean_environment(own, preload);

static __attribute__((noinline)) int exec_clean(execve_call *next, const char *file, strings arguments, strings environment) {
    CLEAN(environment)
    return next(file, arguments, own);
}

static __attribute__((noinline)) int spawn_clean(spawn_call *next, pid_t *child, const char *file, const void *actions,
                                                 const void *attributes, strings arguments, strings environment) {
    CLEAN(environment)
    return next(child, file, actions, attributes, arguments, own);
}

/* ---- the own file once more ---------------------------------------------------------------------------- */

static enum again look_by_path(const char *file, strings environment, enum again_place place, struct again_script **script) {
    char *path = sys_anonymous(FITTING_PATH_BYTES);
    if (path == NULL)
        return AGAIN_OTHER;
    bool is_found = write_path(file, true, path);
    enum again found = is_found ? again_look(AT_FDCWD, path, 0, environment, place, script) : AGAIN_OTHER;
    sys2(SYS_munmap, path, FITTING_PATH_BYTES);
    return found;
}

static enum again look(const char *file, bool by_path, strings environment, enum again_place place, struct again_script **script) {
    if (inherited || !watching || file == NULL)
        return AGAIN_OTHER;
    return by_path ? look_by_path(file, environment, place, script)
                   : again_look(AT_FDCWD, file, 0, environment, place, script);
}

/* The environment of such a start; on the stack, as that of CLEAN. */
#define AGAIN(environment, page)                                                                                       \
    size_t count = count_of(environment);                                                                              \
    char *own[count + 1 + again_entries(environment)], text[again_bytes(environment)];                                 \
    for (size_t i = 0; i <= count; i++)                                                                                \
        own[i] = environment[i];                                                                                       \
    again_environment(own, text, page);

/* What execve or fexecve is called with. */
struct exec {
    execve_call *by_name;
    fexecve_call *by_descriptor; /* where by_name is NULL */
    const char *file;
    int fd;
    strings arguments;
};

static int call(const struct exec *exec, strings environment) {
    return exec->by_name != NULL ? exec->by_name(exec->file, exec->arguments, environment)
                                 : exec->by_descriptor(exec->fd, exec->arguments, environment);
}

/* The page goes on with the process, unless this is a child, or another version. */
static __attribute__((noinline)) int exec_again(const struct exec *exec, strings environment, enum again found) {
    uint32_t state = IMAS_STATE_ARMED;
    const char *page = again_page();
    if (page != NULL && (found != AGAIN_SAME || !page_await(page + sizeof IMAS_ENV_PAGE, &state)))
        page = NULL;
    AGAIN(environment, page)
    int result = call(exec, own);
    if (page != NULL)
        page_note_state(state);
    return result;
}

/* What env would start for a script; on the stack, as the environment. */
#define BY_ENV(script, arguments)                                                                                      \
    char text[again_script_bytes(script)], *words[count_of(arguments) + 3];                                            \
    const char *program = again_script_words(script, text, words, arguments);

static __attribute__((noinline)) int exec_script(strings arguments, strings environment, struct again_script *script) {
    BY_ENV(script, arguments)
    return exec_again(&(struct exec){.by_name = REAL(execve), .file = program, .arguments = words}, environment, AGAIN_SAME);
}

static __attribute__((noinline)) int spawn_again(spawn_call *next, pid_t *child, const char *file, const void *actions,
                                                 const void *attributes, strings arguments, strings environment) {
    AGAIN(environment, NULL)
    return next(child, file, actions, attributes, arguments, own);
}

static __attribute__((noinline)) int spawn_script(pid_t *child, const void *actions, const void *attributes, strings arguments,
                                                  strings environment, struct again_script *script) {
    BY_ENV(script, arguments)
    return spawn_again(REAL(posix_spawn), child, program, actions, attributes, words, environment);
}

/* ---- the functions ------------------------------------------------------------------------------------- */

static int not_there(void) {
    errno = ENOSYS;
    return -1;
}

/* What an exec comes back with. */
static int failed(int answer) {
    exit_note_exec_failed();
    return answer;
}

static int exec_by(execve_call *next, const char *file, bool by_path, strings arguments, strings environment) {
    if (unlikely(next == NULL))
        return not_there();
    if (unlikely(inherited) && must_be_clean(file, by_path, environment))
        return failed(exec_clean(next, file, arguments, environment));
    struct again_script *script = NULL;
    enum again found = look(file, by_path, environment, AGAIN_IN_PLACE, &script);
    if (unlikely(found == AGAIN_BY_ENV))
        return failed(exec_script(arguments, environment, script));
    if (unlikely(found != AGAIN_OTHER))
        return failed(exec_again(&(struct exec){.by_name = next, .file = file, .arguments = arguments}, environment, found));
    return failed(next(file, arguments, environment));
}

/* As libc does it: the shell is given the name, not where that was found. */
static __attribute__((noinline)) int spawn_by_shell(pid_t *child, const char *file, const void *actions, const void *attributes,
                                                    strings arguments, strings environment) {
    static char shell[] = "/bin/sh";
    char *words[count_of(arguments) + 3], **to = words;
    *to++ = shell;
    *to++ = (char *)file;
    while (*arguments != NULL && *++arguments != NULL)
        *to++ = *arguments;
    *to = NULL;
    return REAL(posix_spawn)(child, shell, actions, attributes, words, environment);
}

static int spawn_by(spawn_call *next, bool by_path, pid_t *child, const char *file, const void *actions,
                    const void *attributes, strings arguments, strings environment) {
    if (unlikely(next == NULL))
        return ENOSYS;
    if (unlikely(inherited) && must_be_clean(file, by_path, environment))
        return spawn_clean(next, child, file, actions, attributes, arguments, environment);
    struct again_script *script = NULL;
    enum again found = look(file, by_path, environment, AGAIN_AS_CHILD, &script);
    if (unlikely(found == AGAIN_BY_ENV))
        return spawn_script(child, actions, attributes, arguments, environment, script);
    if (unlikely(found != AGAIN_OTHER))
        return spawn_again(next, child, file, actions, attributes, arguments, environment);
    int error = next(child, file, actions, attributes, arguments, environment);
    if (unlikely(error == ENOEXEC && by_shell))
        return spawn_by_shell(child, file, actions, attributes, arguments, environment);
    return error;
}

EXPORT int execve(const char *path, strings arguments, strings environment) {
    return exec_by(REAL(execve), path, false, arguments, environment);
}

EXPORT int execvpe(const char *file, strings arguments, strings environment) {
    return exec_by(REAL(execvpe), file, true, arguments, environment);
}

EXPORT int fexecve(int fd, strings arguments, strings environment) {
    fexecve_call *next = REAL(fexecve);
    if (unlikely(next == NULL))
        return not_there();
    struct again_script *script = NULL;
    enum again found = inherited ? AGAIN_OTHER : again_look(fd, "", AT_EMPTY_PATH, environment, AGAIN_IN_PLACE, &script);
    if (unlikely(found != AGAIN_OTHER))
        return failed(exec_again(&(struct exec){.by_descriptor = next, .fd = fd, .arguments = arguments}, environment, found));
    return failed(next(fd, arguments, environment));
}

EXPORT int execv(const char *path, strings arguments) {
    if (unlikely(watching))
        return exec_by(REAL(execve), path, false, arguments, environ);
    execv_call *next = REAL(execv);
    return likely(next != NULL) ? failed(next(path, arguments)) : not_there();
}

EXPORT int execvp(const char *file, strings arguments) {
    if (unlikely(watching))
        return exec_by(REAL(execvpe), file, true, arguments, environ);
    execv_call *next = REAL(execvp);
    return likely(next != NULL) ? failed(next(file, arguments)) : not_there();
}

EXPORT int posix_spawn(pid_t *child, const char *path, const void *actions, const void *attributes, strings arguments,
                       strings environment) {
    return spawn_by(REAL(posix_spawn), false, child, path, actions, attributes, arguments, environment);
}

EXPORT int posix_spawnp(pid_t *child, const char *file, const void *actions, const void *attributes, strings arguments,
                        strings environment) {
    return spawn_by(REAL(posix_spawnp), true, child, file, actions, attributes, arguments, environment);
}

/* The arguments of execl and its like, after the first, as an array of `count` and a NULL. The caller goes on
 * reading the list behind them, so it is passed by address: aarch64 passes a copy of a va_list. */
static void collect(char **arguments, const char *first, size_t count, va_list *list) {
    arguments[0] = (char *)first;
    for (size_t i = 1; i <= count; i++)
        arguments[i] = va_arg(*list, char *);
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
    collect(arguments, first, count, &list);

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
