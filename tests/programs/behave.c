// SPDX-License-Identifier: Apache-2.0
/*
 * behave.c - a program that does some work with malloc and then ends as its arguments say, under every allocator
 * or under one only.
 *
 *   behave PAIRS [ACT [ALLOCATOR]]
 *
 * ACT: ok, segv, abort, ill, bus, sys, fpe, kill, term, exit3, print, hang. ALLOCATOR: `all`, or what
 * imas_allocator_name begins with, `libc` where there is no such name. Under any other allocator the act is
 * `ok`.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *allocator(void) {
    const char *name = dlsym(RTLD_DEFAULT, "imas_allocator_name");
    return name != NULL ? name : "libc";
}

static void work(long pairs) {
    enum { KEPT = 512 };
    static void *kept[KEPT];
    unsigned random = 1;
    for (long i = 0; i < pairs; i++) {
        random = random * 1664525u + 1013904223u;
        void **place = &kept[(random >> 8) % KEPT];
        free(*place);
        size_t size = 1 + (random >> 16) % 2000;
        *place = malloc(size);
        if (*place == NULL)
            exit(99);
        memset(*place, 1, size);
    }
    for (int i = 0; i < KEPT; i++) {
        free(kept[i]);
        kept[i] = NULL;
    }
}

static void bus_error(void) {
    FILE *empty = tmpfile();
    if (empty == NULL)
        exit(98);
    volatile char *beyond = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(empty), 0);
    *beyond = 1;
}

static void act(const char *what) {
    volatile int *nowhere = NULL;
    if (strcmp(what, "segv") == 0)
        *nowhere = 1;
    else if (strcmp(what, "abort") == 0)
        abort();
    else if (strcmp(what, "ill") == 0)
        __builtin_trap();
    else if (strcmp(what, "bus") == 0)
        bus_error();
    else if (strcmp(what, "sys") == 0)
        raise(SIGSYS);
    else if (strcmp(what, "fpe") == 0)
        raise(SIGFPE);
    else if (strcmp(what, "kill") == 0)
        raise(SIGKILL);
    else if (strcmp(what, "term") == 0)
        raise(SIGTERM);
    else if (strcmp(what, "exit3") == 0)
        exit(3);
    else if (strcmp(what, "print") == 0)
        printf("something else\n");
    else if (strcmp(what, "hang") == 0)
        pause();
}

int main(int count, char **words) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    const char *what = count > 2 ? words[2] : "ok";
    const char *under = count > 3 ? words[3] : "all";
    work(count > 1 ? atol(words[1]) : 1000);
    printf("worked\n");
    fflush(stdout);
    if (strcmp(under, "all") == 0 || strncmp(allocator(), under, strlen(under)) == 0)
        act(what);
    return 0;
}
