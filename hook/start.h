// SPDX-License-Identifier: Apache-2.0
/* start.h - what the kernel handed to this process, for a library that runs before libc and has none. */
#ifndef IMAS_HOOK_START_H
#define IMAS_HOOK_START_H

#include <stdbool.h>
#include <stdint.h>

struct start {
    int argc;
    char **argv;
    char **envp;
    const char *execfn; /* the file as execve was given it: the script, not its interpreter */
    uint32_t uid;
};

/*
 * True when the arguments of a constructor are the real ones and the process has no raised privileges.
 *
 * glibc and others give (argc, argv, envp); musl gives none, so that the registers hold anything. The kernel puts the
 * environment right behind the arguments, and numbers that happen to be so related are the real ones; nothing is read
 * before that is seen. ld.so takes variables out of the environment of privileged programs, after which the auxiliary
 * vector is not where we look: not finding AT_SECURE means privileged.
 */
bool start_read(struct start *start, int argc, char **argv, char **envp);

#endif
