// SPDX-License-Identifier: Apache-2.0
/* memory WHAT: ways of using memory beside plain malloc and free. Each prints only what must not depend on
 * the allocator. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "choice.h"

static void churn(int rounds) {
    char *kept[64] = {0};
    for (int i = 0; i < rounds; i++) {
        size_t bytes = 1 + (size_t)(i * 7919) % (i % 50 == 0 ? 300000 : 2000);
        free(kept[i % 64]);
        kept[i % 64] = malloc(bytes);
        memset(kept[i % 64], i, bytes);
    }
    for (int i = 0; i < 64; i++)
        free(kept[i]);
}

static void *churning(void *rounds) {
    churn((int)(intptr_t)rounds);
    return NULL;
}

/* A program that keeps a heap of its own by sbrk, as old Lisps do. */
static int own_brk(void) {
    churn(1000);
    char *mine = sbrk(1 << 20);
    if (mine == (void *)-1)
        return puts("no room");
    memset(mine, 7, 1 << 20);
    churn(5000);
    char *more = sbrk(1 << 16);
    long sum = 0;
    for (int i = 0; i < 1 << 20; i++)
        sum += mine[i];
    printf("%ld %d\n", sum, more >= mine + (1 << 20));
    return 0;
}

/* malloc_usable_size is filled to the last byte. */
static int usable(void) {
    for (size_t bytes = 1; bytes < 200000; bytes = bytes * 3 / 2 + 1) {
        char *at = malloc(bytes);
        size_t room = malloc_usable_size(at);
        memset(at, 1, room);
        at = realloc(at, room + 1);
        printf("%d", room >= bytes);
        free(at);
    }
    return puts("");
}

static int options(void) {
    int taken = mallopt(M_MMAP_THRESHOLD, 1 << 20) + mallopt(M_ARENA_MAX, 2) + mallopt(M_TRIM_THRESHOLD, 1 << 17);
    churn(3000);
    struct mallinfo2 info = mallinfo2();
    malloc_trim(0);
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    printf("%d %d", taken, malloc_info(0, stream));
    fclose(stream);
    printf(" %d %d\n", length > 0, info.uordblks < (size_t)1 << 40);
    free(text);
    return 0;
}

static int locked(void) {
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        return printf("mlockall: %s\n", strerror(errno));
    pthread_t thread;
    pthread_create(&thread, NULL, churning, (void *)4000);
    churn(4000);
    pthread_join(thread, NULL);
    printf("%d\n", munlockall());
    return 0;
}

/* The child of fork is not given one mapping; the heap is left to it. */
static int dont_fork(void) {
    char *mine = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(mine, 1 << 20, MADV_DONTFORK);
    churn(2000);
    pid_t child = fork();
    if (child == 0) {
        churn(2000);
        _exit(mincore(mine, 4096, (unsigned char[1]){0}) == 0 ? 1 : 42);
    }
    int status;
    waitpid(child, &status, 0);
    printf("%d\n", WEXITSTATUS(status));
    return 0;
}

/* The limit comes while the program runs: big blocks are refused, small ones go on, nothing crashes. */
static int limited(int resource, rlim_t bytes) {
    churn(2000);
    setrlimit(resource, &(struct rlimit){bytes, bytes});
    errno = 0;
    void *big = malloc((size_t)8 << 30);
    printf("%d %d ", big == NULL, errno == ENOMEM);
    void *small = malloc(100);
    printf("%d\n", small != NULL);
    free(small);
    free(big);
    churn(200);
    return 0;
}

static int limit_as(void) { return limited(RLIMIT_AS, (rlim_t)4 << 30); }
static int limit_data(void) { return limited(RLIMIT_DATA, (rlim_t)4 << 30); }

/* Small blocks until nothing is left, then everything is given back and the program goes on. */
static int exhausted(void) {
    setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)1 << 30, (rlim_t)1 << 30});
    void *last = NULL;
    long count = 0;
    for (void **at; (at = malloc(1 << 20)) != NULL && count < 5000; count++) {
        *at = last;
        last = at;
    }
    for (void *next; last != NULL; last = next) {
        next = *(void **)last;
        free(last);
    }
    void *again = malloc(1 << 20);
    printf("%d %d\n", count < 5000, again != NULL);
    free(again);
    return 0;
}

#if defined(__aarch64__)
enum { ADDRESS_BITS = 48 };
#else
enum { ADDRESS_BITS = 47 };
#endif

