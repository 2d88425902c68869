// SPDX-License-Identifier: Apache-2.0
// filtered FILE COMMAND...: runs the command under a filter of system calls, made as systemd makes one of SystemCallFilter=: calls
// that FILE names, one a line, are allowed, and all others are answered with EPERM. Needs libseccomp.
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    FILE *names = count > 2 ? fopen(words[1], "r") : NULL;
    if (!names || !filter)
        return 2;
    for (char name[100]; fgets(name, sizeof name, names);) {
        name[strcspn(name, "\n")] = 0;
        int number = seccomp_syscall_resolve_name(name);
        if (number != __NR_SCMP_ERROR)
            seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0); // one that this machine has not is refused
    }
    if (seccomp_load(filter))
        return 3;
    execvp(words[2], words + 2);
    return 4;
}
