// SPDX-License-Identifier: Apache-2.0
//
// fork, where a library's fork handlers allocate: an allocator's own must be the last before the fork and the
// first after it, as glibc's are. And fork from a signal handler that may have interrupted malloc.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fact.h"
#include "handlers_library.h"
#include "served.h"

#ifdef THREADS
enum { RACED = 1 }; // the library registers from several threads
#else
enum { RACED = 0 };
#endif
enum { SECONDS = 120, CHILD_SECONDS = 60, FORKERS = 4, CHURNERS = 2, EVERYWHERE = IN_PREPARE | IN_PARENT | IN_CHILD };

// ---- a hang fails the fact that hangs

static const char *volatile current;

static void too_late(int number)
{
    (void)number;
    char line[128];
    int length = snprintf(line, sizeof line, "%s\tfail\tstill not done after %u s\n", current, SECONDS * facts_slowness());
    ssize_t written = write(STDOUT_FILENO, line, (size_t)length);
    _exit(written > 0 ? 1 : 2);
}

static void begin(const char *name)
{
    current = name;
    signal(SIGALRM, too_late);
    alarm(SECONDS * facts_slowness());
}

// In a child: a hang ends it, and its parent sees how.
static void begin_child(void)
{
    signal(SIGALRM, SIG_DFL);
    alarm(CHILD_SECONDS * facts_slowness());
}

// ---- one fork

static int use_heap(void)
{
    unsigned char *small = malloc(100), *large = calloc(1, 200000);
    int whole = small != NULL && large != NULL && large[199999] == 0;
    free(small);
    free(large);
    return whole;
}

static int fork_once(void)
{
    pid_t child = fork();
    if (child == 0) {
        begin_child();
        _exit(use_heap() ? 0 : 3);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

static void check_handlers(const char *name, int where)
{
    begin(name);
    handlers_allocate = where;
    int before[] = { handlers_ran[0], handlers_ran[1] };
    for (int round = 0; round < 5; round++) {
        int status = fork_once();
        fact(name, status == 0 && use_heap(), "child %d ended with status 0x%x", round, (unsigned)status);
    }
    fact(name, handlers_ran[0] >= before[0] + 5 && handlers_ran[1] >= before[1] + 5, "handlers did not run");
    handlers_allocate = 0;
}

// ---- from a signal handler

static volatile int forked, failed, is_child;

static void fork_in_handler(int number)
{
    (void)number;
    pid_t child = fork();
    if (child == 0) {
        begin_child();
        if (forked % 2 == 0)
            _exit(0);
        is_child = 1; // and goes on with the interrupted call
        return;
    }
    int status = -1;
    waitpid(child, &status, 0);
    forked++;
    failed += status != 0;
}

static void churn_until(int forks)
{
    void *blocks[64] = { NULL };
    for (unsigned round = 0, left = 2000; forked < forks && left > 0; round++) {
        free(blocks[round % 64]);
        blocks[round % 64] = malloc(round % 97 == 0 ? 50000 : 1 + round * 7 % 3000);
        left -= (unsigned)is_child;
    }
    for (int index = 0; index < 64; index++)
        free(blocks[index]);
}

static void check_signal_handler(void)
{
    begin("fork-in-signal-handler");
    signal(SIGPROF, fork_in_handler);
    struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
    setitimer(ITIMER_PROF, &often, NULL);
    churn_until(facts_are_full() ? 1000 : 100);
    setitimer(ITIMER_PROF, &never, NULL);
    if (is_child) // that of a signal which came as late as here too
        _exit(0);
    fact("fork-in-signal-handler", failed == 0, "%d of %d children failed", failed, forked);
}

static void check_one_thread(bool with_signals)
{
    if (with_signals)
        check_signal_handler();
    check_handlers("prepare-handler-allocates", IN_PREPARE);
    check_handlers("parent-handler-allocates", IN_PARENT);
    check_handlers("child-handler-allocates", IN_CHILD);
}

// ---- with other threads

static atomic_int stopping;

static void *churn(void *argument)
{
    unsigned state = (unsigned)(size_t)argument + 1;
    while (!stopping) {
        state = state * 1664525u + 1013904223u;
        free(malloc(1 + (state >> 9) % (state % 50 == 0 ? 300000 : 3000)));
    }
    return NULL;
}

static void *fork_often(void *unused)
{
    int count = facts_are_full() ? 200 : 15;
    for (int round = 0; round < count; round++) {
        int status = fork_once();
        fact("forks-from-many-threads", status == 0, "child %d ended with status 0x%x", round, (unsigned)status);
    }
    return unused;
}

static void check_forkers(void)
{
    begin("forks-from-many-threads");
    handlers_allocate = EVERYWHERE;
    pthread_t forkers[FORKERS];
    for (int index = 0; index < FORKERS; index++)
        pthread_create(&forkers[index], NULL, fork_often, NULL);
    for (int index = 0; index < FORKERS; index++)
        pthread_join(forkers[index], NULL);
    handlers_allocate = 0;
}

static void check_worker(void)
{
    begin("prepare-handler-joins-thread");
    handlers_worker(1);
    for (int round = 0; round < 10; round++) {
        int status = fork_once();
        fact("prepare-handler-joins-thread", status == 0, "child %d ended with status 0x%x", round, (unsigned)status);
    }
    handlers_worker(0);
}

static void check_threaded(void)
{
    pthread_t churners[CHURNERS];
    for (size_t index = 0; index < CHURNERS; index++)
        pthread_create(&churners[index], NULL, churn, (void *)index);
    check_handlers("prepare-handler-allocates-in-threads", IN_PREPARE);
    check_handlers("parent-handler-allocates-in-threads", IN_PARENT);
    check_handlers("child-handler-allocates-in-threads", IN_CHILD);
    check_worker();
    check_forkers();
    stopping = 1;
    for (size_t index = 0; index < CHURNERS; index++)
        pthread_join(churners[index], NULL);
}

// ---- threads that never allocate

static void *do_nothing(void *unused)
{
    return unused;
}

// Stacks so large that libc does not keep them: what an allocator still looks for there is gone.
static void check_idle_threads(void)
{
    begin("fork-after-threads-that-never-allocate");
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)64 << 20);
    pthread_t threads[8];
    int begun = 0;
    while (begun < 8 && pthread_create(&threads[begun], &attributes, do_nothing, NULL) == 0)
        begun++;
    for (int index = 0; index < begun; index++)
        pthread_join(threads[index], NULL);
    int status = fork_once();
    fact("fork-after-threads-that-never-allocate", status == 0, "status 0x%x", (unsigned)status);
}

// ---- a library that goes

static void check_closed(void)
{
    begin("closed-library-is-forgotten");
    void *library = dlopen("libhandlers-closed.so", RTLD_NOW | RTLD_LOCAL);
    volatile int *ran = library != NULL ? dlsym(library, "handlers_ran") : NULL;
    int status = fork_once();
    fact("opened-library-is-called", status == 0 && ran != NULL && ran[0] > 0, "status 0x%x", (unsigned)status);
    if (library != NULL)
        dlclose(library);
    status = fork_once();
    fact("closed-library-is-forgotten", status == 0, "status 0x%x", (unsigned)status);
}

int main(int argc, char **argv)
{
    facts_begin(argc, argv);
    check_served();
    if (!RACED)
        check_one_thread(argc < 3); // more arguments: an allocator that locks in a fork of one thread
    check_handlers("all-handlers-allocate", EVERYWHERE);
    check_closed();
    check_idle_threads();
    check_threaded();
    alarm(0);
    return facts_end();
}
