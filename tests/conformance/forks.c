// SPDX-License-Identifier: Apache-2.0
// fork, vfork and spawn while other threads are inside malloc and free.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fact.h"
#include "served.h"

enum { SLOTS = 512, CHURNERS = 2, CHILD_SECONDS = 20 };

extern char **environ;

static _Atomic(unsigned char *) slots[SLOTS];
static atomic_int stopping;
static void *aligned; // to more than any allocator aligns its own memory to

enum { ALIGNMENT = 8 << 20 };

static size_t size_for(unsigned draw)
{
    return 1 + draw % (draw % 50 == 0 ? 300000 : draw % 7 == 0 ? 20000 : 300);
}

static unsigned char *make_block(unsigned draw)
{
    size_t size = size_for(draw);
    unsigned char *block = malloc(size);
    return block != NULL ? memset(block, 9, size) : NULL;
}

static void *churn(void *argument)
{
    unsigned state = (unsigned)(size_t)argument + 1;
    while (!stopping) {
        state = state * 1664525u + 1013904223u;
        free(atomic_exchange(&slots[(state >> 8) % SLOTS], make_block(state >> 9)));
    }
    return NULL;
}

static void *ask(void *unused)
{
    (void)unused;
    bool enough = true;
    while (!stopping)
        enough &= malloc_usable_size(aligned) >= 100;
    fact("usable-in-threads", enough, "too little");
    return NULL;
}

static void *one_block(void *unused)
{
    (void)unused;
    return malloc(40);
}

// All that a child may do: free what parents' threads made, allocate every size, start a thread, fork.
static int live_as_child(void)
{
    alarm(CHILD_SECONDS * facts_slowness());
    free(aligned);
    unsigned state = (unsigned)getpid();
    for (int round = 0; round < (facts_are_full() ? 3000 : 600); round++) {
        state = state * 1664525u + 1013904223u;
        free(atomic_exchange(&slots[(unsigned)round % SLOTS], make_block(state >> 9)));
    }
    pthread_t thread;
    void *block = NULL;
    if (pthread_create(&thread, NULL, one_block, NULL) != 0 || pthread_join(thread, &block) != 0)
        return 2;
    free(block);
    pid_t grandchild = fork();
    if (grandchild == 0)
        _exit(malloc(100000) == NULL);
    int status = -1;
    waitpid(grandchild, &status, 0);
    return status != 0;
}

static void check_forks(void)
{
    int count = facts_are_full() ? 300 : 15;
    for (int index = 0; index < count; index++) {
        pid_t child = fork();
        if (child == 0)
            _exit(live_as_child());
        int status = -1;
        waitpid(child, &status, 0);
        fact("fork-in-threads", status == 0, "child %d ended with status 0x%x", index, (unsigned)status);
        if (status != 0)
            return;
    }
}

static void check_spawn(void)
{
    for (int index = 0; index < 8; index++) {
        char *arguments[] = { "true", NULL };
        pid_t child = -1;
        int status = -1;
        int error = posix_spawnp(&child, "true", NULL, NULL, arguments, environ);
        if (error == 0)
            waitpid(child, &status, 0);
        fact("posix_spawn-in-threads", error == 0 && status == 0, "error %d, status 0x%x", error, (unsigned)status);
    }
}

static void check_vfork(void)
{
    for (int index = 0; index < 8; index++) {
        pid_t child = vfork();
        if (child == 0) {
            execlp("true", "true", (char *)NULL);
            _exit(127);
        }
        int status = -1;
        waitpid(child, &status, 0);
        fact("vfork-exec-in-threads", status == 0, "status 0x%x", (unsigned)status);
    }
}

int main(int argc, char **argv)
{
    facts_begin(argc, argv);
    check_served();
    aligned = opaque(memalign(ALIGNMENT, 100));
    pthread_t churners[CHURNERS], asker;
    pthread_create(&asker, NULL, ask, NULL);
    for (size_t index = 0; index < CHURNERS; index++)
        pthread_create(&churners[index], NULL, churn, (void *)index);
    usleep(20000);
    check_forks();
    check_spawn();
    check_vfork();
    stopping = 1;
    for (size_t index = 0; index < CHURNERS; index++)
        pthread_join(churners[index], NULL);
    pthread_join(asker, NULL);
    free(aligned);
    fact("parent-lives-on", true, "unseen");
    return facts_end();
}
