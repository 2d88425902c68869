// SPDX-License-Identifier: Apache-2.0
// A program of musl that allocates in threads, across threads, and in the child of a fork from a thread, and prints what it
// found: the same under every allocator. With the word "child" it then becomes a program of glibc. With another word it
// prints which file malloc is in, and the environment that a child would get.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, BLOCKS = 2000, ROUNDS = 50 };

static void *handed[THREADS][BLOCKS];
static pthread_barrier_t filled;

static size_t size_of(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return 1 + (*state >> 8) % (*state % 64 == 0 ? 300000 : 2000);
}

// Fills each block, looks at it, and frees those of the next thread.
static void *work(void *number)
{
    size_t own = (size_t)number;
    unsigned state = (unsigned)own + 1;
    size_t wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            size_t size = size_of(&state);
            unsigned char *block = i % 7 == 0 ? calloc(1, size) : malloc(size);
            wrong += block == NULL || (i % 7 == 0 && block[size - 1] != 0) || (uintptr_t)block % 16 != 0 ||
                malloc_usable_size(block) < size;
            memset(block, (int)own, size);
            if (i % 5 == 0)
                block = realloc(block, size + 100);
            wrong += block[size - 1] != own;
            handed[own][i] = block;
        }
        pthread_barrier_wait(&filled);
        for (int i = 0; i < BLOCKS; i++)
            free(handed[(own + 1) % THREADS][i]);
        pthread_barrier_wait(&filled);
    }
    return (void *)wrong;
}

// Other threads are allocating at the fork: their locks must be free in the child.
static void *fork_often(void *unused)
{
    size_t wrong = 0;
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            void *block = malloc(5000);
            free(block);
            _exit(block == NULL);
        }
        int status = -1;
        waitpid(child, &status, 0);
        wrong += status != 0;
    }
    return (void *)(wrong + (size_t)unused);
}

// musl's realloc frees nothing for a size of 0: NULL would be a refusal.
static size_t emptied(void)
{
    void *block = realloc(malloc(100), 0);
    size_t wrong = block == NULL;
    free(block);
    return wrong;
}

static size_t aligned(void)
{
    size_t wrong = 0;
    for (size_t alignment = 16; alignment <= 1 << 20; alignment *= 2) {
        void *block = NULL;
        wrong += posix_memalign(&block, alignment, 100) != 0 || (uintptr_t)block % alignment != 0;
        free(block);
        block = aligned_alloc(alignment, alignment);
        wrong += (uintptr_t)block % alignment != 0;
        free(block);
    }
    return wrong;
}

int main(int count, char **words)
{
    pthread_t threads[THREADS], forks;
    void *wrong;
    pthread_barrier_init(&filled, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    pthread_create(&forks, NULL, fork_often, NULL);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &wrong);
        printf("thread %zu: %zu wrong\n", i, (size_t)wrong);
    }
    pthread_join(forks, &wrong);
    printf("forks: %zu wrong; aligned: %zu wrong; emptied: %zu wrong\n", (size_t)wrong, aligned(), emptied());
    if (count < 2)
        return 0;
    if (strcmp(words[1], "child") == 0) {
        fflush(stdout);
        execl("/bin/true", "true", (char *)NULL);
        return 1;
    }
    Dl_info found;
    const char *file = dladdr(dlsym(RTLD_DEFAULT, "malloc"), &found) != 0 ? found.dli_fname : "?";
    printf("malloc: %s\n", file);
    fflush(stdout);
    execl("/bin/sh", "sh", "-c", "env | grep -E '^(LD_|MALLOC|IMAS_)' | grep -v '^IMAS_LIB_DIR=' || echo clean", (char *)NULL);
    return 1;
}
