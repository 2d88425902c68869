// SPDX-License-Identifier: Apache-2.0
/* start.h - what the kernel handed to this process, for a library that runs before libc and has none. */
#ifndef IMAS_HOOK_START_H
#define IMAS_HOOK_START_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

struct start {
    int argc;
    char **argv;
    char **envp;
    const char *execfn; /* the file as execve was given it: the script, not its interpreter */
    uint32_t uid;
    const ElfW(Phdr) *headers; /* of the executable */
    size_t header_count;
};

/*
 * True when the arguments of a constructor are the real ones and the process has no raised privileges.
 *
 * glibc and others pass (argc, argv, envp); musl passes nothing, and the registers hold anything. The kernel
 * puts the environment right after the arguments, so values that fit together in that way are the real ones;
 * nothing is read through them before. ld.so takes variables out of the environment of privileged programs,
 * after which the auxiliary vector is not where we look: not finding AT_SECURE means privileged.
 */
bool start_read(struct start *start, int argc, char **argv, char **envp);

/* ld.so's list of the loaded objects, which begins with the executable; NULL where the executable does not lead to it. */
const struct link_map *start_objects(const struct start *start);

#endif
