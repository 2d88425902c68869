// SPDX-License-Identifier: Apache-2.0
/* Allocates, forks and, if told so, shuts itself off by seccomp; prints "fine" and its name of itself. Built for each C
 * library and word size that the machine test has, also set-user-ID and without any C library's help at start. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/seccomp.h>

static int use_memory(void) {
    enum { BLOCKS = 2000 };
    static unsigned char *block[BLOCKS];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            size_t bytes = 16 + (size_t)((i * 37 + round * 101) % 3000);
            unsigned char *p = realloc(block[i], bytes);
            if (!p) {
                return 1;
            }
            memset(p, i & 0xff, bytes);
            block[i] = p;
        }
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (block[i][0] != (i & 0xff)) {
            return 1;
        }
        free(block[i]);
        block[i] = NULL;
    }
    return 0;
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "";
    if (use_memory()) {
        return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        _exit(use_memory());
    }
    int ended = 1;
    if (child < 0 || waitpid(child, &ended, 0) != child || ended != 0) {
        return 2;
    }
    if (strcmp(how, "secure") == 0 && !getauxval(AT_SECURE)) {
        return 3;
    }
    if (strcmp(how, "strict") == 0) {
        /* From here read, write and exit only; anything else is death. */
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) {
            return 4;
        }
        ssize_t written = write(1, "fine\n", 5);
        syscall(SYS_exit, written == 5 ? 0 : 5);
    }
    puts("fine");
    return 0;
}
