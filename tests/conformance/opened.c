// SPDX-License-Identifier: Apache-2.0
//
// A library opened in a running process, as system-wide mode does: malloc here stays glibc's, the
// opened one is called by its address, from threads older and younger than it.
//
//   opened short|full LIBRARY NAME
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fact.h"

enum { ROUNDS = 20000, HELD = 64, THREADS = 50 };

static void *(*opened_malloc)(size_t);
static void (*opened_free)(void *);
static void *(*opened_realloc)(void *, size_t);
static size_t (*opened_usable)(void *);
static pthread_barrier_t opened_now;

static bool open_library(const char *path, const char *name)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    fact("dlopen", library != NULL, "%s", library ? "" : dlerror());
    if (library == NULL)
        return false;
    const char *found = dlsym(library, "imas_allocator_name");
    fact("dlopen-name", found != NULL && strcmp(found, name) == 0, "%s", found ? found : "not there");
    opened_malloc = (void *(*)(size_t))dlsym(library, "malloc");
    opened_free = (void (*)(void *))dlsym(library, "free");
    opened_realloc = (void *(*)(void *, size_t))dlsym(library, "realloc");
    opened_usable = (size_t(*)(void *))dlsym(library, "malloc_usable_size");
    return true;
}

static bool use(void)
{
    unsigned char *held[HELD] = { NULL };
    bool whole = true;
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned char **place = &held[round % HELD];
        whole = whole && (*place == NULL || (*place)[0] == (unsigned char)(round - HELD));
        opened_free(*place);
        size_t size = 1 + round * 37 % (round % 97 == 0 ? 200000 : 600);
        *place = opened_malloc(size);
        if (round % 5 == 0)
            *place = opened_realloc(*place, size * 2);
        whole = whole && is_aligned(*place, 16) && opened_usable(*place) >= size;
        (*place)[0] = (unsigned char)round;
    }
    for (int index = 0; index < HELD; index++)
        opened_free(held[index]);
    return whole;
}

static void *older_thread(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&opened_now);
    return (void *)(intptr_t)use();
}

static void *younger_thread(void *unused)
{
    (void)unused;
    return (void *)(intptr_t)use();
}

static void check_children(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(!use());
    int status = -1;
    waitpid(child, &status, 0);
    fact("dlopen-fork", status == 0, "status 0x%x", (unsigned)status);
}

int main(int argc, char **argv)
{
    facts_begin(argc, argv);
    pthread_t older;
    void *whole = NULL;
    pthread_barrier_init(&opened_now, NULL, 2);
    pthread_create(&older, NULL, older_thread, NULL);
    if (argc < 4 || !open_library(argv[2], argv[3]))
        return facts_end();
    fact("dlopen-serves", use(), "a block changed");
    pthread_barrier_wait(&opened_now);
    pthread_join(older, &whole);
    fact("dlopen-older-thread", whole != NULL, "a block changed");
    for (int index = 0; index < THREADS; index++) {
        pthread_t younger;
        pthread_create(&younger, NULL, younger_thread, NULL);
        pthread_join(younger, &whole);
        fact("dlopen-younger-threads", whole != NULL, "a block changed");
    }
    check_children();
    return facts_end();
}
