// SPDX-License-Identifier: Apache-2.0
/* sandboxed prctl|syscall|strict [WAITS]: enters seccomp after start; any system call but a few is death. Allocates on, and
 * waits so often for a third of a second. With RAW it enters by an instruction of its own, and with COMPUTED by one whose
 * number does not stand in the code. */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ALLOW(name) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(write), ALLOW(exit_group), ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(madvise), ALLOW(mremap), ALLOW(mprotect),
    ALLOW(futex), ALLOW(newfstatat), ALLOW(getrandom), ALLOW(clock_gettime), ALLOW(sched_getaffinity), ALLOW(clock_nanosleep),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};

static void churn(size_t largest) {
    static void *block[512];
    for (size_t i = 0; i < 30000; i++) {
        free(block[i % 512]);
        block[i % 512] = malloc(i * 37 % largest);
    }
}

#if defined(RAW) || defined(COMPUTED)
static inline __attribute__((always_inline)) long enter_kernel(long number, long a, long b, void *c) {
#if defined(__x86_64__)
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return answer;
#else
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = (long)c;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#endif
}
#endif

#if defined(COMPUTED)
static volatile long one = 1;
#define BY_PRCTL(program) enter_kernel(SYS_prctl - 1 + one, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program)
#define BY_SYSCALL(program) enter_kernel(SYS_seccomp - 1 + one, SECCOMP_SET_MODE_FILTER, 0, program)
#elif defined(RAW)
#define BY_PRCTL(program) enter_kernel(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program)
#define BY_SYSCALL(program) enter_kernel(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program)
#else
#define BY_PRCTL(program) prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0)
#define BY_SYSCALL(program) syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program)
#endif

int main(int argc, char **argv) {
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (argc < 2)
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
    int waits = argc > 2 ? atoi(argv[2]) : 0;
    if ((strcmp(argv[1], "prctl") == 0 ? BY_PRCTL(&program) : BY_SYSCALL(&program)) != 0)
        return 4;
    churn(100000);
    while (waits-- > 0) {
        nanosleep(&(struct timespec){.tv_nsec = 333333333}, NULL);
        churn(100000);
    }
    if (write(1, "sandboxed\n", 10) != 10)
        return 5;
    exit(0);
}
