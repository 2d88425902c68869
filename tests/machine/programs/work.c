// SPDX-License-Identifier: Apache-2.0
/* Allocates and forks; with "strict", enters a seccomp sandbox; prints "fine". Built for each C library
 * and word size that the machine test has, also set-user-ID. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/filter.h>
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

/* From here read, write and exit only; anything else is death. A filter, because strict mode is not to be had
 * under one. */
static int shut_off(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof steps / sizeof *steps, .filter = steps};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
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
        if (shut_off()) {
            return 4;
        }
        ssize_t written = write(1, "fine\n", 5);
        syscall(SYS_exit_group, written == 5 ? 0 : 5);
    }
    puts("fine");
    return 0;
}
