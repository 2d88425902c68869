// SPDX-License-Identifier: Apache-2.0
// storms KIND: a program in which much happens while its first thread waits in ppoll: signal handlers that allocate come each
// millisecond, on an alternative stack or not; processes begin and end, by fork or vfork; threads begin and end. Ends with standard
// input, and says then whether what it wrote into its memory is there still. "on-stack" waits in a handler for ever.
#define _GNU_SOURCE
#include "heap.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

enum { LEAST = 20, AT_ONCE = 8 };

static atomic_ulong done;
extern char **environ;

static void wrong(const char *what)
{
    printf("wrong: %s\n", what);
    fflush(stdout);
    _exit(1);
}

// Takes, fills, looks and frees.
static void use_the_heap(unsigned seed)
{
    unsigned char *held[16];
    size_t bytes[16];
    for (int i = 0; i < 16; i++) {
        bytes[i] = 16 + (seed * 2654435761u + (unsigned)i * 40503u) % 9000;
        held[i] = malloc(bytes[i]);
        if (!held[i])
            wrong("no memory");
        memset(held[i], (int)(seed + (unsigned)i) & 0xff, bytes[i]);
    }
    for (int i = 0; i < 16; i++) {
        for (size_t at = 0; at < bytes[i]; at++)
            if (held[i][at] != ((seed + (unsigned)i) & 0xff))
                wrong("a byte");
        free(held[i]);
    }
    atomic_fetch_add(&done, 1);
}

// The first thread uses the heap nowhere but here while signals come.
static void on_tick(int number)
{
    (void)number;
    use_the_heap((unsigned)atomic_load(&done));
}

static void begin_ticks(int flags)
{
    struct sigaction on = {.sa_handler = on_tick, .sa_flags = flags};
    sigaction(SIGRTMIN, &on, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    struct itimerspec each = {.it_interval = {.tv_nsec = 1000000}, .it_value = {.tv_nsec = 1000000}};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &each, NULL))
        wrong("no timer");
}

static stack_t alternative(void)
{
    static char room[1 << 18];
    return (stack_t){.ss_sp = room, .ss_size = sizeof room};
}

static void wait_for_end(int number)
{
    (void)number;
    for (char byte; read(0, &byte, 1) == 1;)
        ;
}

static void *fork_again_and_again(void *unused)
{
    for (unsigned seed = 1;; seed++) {
        int child = fork(), status;
        if (!child) {
            use_the_heap(seed);
            _exit(7);
        }
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
            wrong("a child of fork");
        use_the_heap(seed);
    }
    return unused;
}

static void *spawn_again_and_again(void *unused)
{
    char *words[] = {"true", NULL};
    for (unsigned seed = 1;; seed++) {
        int child, status;
        if (posix_spawnp(&child, "true", NULL, NULL, words, environ))
            wrong("no child");
        if (waitpid(child, &status, 0) != child || status)
            wrong("a child of posix_spawn");
        use_the_heap(seed);
    }
    return unused;
}

static void *live_for_a_moment(void *seed)
{
    struct timespec moment = {.tv_nsec = 300000};
    use_the_heap((unsigned)(size_t)seed);
    nanosleep(&moment, NULL);
    use_the_heap((unsigned)(size_t)seed + 1);
    return seed;
}

static void *make_threads_again_and_again(void *unused)
{
    for (size_t seed = 1;; seed++) {
        pthread_t threads[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++)
            if (pthread_create(&threads[i], NULL, live_for_a_moment, (void *)(seed + (size_t)i)))
                wrong("no thread");
        for (int i = 0; i < AT_ONCE; i++) {
            void *got;
            if (pthread_join(threads[i], &got) || got != (void *)(seed + (size_t)i))
                wrong("a thread");
        }
    }
    return unused;
}

static void *use_again_and_again(void *unused)
{
    for (unsigned seed = 1;; seed++)
        use_the_heap(seed);
    return unused;
}

int main(int count, char **words)
{
    const char *kind = count > 1 ? words[1] : "";
    stack_t ours = alternative(), now;
    pthread_t thread;
    void *(*beside)(void *) = !strcmp(kind, "fork")      ? fork_again_and_again
                              : !strcmp(kind, "spawn")   ? spawn_again_and_again
                              : !strcmp(kind, "threads") ? make_threads_again_and_again
                              : !strcmp(kind, "arena")   ? use_again_and_again
                                                         : NULL;
    int is_on_stack = !strcmp(kind, "on-stack"), is_alternative = !strcmp(kind, "alternative-stack");
    fill(getpid(), SYS_ppoll);
    if (is_on_stack || is_alternative)
        sigaltstack(&ours, NULL);
    if (is_on_stack) {
        struct sigaction on = {.sa_handler = wait_for_end, .sa_flags = SA_ONSTACK};
        sigaction(SIGUSR1, &on, NULL);
        raise(SIGUSR1);
    }
    if (beside && pthread_create(&thread, NULL, beside, NULL))
        wrong("no thread");
    if (!beside && !is_on_stack)
        begin_ticks(is_alternative ? SA_ONSTACK : 0);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    for (struct timespec limit = {.tv_nsec = 5000000}; ppoll(&input, 1, beside ? &limit : NULL, NULL) != 1;)
        ; // the limit ends it, or a tick
    sigset_t ticks;
    sigemptyset(&ticks);
    sigaddset(&ticks, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &ticks, NULL);
    sigaltstack(NULL, &now);
    if ((is_on_stack || is_alternative) && (now.ss_sp != ours.ss_sp || now.ss_size != ours.ss_size || now.ss_flags))
        wrong("the alternative stack");
    if (!is_on_stack && atomic_load(&done) < LEAST)
        wrong("it did too little");
    printf("%lu\n", atomic_load(&done));
    say_how_it_is();
    fflush(stdout);
    _exit(0);
}
