// SPDX-License-Identifier: Apache-2.0
// Like mimalloc's mstress: in each phase, threads are made that allocate blocks of many sizes, free some, keep some for themselves, and
// exchange some through a shared array with whatever thread comes after; then they end. Between phases most of the shared array is freed.
// phases [-t THREADS] [-n PHASES] [-k BLOCKS] [-s SEED]
#include "common.h"

enum { SHARED = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *shared[SHARED];

struct task {
    unsigned long count;
    uint64_t random, made, freed;
};

static size_t size_of(uint64_t *random)
{
    uint64_t kind = below(random, 100);
    if (kind < 70) return 16 + below(random, 112);
    if (kind < 97) return 128 + below(random, 4000);
    return 4096 + below(random, 60000);
}

static void exchange(struct task *task, void **mine)
{
    unsigned long at = below(&task->random, SHARED);
    pthread_mutex_lock(&lock);
    void *other = shared[at];
    shared[at] = *mine;
    pthread_mutex_unlock(&lock);
    *mine = other;
}

static void *work(void *argument)
{
    struct task *task = argument;
    void **mine = calloc(task->count, sizeof *mine);
    if (mine == NULL) fail("calloc returned NULL");
    for (unsigned long step = 0; step < task->count * 4; step++) {
        void **slot = &mine[below(&task->random, task->count)];
        uint64_t what = below(&task->random, 10);
        if (what < 6 && *slot == NULL) {
            size_t size = size_of(&task->random);
            *slot = stamped(size);
            task->made += size;
        } else if (what < 8) {
            task->freed += checked_free(*slot);
            *slot = NULL;
        } else {
            exchange(task, slot);
        }
    }
    for (unsigned long i = 0; i < task->count; i++) task->freed += checked_free(mine[i]);
    free(mine);
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned long threads = option(argc, argv, 't', 4), phases = option(argc, argv, 'n', 30);
    struct task *tasks = calloc(threads, sizeof *tasks);
    if (tasks == NULL) fail("calloc returned NULL");
    uint64_t made = 0, freed = 0;
    for (unsigned long phase = 0; phase < phases; phase++) {
        for (unsigned long t = 0; t < threads; t++)
            tasks[t] = (struct task){ option(argc, argv, 'k', 10000), seeded(option(argc, argv, 's', 1), phase * threads + t), 0, 0 };
        in_threads(threads, work, tasks, sizeof *tasks);
        for (unsigned long t = 0; t < threads; t++) {
            made += tasks[t].made;
            freed += tasks[t].freed;
        }
        for (unsigned long i = 0; i < SHARED; i++) {
            if (i % 8 == phase % 8 && phase + 1 < phases) continue; // an eighth stays for the next phase
            freed += checked_free(shared[i]);
            shared[i] = NULL;
        }
    }
    if (made != freed) fail("not all that was made was freed");
    // The order of the threads differs from run to run, and with it how much is made. Only the sum can be checked.
    printf("phases %lu threads: ok\n", threads);
    free(tasks);
    return 0;
}
