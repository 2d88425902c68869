// SPDX-License-Identifier: Apache-2.0
// fork while other threads start, allocate, free each other's blocks and end: by threads that have not allocated
// yet, and by one whose blocks the others free. An allocator that makes a thread's heap at its first call, or gives
// it back at the thread's end, must not leave a lock taken or a queue torn in the child; and the kernel copies the
// memory while the others go on, so that the child must not rely on what they were changing.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fact.h"
#include "served.h"

enum { SLOTS = 64, NURSERIES = 4, FORKERS = 4, HEIRS = 12, CHILD_SECONDS = 20 };

static _Atomic(unsigned char *) slots[SLOTS];
static atomic_int stopping;
static atomic_int failed_status; // of a child; 0: none failed

// One block of each size class in use, in place of one that another thread made.
static void exchange_blocks(unsigned seed)
{
    for (unsigned index = 0; index < SLOTS; index++) {
        size_t size = 1 + (seed + index) % 40 * 97;
        unsigned char *block = malloc(size);
        if (block != NULL)
            memset(block, 7, size);
        free(atomic_exchange(&slots[index], block));
    }
}

static void *live_briefly(void *seed)
{
    exchange_blocks((unsigned)(size_t)seed);
    return NULL;
}

// Starts threads one after the other.
static void *run_nursery(void *seed)
{
    pthread_t thread;
    for (size_t next = (size_t)seed; !stopping; next += NURSERIES)
        if (pthread_create(&thread, NULL, live_briefly, (void *)next) == 0)
            pthread_join(thread, NULL);
    return NULL;
}

// All of them have a heap at the same time: those that threads of the parent left behind among them.
static pthread_barrier_t all_live;

static void *live_together(void *seed)
{
    exchange_blocks((unsigned)(size_t)seed);
    pthread_barrier_wait(&all_live);
    return NULL;
}

static int live_as_child(void)
{
    alarm(CHILD_SECONDS * facts_slowness());
    for (unsigned round = 0; round < 8; round++)
        exchange_blocks((unsigned)getpid() + round);
    pthread_t threads[HEIRS];
    pthread_barrier_init(&all_live, NULL, HEIRS);
    for (size_t index = 0; index < HEIRS; index++)
        if (pthread_create(&threads[index], NULL, live_together, (void *)index) != 0)
            return 2;
    for (size_t index = 0; index < HEIRS; index++)
        if (pthread_join(threads[index], NULL) != 0)
            return 2;
    return 0;
}

// Its first act is fork.
static void *fork_at_once(void *unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0)
        _exit(live_as_child());
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0)
        failed_status = status;
    return NULL;
}

static int rounds(void)
{
    return facts_are_full() ? 500 : 25;
}

static void check_forks_of_new_threads(void)
{
    for (int round = 0; round < rounds() && failed_status == 0; round++) {
        pthread_t forkers[FORKERS];
        int started = 0;
        while (started < FORKERS && pthread_create(&forkers[started], NULL, fork_at_once, NULL) == 0)
            started++;
        while (started-- > 0)
            pthread_join(forkers[started], NULL);
    }
    fact("fork-by-a-new-thread", failed_status == 0, "a child ended with status 0x%x", (unsigned)failed_status);
}

// Each round leaves it with blocks that the others free while it forks.
static void check_forks_of_an_owner(void)
{
    int status = 0;
    for (int round = 0; round < 4 * rounds() && status == 0; round++) {
        exchange_blocks((unsigned)round);
        pid_t child = fork();
        if (child == 0)
            _exit(live_as_child());
        status = -1;
        waitpid(child, &status, 0);
    }
    fact("fork-while-blocks-are-freed", status == 0, "a child ended with status 0x%x", (unsigned)status);
}

int main(int argc, char **argv)
{
    facts_begin(argc, argv);
    check_served();
    pthread_t nurseries[NURSERIES];
    for (size_t index = 0; index < NURSERIES; index++)
        pthread_create(&nurseries[index], NULL, run_nursery, (void *)index);
    check_forks_of_new_threads();
    check_forks_of_an_owner();
    stopping = 1;
    for (size_t index = 0; index < NURSERIES; index++)
        pthread_join(nurseries[index], NULL);
    return facts_end();
}
