// SPDX-License-Identifier: Apache-2.0
// Holds 60 MB, of which a hundredth is in use, says where its C library has what a trim needs, and waits in the way
// that is named. Each wait is checked: a line "wrong" says that the program has seen something of the trim.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 60000, BYTES = 1000, UNSORTED = 0x60 };
static void *blocks[BLOCKS];
static void nothing(int signal) { (void)signal; }

static void *restorer(void) {
    struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } now;
    struct sigaction ours = {.sa_handler = nothing};
    sigaction(SIGUSR2, &ours, NULL);
    syscall(SYS_rt_sigaction, SIGUSR2, NULL, &now, 8);
    return now.restorer;
}

// The head of the list of unsorted blocks is in the first arena.
static char *first_arena(void) {
    void **large = malloc(4000), *fence = malloc(16);
    free(large);
    char *arena = (char *)*large - UNSORTED;
    free(fence);
    return arena;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "read";
    char *arena = first_arena();
    for (int i = 0; i < BLOCKS; i++) memset(blocks[i] = malloc(BYTES), 1, BYTES);
    for (int i = 0; i < BLOCKS; i++) if (i % 100) free(blocks[i]);
    printf("%p %p %p\n", dlsym(RTLD_DEFAULT, "malloc_trim"), restorer(), (void *)arena);
    fflush(stdout);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    int group = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(group, EPOLL_CTL_ADD, 0, &event);
    for (;;) {
        double begun = now();
        int got = 1;
        errno = 77;
        if (!strcmp(how, "poll")) got = poll(&input, 1, -1);
        else if (!strcmp(how, "epoll")) got = epoll_wait(group, &event, 1, -1);
        else if (!strcmp(how, "poll-limit")) got = poll(&input, 1, 300);
        else if (!strcmp(how, "sleep")) got = usleep(300000) ? -1 : poll(&input, 1, 0);
        if (got < 0 || errno != 77) { printf("wrong: %d %d\n", got, errno); return 1; }
        if (got == 0 && now() - begun < 0.299) { printf("wrong: %f s\n", now() - begun); return 1; }
        char byte;
        if (got && read(0, &byte, 1) != 1) break;
    }
    for (int i = 0; i < BLOCKS; i += 100)
        for (int k = 0; k < BYTES; k++) if (((char *)blocks[i])[k] != 1) { printf("wrong block\n"); return 1; }
    printf("as before\n");
    return 0;
}
