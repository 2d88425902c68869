// SPDX-License-Identifier: Apache-2.0
/* filter strict|late|kill|refuse: a program that goes under seccomp with libseccomp and works on.
 *   strict   read, write, exit and what glibc's malloc needs: brk, mmap, munmap, mremap, madvise, futex, mprotect; others: EPERM
 *   late     the same, before the first malloc
 *   kill     the same, but others kill
 *   refuse   mmap refused: blocks or NULL come, never a crash (brk has no errors: glibc takes one for an
 * address) */
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void allow(scmp_filter_ctx filter, const int *calls, size_t count) {
    for (size_t i = 0; i < count; i++)
        seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
}

static void use(void) {
    for (int i = 1; i < 5000; i++) {
        char *block = malloc((size_t)i * 31 % 200000 + 1);
        if (block != NULL)
            *block = 1;
        free(block);
    }
}

int main(int count, char **words) {
    const int calls[] = {SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(brk), SCMP_SYS(mmap),
                         SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(futex), SCMP_SYS(mprotect),
                         SCMP_SYS(fstat), SCMP_SYS(newfstatat), SCMP_SYS(rt_sigreturn)};
    const char *what = count > 1 ? words[1] : "";
    if (strcmp(what, "late") != 0)
        use();
    if (strcmp(what, "refuse") == 0) {
        scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
        seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOMEM), SCMP_SYS(mmap), 0);
        seccomp_load(filter);
    } else {
        scmp_filter_ctx filter = seccomp_init(strcmp(what, "kill") == 0 ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_ERRNO(EPERM));
        allow(filter, calls, sizeof calls / sizeof *calls);
        seccomp_load(filter);
    }
    use();
    puts("under the filter");
    fflush(stdout);
    _exit(0);
}
