// SPDX-License-Identifier: Apache-2.0
#include "handlers_library.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

volatile int handlers_allocate, handlers_join;
volatile int handlers_ran[3];

// Small and large: some allocators take another lock for each.
static void allocate(void)
{
    void *volatile small = malloc(40);
    void *volatile large = malloc(300000);
    memset(small, 1, 40);
    memset(large, 1, 300000);
    free(small);
    free(realloc(large, 70000));
}

// ---- a thread that does not live through a fork, as OpenBLAS's

static pthread_t worker;
static int worker_runs, worker_wanted;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

// It allocates as it begins and frees as it ends.
static void *work(void *unused)
{
    void *volatile held = malloc(1000);
    pthread_mutex_lock(&mutex);
    while (worker_wanted)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    free(held);
    return unused;
}

static void worker_end(void)
{
    if (!worker_runs)
        return;
    pthread_mutex_lock(&mutex);
    worker_wanted = 0;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
    pthread_join(worker, NULL);
    worker_runs = 0;
}

static void worker_begin(void)
{
    if (worker_runs)
        return;
    worker_wanted = 1;
    worker_runs = pthread_create(&worker, NULL, work, NULL) == 0;
}

void handlers_worker(int wanted)
{
    handlers_join = wanted;
    if (wanted)
        worker_begin();
    else
        worker_end();
}

// ---- the handlers

static void prepare(void)
{
    handlers_ran[0]++;
    if (handlers_join)
        worker_end();
    if (handlers_allocate & IN_PREPARE)
        allocate();
}

static void in_parent(void)
{
    handlers_ran[1]++;
    if (handlers_allocate & IN_PARENT)
        allocate();
    if (handlers_join)
        worker_begin();
}

static void in_child(void)
{
    handlers_ran[2]++;
    if (handlers_allocate & IN_CHILD)
        allocate();
    if (handlers_join)
        worker_begin();
}

#ifndef THREADS
// Once is enough for one thread; nothing is allocated before.
__attribute__((constructor)) static void enter(void)
{
    pthread_atfork(prepare, in_parent, in_child);
}
#else
// The first registrations of the process, all at once.
static pthread_barrier_t together;

static void *enlist(void *unused)
{
    pthread_barrier_wait(&together);
    pthread_atfork(prepare, in_parent, in_child);
    return unused;
}

__attribute__((constructor)) static void enter(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&together, NULL, THREADS);
    for (int index = 0; index < THREADS; index++)
        pthread_create(&threads[index], NULL, enlist, NULL);
    for (int index = 0; index < THREADS; index++)
        pthread_join(threads[index], NULL);
}
#endif
