// SPDX-License-Identifier: Apache-2.0
/*
 * again.h - a process that starts its own file again keeps the candidate.
 *
 * The guard and the hook give the environment back, so that children start without us. But servers execute their own
 * file at a reload or an upgrade (php-fpm, haproxy, nginx, puma), programs that watch their source start themselves as a
 * child, and launchers set a variable and begin anew. For such a start the launcher's variables are put into the
 * environment that the program passes; the guard or the hook in it takes them away once more.
 *
 * What stays as the program has it: a variable to which it gave another value, an environment with LD_AUDIT or with
 * variables of ours, a start for which the libraries are not there. A setting of a runtime stays with the process: what a child makes under it may be stored. What the stub
 * placed it places again.
 */
#ifndef IMAS_HOOK_AGAIN_H
#define IMAS_HOOK_AGAIN_H

#include <stdbool.h>
#include <stddef.h>

#include "fitting.h"

/* How a file is that of this process. */
enum again {
    AGAIN_OTHER,    /* it is not, or starts without the candidate for another reason */
    AGAIN_SAME,     /* the same file, or a script of it */
    AGAIN_BY_ENV,   /* a script whose first line lets env find it */
    AGAIN_REPLACED, /* the one at the path of this process's, which is gone: another version */
};

/* Keeps what the launcher set. Once, at the start, before the environment is restored. */
void again_begin(char **environment);

/* Whether anything is kept. */
bool again_is_possible(void);

/* What is started: in the place of the caller, which may be a child by now, or as a child. */
enum again_place { AGAIN_IN_PLACE, AGAIN_AS_CHILD };

/* A script, and what env would start for it. In memory of its own: small stacks have no room for it. */
struct again_script {
    char line[256 + 1];
    char name[256 + 1];
    char program[FITTING_PATH_BYTES];
    char path[FITTING_PATH_BYTES];
};

/* `folder`, `path` and `flags` are those of fstatat. `script` receives what AGAIN_BY_ENV found. Calls nothing of libc, and
 * takes little of the stack. */
enum again again_look(int folder, const char *path, int flags, char *const *environment, enum again_place place,
                      struct again_script **script);

/* How many bytes its texts have. */
size_t again_script_bytes(const struct again_script *script);

/* The program to be started, and in `words` the arguments that env would give it, the first of `arguments` replaced by
 * two. Their texts are copied to `text`, and the script's memory is given back. */
const char *again_script_words(struct again_script *script, char *text, char **words, char *const *arguments);

/* The entry that names the page, or NULL. */
const char *again_page(void);

/* How many entries and how many bytes of text are added to that environment at most. */
size_t again_entries(char *const *environment);
size_t again_bytes(char *const *environment);

/* `own`: a copy of the environment, with that room. `page`: again_page, or NULL for a process that has another one. */
void again_environment(char **own, char *text, const char *page);

#endif
