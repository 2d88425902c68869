// SPDX-License-Identifier: Apache-2.0
// Threads: blocks freed by others, threads that come and go, whatever made them.
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include "fact.h"
#include "served.h"

enum { SLOTS = 1024, WORKERS = 4, LATE_ROUNDS = 4 };

struct block {
    size_t size;
    unsigned char bytes[];
};

static _Atomic(struct block *) slots[SLOTS];
static atomic_int corrupt;

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static size_t pick_size(unsigned *state)
{
    unsigned draw = next_random(state);
    size_t most = draw % 100 == 0 ? 400000 : draw % 10 == 0 ? 20000 : 400;
    return 1 + next_random(state) % most;
}

static struct block *make_block(size_t size)
{
    struct block *block = malloc(sizeof *block + size);
    if (block == NULL)
        return NULL;
    block->size = size;
    memset(block->bytes, (int)(size & 0xff), size);
    return block;
}

static void end_block(struct block *block)
{
    if (block == NULL)
        return;
    unsigned char wanted = (unsigned char)(block->size & 0xff);
    for (size_t index = 0; index < block->size; index++)
        if (block->bytes[index] != wanted) {
            corrupt++;
            break;
        }
    free(block);
}

// Each puts blocks into shared slots and frees what another put there before.
static void *exchange(void *argument)
{
    unsigned state = (unsigned)(size_t)argument * 7919u + 1;
    long rounds = facts_are_full() ? 400000 : 40000;
    for (long round = 0; round < rounds; round++) {
        struct block *block = make_block(pick_size(&state));
        end_block(atomic_exchange(&slots[next_random(&state) % SLOTS], block));
    }
    return NULL;
}

static void check_exchange(void)
{
    pthread_t workers[WORKERS];
    for (size_t index = 0; index < WORKERS; index++)
        pthread_create(&workers[index], NULL, exchange, (void *)index);
    for (size_t index = 0; index < WORKERS; index++)
        pthread_join(workers[index], NULL);
    for (size_t index = 0; index < SLOTS; index++)
        end_block(atomic_exchange(&slots[index], NULL));
    fact("cross-thread-frees", corrupt == 0, "%d blocks changed", (int)corrupt);
}

static void *brief(void *argument)
{
    (void)argument;
    void *blocks[10];
    for (size_t index = 0; index < 10; index++)
        blocks[index] = memset(malloc(16 + index * 37), 1, 16 + index * 37);
    for (size_t index = 0; index < 10; index++)
        free(blocks[index]);
    return malloc(30);
}

