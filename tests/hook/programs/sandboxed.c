// SPDX-License-Identifier: Apache-2.0
/* sandboxed prctl|syscall|strict: enters seccomp after start; any system call but a few is death. Allocates
 * on. */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(name) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(write), ALLOW(exit_group), ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(madvise), ALLOW(mremap), ALLOW(mprotect),
    ALLOW(futex), ALLOW(newfstatat), ALLOW(getrandom), ALLOW(clock_gettime), ALLOW(sched_getaffinity),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};

static void churn(size_t largest) {
    static void *block[512];
    for (size_t i = 0; i < 30000; i++) {
        free(block[i % 512]);
        block[i % 512] = malloc(i * 37 % largest);
    }
}

int main(int argc, char **argv) {
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (argc != 2)
        return 2;
    churn(10000);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return 3;
    if (strcmp(argv[1], "strict") == 0) {
        char *block = malloc(100);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) != 0)
            return 4;
        for (int i = 0; i < 100000; i++) {
            free(block);
            block = malloc(100); /* the allocator has it at hand */
        }
        if (write(1, "strict\n", 7) != 7)
            return 5;
        syscall(SYS_exit, 0); /* the only way out that strict mode knows */
    }
    long bad = strcmp(argv[1], "prctl") == 0 ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0)
                                             : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    if (bad != 0)
        return 4;
    churn(100000);
    if (write(1, "sandboxed\n", 10) != 10)
        return 5;
    exit(0);
}