/* A runtime that keeps tags in pointers assumes that addresses of a process have ADDRESS_BITS bits, and that blocks of
 * 16 bytes are aligned. */
static int tagged(void) {
    int high = 0, odd = 0;
    for (int i = 1; i < 3000; i++) {
        uintptr_t at = (uintptr_t)malloc((size_t)i * 97 % 100000 + 16);
        high += at >> ADDRESS_BITS != 0;
        odd += (at & 15) != 0;
    }
    printf("%d %d\n", high, odd);
    return 0;
}

/* A block of malloc lies in a readable, writable, not executable mapping of /proc/self/maps. */
static int mapped(void) {
    char *block = malloc(1000), line[4200];
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long from, to;
    char rights[5] = "";
    while (fgets(line, sizeof line, maps) != NULL && sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3) {
        if ((unsigned long)block >= from && (unsigned long)block < to)
            printf("%s\n", rights);
    }
    fclose(maps);
    free(block);
    return 0;
}

/* Write barrier by mprotect and SIGSEGV, as garbage collectors do it; malloc goes on meanwhile. */
static char *barrier;
static volatile sig_atomic_t faults;
static void lift(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    faults++;
    mprotect((char *)((uintptr_t)info->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE);
}

static int write_barrier(void) {
    sigaction(SIGSEGV, &(struct sigaction){.sa_sigaction = lift, .sa_flags = SA_SIGINFO | SA_ONSTACK}, NULL);
    barrier = mmap(NULL, 100 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 100; i++) {
        churn(50);
        barrier[i * 4096 + i] = 1;
    }
    printf("%d\n", (int)faults);
    return 0;
}

/* A page of a malloc'd block is protected and given back before free, as guard pages of tests are. */
static int protected_block(void) {
    char *block;
    if (posix_memalign((void **)&block, 4096, 8 * 4096) != 0)
        return 1;
    printf("%d ", mprotect(block + 4096, 4096, PROT_NONE));
    printf("%d\n", mprotect(block + 4096, 4096, PROT_READ | PROT_WRITE));
    memset(block, 1, 8 * 4096);
    free(block);
    churn(1000);
    return 0;
}

static int huge(void) {
    size_t sizes[] = {SIZE_MAX, SIZE_MAX - 100, SIZE_MAX / 2, PTRDIFF_MAX, (size_t)1 << 62, (size_t)1 << 48};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *volatile p = malloc(sizes[i]), *volatile q = calloc(sizes[i], 1), *volatile r = aligned_alloc(64, sizes[i]);
        void *volatile s = calloc(sizes[i], sizes[i]);
        printf("%d%d%d%d ", p == NULL, q == NULL, r == NULL, s == NULL);
        free(p), free(q), free(r), free(s);
    }
    return puts("");
}

static void *first_call_huge(void *bytes) {
    void *volatile p = malloc((size_t)bytes);
    return p;
}

static int huge_in_thread(void) {
    size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 8, SIZE_MAX - 64, SIZE_MAX - 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, first_call_huge, (void *)sizes[i]);
        pthread_join(thread, &result);
        printf("%p\n", result);
    }
    return huge();
}

/* Fork with much memory in use, child and parent go on writing and freeing. */
static int copied(void) {
    enum { COUNT = 20000 };
    static char *block[COUNT];
    for (int i = 0; i < COUNT; i++)
        block[i] = memset(malloc((size_t)i % 3000 + 1), i, (size_t)i % 3000 + 1);
    pid_t child = fork();
    for (int i = child == 0; i < COUNT; i += 2) {
        free(block[i]);
        block[i] = memset(malloc(500), i, 500);
    }
    long sum = 0;
    for (int i = 0; i < COUNT; i++)
        sum += block[i][0];
    if (child == 0)
        _exit((int)(sum & 63));
    int status;
    waitpid(child, &status, 0);
    printf("%ld %d\n", sum, WEXITSTATUS(status));
    return 0;
}

static const struct choice CHOICES[] = {
    {"own-brk", own_brk}, {"usable", usable}, {"options", options}, {"locked", locked}, {"dont-fork", dont_fork},
    {"limit-as", limit_as}, {"limit-data", limit_data}, {"exhausted", exhausted},
    {"tagged", tagged}, {"mapped", mapped}, {"write-barrier", write_barrier}, {"protected-block", protected_block},
    {"huge", huge}, {"huge-in-thread", huge_in_thread}, {"copied", copied}, {NULL, NULL},
};

int main(int count, char **words) { return choose(CHOICES, count, words); }