static long resident_kib(void)
{
    long size = 0, resident = 0;
    FILE *stream = fopen("/proc/self/statm", "r");
    if (stream != NULL && fscanf(stream, "%ld %ld", &size, &resident) != 2)
        resident = 0;
    if (stream != NULL)
        fclose(stream);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void run_brief(int count)
{
    for (int index = 0; index < count; index++) {
        pthread_t thread;
        void *block = NULL;
        if (pthread_create(&thread, NULL, brief, NULL) != 0)
            continue;
        pthread_join(thread, &block);
        free(block);
    }
}

// Detects memory that ended threads do not return: 1 KiB each would be 2 or 12 MiB.
static void check_churn(void)
{
    int count = facts_are_full() ? 12000 : 2000;
    run_brief(300);
    long before = resident_kib();
    run_brief(count);
    long grown = resident_kib() - before;
    fact("thread-churn-bounded", grown < count, "%ld KiB more after %d threads", grown, count);
}

static int brief_c11(void *argument)
{
    free(brief(argument));
    return 0;
}

static void check_c11_threads(void)
{
    for (int index = 0; index < 200; index++) {
        thrd_t thread;
        if (thrd_create(&thread, brief_c11, NULL) == thrd_success)
            thrd_join(thread, NULL);
    }
    fact("c11-threads", true, "unseen");
}

static atomic_int ended;

static void *detached(void *argument)
{
    free(brief(argument));
    ended++;
    return NULL;
}

static void check_detached(void)
{
    enum { COUNT = 200 };
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int started = 0;
    for (int index = 0; index < COUNT; index++) {
        pthread_t thread;
        started += pthread_create(&thread, &attributes, detached, NULL) == 0;
    }
    for (int wait = 0; wait < 5000 && ended < started; wait++)
        usleep(1000);
    pthread_attr_destroy(&attributes);
    fact("detached-threads", ended == started, "%d of %d ended", (int)ended, started);
}

static pthread_key_t late_key;
static __thread int late_round;
static atomic_int late_ends;

// The last destructor round of all, when an allocator's own thread data may be gone already.
static void late(void *value)
{
    free(value);
    void *blocks[20];
    for (size_t index = 0; index < 20; index++)
        blocks[index] = memset(malloc(10 + index * 50), 2, 10 + index * 50);
    for (size_t index = 1; index < 20; index++)
        free(blocks[index]);
    void *large = memset(malloc(300000), 3, 300000);
    free(realloc(large, 600000));
    if (++late_round < LATE_ROUNDS)
        pthread_setspecific(late_key, blocks[0]);
    else
        free(blocks[0]);
    late_ends += late_round == LATE_ROUNDS;
}

static void *with_late_end(void *argument)
{
    pthread_setspecific(late_key, malloc(100));
    return argument;
}

static void check_late_ends(void)
{
    enum { COUNT = 100 };
    pthread_key_create(&late_key, late);
    for (int index = 0; index < COUNT; index++) {
        pthread_t thread;
        pthread_create(&thread, NULL, with_late_end, NULL);
        pthread_join(thread, NULL);
    }
    fact("malloc-in-last-destructor", late_ends == COUNT, "%d of %d", (int)late_ends, COUNT);
}

static void *leaves_early(void *argument)
{
    free(brief(argument));
    pthread_exit(malloc(50));
}

static void check_exit(void)
{
    for (int index = 0; index < 100; index++) {
        pthread_t thread;
        void *block = NULL;
        pthread_create(&thread, NULL, leaves_early, NULL);
        pthread_join(thread, &block);
        fact("pthread_exit", block != NULL, "no block handed over");
        free(block);
    }
}

// Sizes from all paths of an allocator, on the smallest stack that POSIX lets a program ask for.
static void *on_small_stack(void *argument)
{
    (void)argument;
    void *blocks[64];
    for (size_t round = 0; round < 8; round++) {
        size_t most = round % 4 == 3 ? 200000 : 3000;
        for (size_t index = 0; index < 64; index++)
            blocks[index] = malloc(1 + (index * 37 + round * 1001) % most);
        for (size_t index = 0; index < 64; index++)
            blocks[index] = realloc(blocks[index], 500 + index * 10);
        for (size_t index = 0; index < 64; index++)
            free(blocks[index]);
    }
    void *aligned = NULL;
    if (posix_memalign(&aligned, 4096, 5000) == 0)
        free(aligned);
    return NULL;
}

static void check_small_stacks(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN);
    int error = 0;
    for (int index = 0; index < 20 && error == 0; index++) {
        pthread_t thread;
        error = pthread_create(&thread, &attributes, on_small_stack, NULL);
        if (error == 0)
            pthread_join(thread, NULL);
    }
    pthread_attr_destroy(&attributes);
    fact("small-stacks", error == 0, "pthread_create: %s", strerror(error));
}

enum { LIVE_AT_ONCE = 2000, BLOCKS_EACH = 20, LIVE_SECONDS = 20 };
static pthread_barrier_t all_live;

static void *lives(void *argument)
{
    void *blocks[BLOCKS_EACH];
    pthread_barrier_wait(&all_live);
    for (size_t index = 0; index < BLOCKS_EACH; index++)
        blocks[index] = malloc(100 + index * 50);
    pthread_barrier_wait(&all_live);
    for (size_t index = 0; index < BLOCKS_EACH; index++)
        free(blocks[index]);
    return argument;
}

static double seconds_of_cpu(void)
{
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// All begin and end at about the same time. The bound is no measure of speed: a spin lock whose holder has
// lost its CPU takes minutes here, anything else less than a second.
static void check_many_live(void)
{
    static pthread_t threads[LIVE_AT_ONCE];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    pthread_barrier_init(&all_live, NULL, LIVE_AT_ONCE);
    double before = seconds_of_cpu();
    for (size_t index = 0; index < LIVE_AT_ONCE; index++)
        if (pthread_create(&threads[index], &attributes, lives, NULL) != 0) {
            fprintf(stderr, "threads: many-live-threads: SKIPPED: no more than %zu threads here\n", index);
            exit(facts_end());
        }
    for (size_t index = 0; index < LIVE_AT_ONCE; index++)
        pthread_join(threads[index], NULL);
    double used = seconds_of_cpu() - before;
    fact("many-live-threads", used < LIVE_SECONDS * facts_slowness(), "%.0f s of CPU time for %d threads", used, LIVE_AT_ONCE);
}

int main(int argc, char **argv)
{
    facts_begin(argc, argv);
    check_served();
    check_small_stacks();
    check_exchange();
    check_churn();
    check_c11_threads();
    check_detached();
    check_late_ends();
    check_exit();
    check_many_live();
    return facts_end();
}
