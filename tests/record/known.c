// SPDX-License-Identifier: Apache-2.0
/* known HOW COUNT: a program whose calls are known. Each way makes COUNT times a fixed number of calls. */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int count;
static void *volatile hidden;

/* 2 calls each: one block made, one freed. */
static void pairs(void) {
    for (int i = 0; i < count; i++) {
        hidden = malloc((size_t)(i % 3000 + 1));
        free(hidden);
    }
}

/* 10 calls, 7 blocks. */
static void all(void) {
    for (int i = 0; i < count; i++) {
        void *blocks[7] = {malloc(100), calloc(3, 100), realloc(NULL, 50), memalign(64, 100), aligned_alloc(128, 256), valloc(10), NULL};
        if (posix_memalign(&blocks[6], 256, 70000) != 0)
            abort();
        blocks[0] = realloc(blocks[0], 200000);
        for (int at = 0; at < 7; at++)
            hidden = blocks[at];
        free(blocks[0]);
        free(blocks[6]);
        /* the others stay */
    }
}

/* 201 calls, 1 block: a block that grows and moves, and is freed by realloc. */
static void chain(void) {
    for (int i = 0; i < count; i++) {
        char *block = malloc(10);
        for (size_t step = 1; step < 200; step++)
            block = realloc(block, step * 1000);
        hidden = realloc(block, 0);
    }
}

/* libc uses the stack of an ended thread again, and then allocates less: all begin before one ends. */
static pthread_barrier_t all_begun;

static void *thread(void *nothing) {
    pthread_barrier_wait(&all_begun);
    for (int i = 0; i < count; i++) {
        void *volatile block = malloc((size_t)(i % 3000 + 1));
        free(block);
    }
    return nothing;
}

static void threads(void) {
    pthread_t all_of_them[8];
    pthread_barrier_init(&all_begun, NULL, 8);
    for (int i = 0; i < 8; i++)
        if (pthread_create(&all_of_them[i], NULL, thread, NULL) != 0)
            abort();
    for (int i = 0; i < 8; i++)
        pthread_join(all_of_them[i], NULL);
}

static void children(void) {
    void *kept = malloc(1000);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            pairs();
            free(kept);
            exit(0);
        }
        waitpid(child, NULL, 0);
    }
}

/* For these children libc runs no fork handlers. */
static void raw_children(void) {
    for (int i = 0; i < count; i++) {
        int status;
        pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0)
            exit(0);
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
            abort();
    }
}

static void killed(void) {
    pairs();
    raise(SIGKILL);
}

static void closing(void) {
    close_range(3, ~0u, 0);
    if (chdir("/") != 0)
        abort();
    pairs();
}

/* 64 MiB that are never written, then 16 MiB that are. */
static void sparse(void) {
    for (int i = 0; i < 16; i++) {
        hidden = malloc((size_t)4 << 20);
        pairs();
    }
    for (int i = 0; i < 256; i++) {
        hidden = memset(malloc((size_t)64 << 10), 1, (size_t)64 << 10);
        pairs();
    }
}

static void lasting(void) {
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        for (int i = 0; i < 1000; i++) {
            hidden = malloc(100);
            free(hidden);
        }
        usleep(1000);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < count);
}

int main(int arguments, char **argument) {
    static const struct {
        const char *name;
        void (*way)(void);
    } ways[] = {
        {"pairs", pairs},
        {"all", all},
        {"chain", chain},
        {"threads", threads},
        {"children", children},
        {"raw-children", raw_children},
        {"killed", killed},
        {"closing", closing},
        {"sparse", sparse},
        {"lasting", lasting},
    };
    if (arguments != 3)
        return 2;
    count = atoi(argument[2]);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(ways[i].name, argument[1]) == 0) {
            ways[i].way();
            puts("done");
            return 7;
        }
    }
    return 2;
}
