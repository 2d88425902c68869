// SPDX-License-Identifier: Apache-2.0
/*
 * children.h - the functions that start a program: children that could not load the candidate, and the process's own file
 * once more, which keeps it (again.h).
 *
 * A library in LD_PRELOAD that cannot be opened costs a child one line of ld.so. One that is opened and cannot be
 * loaded ends the child. Where children inherit the candidate (IMAS_FOLLOW, IMAS_TREE), the functions that start a
 * program look first, and give such a child the environment that it would have without IMAS:
 *
 *   - LD_AUDIT is set: ld.so then has less room for thread data than some candidates need
 *   - the child has a dynamic linker of its own, and that is older than what the candidate asks of libc, or the
 *     candidate brings libraries that may not be there
 *
 * IMAS_FOLLOW itself stays in it: it keeps the stub of an enabled machine away. system and popen do not pass here, and fexecve
 * passes for the own file alone.
 */
#ifndef IMAS_HOOK_CHILDREN_H
#define IMAS_HOOK_CHILDREN_H

/* Called once at the start. */
void children_begin(char **environment);

/* As libc declares it, whose header declares syscall in another form than ours (sandbox.c). */
int execve(const char *path, char *const arguments[], char *const environment[]);

#endif
