// SPDX-License-Identifier: Apache-2.0
/*
 * hazards NAME - does one thing that a thread or a system call which the program did not ask for would change, and
 * prints what came of it. The output is the same untouched and where pages are given back (tests/hook/give_back.py).
 * EXPECT_PACER=1 in the environment says that the thread is to be there where the program has threads; 0, that it may
 * not come. The other files hazards_*.c are parts of it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hazards.h"

/* ---- what a process of several threads may not do ------------------------------------------------------ */

static void unshares_joined(void) {
    pthread_t thread = start(rest);
    tell_pacer("with a thread");
    join(thread);
    await_the_last();
    say("unshare", unshare(CLONE_NEWUSER));
}

static void unshares_detached(void) {
    start_and_forget();
    say("unshare", unshare(CLONE_NEWUSER));
}

static void unshares_by_syscall(void) {
    start_and_forget();
    say("unshare", syscall(SYS_unshare, CLONE_NEWUSER));
}

static void enters(void) {
    int ready[2], over[2];
    char byte;
    if (pipe(ready) != 0 || pipe(over) != 0)
        exit(2);
    pid_t child = fork();
    if (child == 0) {
        close(over[1]);
        unshare(CLONE_NEWUSER);
        close(ready[1]);
        _exit(read(over[0], &byte, 1) != 0);
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 0)
        exit(2);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/user", child);
    int space = open(path, O_RDONLY);
    start_and_forget();
    say("setns", setns(space, CLONE_NEWUSER));
    close(over[1]);
    waitpid(child, NULL, 0);
}

static void *unshares(void *unused) {
    for (int i = 0; i < 2000; i++) {
        if (unshare(CLONE_FS) != 0)
            say("unshare", -1);
    }
    return unused;
}

/* Each thread gets a folder of its own, as servers of files do for each of their users. */
static void unshares_at_once(void) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(unshares);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_t thread = start(rest);
    tell_pacer("afterwards");
    join(thread);
    say("unshare", unshare(CLONE_FS));
}

static void tasks(void) {
    bool has_pacer;
    for (int i = 0; i < 50; i++) {
        pthread_t one = start(rest), other = start(rest);
        released = 1;
        pthread_join(one, NULL);
        pthread_join(other, NULL);
        released = 0;
        /* The kernel counts a thread for a moment after it was joined. */
        int count = count_tasks(&has_pacer);
        for (int steps = 0; count != 1 && steps < 10000; steps++) {
            usleep(1000);
            count = count_tasks(&has_pacer);
        }
        if (count != 1 || has_pacer)
            printf("%d tasks\n", count);
    }
    puts("counted");
}

/* ---- descriptors --------------------------------------------------------------------------------------- */

static int count_files(const char *task) {
    char path[300];
    snprintf(path, sizeof path, "/proc/self/task/%s/fd", task);
    DIR *files = opendir(path);
    int count = 0;
    for (struct dirent *file; (file = readdir(files)) != NULL;)
        count += file->d_name[0] != '.';
    closedir(files);
    return count;
}

/* It has none, but for the moment in which it looks: what it opened would take a number of the program's, what it
 * inherited would stay open. */
static void tell_files_of_pacer(void) {
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] == '.' || !is_pacer(task->d_name))
            continue;
        int files = count_files(task->d_name);
        for (int looks = 10000; files != 0 && looks > 0; looks--) {
            usleep(1000);
            files = count_files(task->d_name);
        }
        if (files != 0)
            printf("the pacer has files: %d\n", files);
    }
    closedir(tasks);
}

static void descriptors(void) {
    close_range(3, ~0U, 0);
    pthread_t thread = start(rest);
    tell_pacer("with a thread");
    long wrong = 0, churned = 0;
    for (double until = clock_s(CLOCK_MONOTONIC) + SECONDS + 1; clock_s(CLOCK_MONOTONIC) < until; churned++) {
        int file = open("/dev/null", O_RDONLY);
        wrong += file != 3;
        close(file);
        if (churned % 1000 == 0)
            close_range(3, ~0U, 0);
    }
    int ends[2];
    if (pipe(ends) != 0)
        exit(2);
    close(ends[1]);
    char byte;
    long got = read(ends[0], &byte, 1); /* nobody else holds the other end */
    tell_files_of_pacer();
    printf("%s number, end of pipe %ld\n", wrong == 0 ? "always the lowest" : "not always the lowest", got);
    join(thread);
}

/* ---- threads that end ---------------------------------------------------------------------------------- */

static void cleaned(void *name) {
    printf("cleaned up %s\n", (const char *)name);
}

static void *waits_in(void *way) {
    pthread_cleanup_push(cleaned, way);
    if (strcmp(way, "poll") == 0)
        poll(NULL, 0, -1);
    else if (strcmp(way, "sleep") == 0)
        sleep(1000);
    else
        select(0, NULL, NULL, NULL, NULL);
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancelled(void) {
    static const char *const ways[] = {"poll", "sleep", "select"};
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, waits_in, (void *)ways[i]);
        usleep(20000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        printf("%s %s\n", ways[i], result == PTHREAD_CANCELED ? "cancelled" : "returned");
    }
}

static void *speaks_late(void *unused) {
    rest(unused); /* until the main thread is about to end */
    usleep(300000);
    puts("last words");
    fflush(stdout);
    return unused;
}

static void main_ends(void) {
    start(speaks_late);
    tell_pacer("with a thread");
    released = 1;
    pthread_exit(NULL);
}

/* Unseen by any function that could be wrapped. */
static void main_vanishes(void) {
    start(speaks_late);
    fflush(stdout);
    released = 1;
    syscall(SYS_exit, 0);
}

/* ---- signals ------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t handled, handled_elsewhere;
static pid_t main_thread;

static void handle(int signal) {
    (void)signal;
    handled++;
    handled_elsewhere += gettid() != main_thread;
    for (int i = 0; i < 100; i++)
        free(malloc(1000));
}

/* poll ends by each signal, also by one that comes while pages are given back. */
static void interrupted(void) {
    main_thread = gettid();
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    int missed = 0;
    for (double until = clock_s(CLOCK_MONOTONIC) + SECONDS + 1; clock_s(CLOCK_MONOTONIC) < until;) {
        sigset_t alarm_only, before;
        sigemptyset(&alarm_only);
        sigaddset(&alarm_only, SIGALRM);
        for (double busy = clock_s(CLOCK_PROCESS_CPUTIME_ID) + 0.005; clock_s(CLOCK_PROCESS_CPUTIME_ID) < busy;) {
        }
        sigprocmask(SIG_BLOCK, &alarm_only, &before);
        kill(getpid(), SIGALRM);
        struct timespec most = {30, 0};
        missed += !(ppoll(NULL, 0, &most, &before) == -1 && errno == EINTR);
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
    printf("missed %d, elsewhere %d, handled %s\n", missed, (int)handled_elsewhere, handled > 0 ? "yes" : "no");
}

/* Sent to the process: a thread of the program's handles it. */
static void to_the_process(void) {
    pthread_t thread = start(rest);
    tell_pacer("with a thread");
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGTERM, &action, NULL);
    main_thread = gettid();
    pid_t own = getpid();
    released = 1;
    pthread_join(thread, NULL);
    released = 0;
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    thread = start(rest); /* inherits the mask: nobody takes the signal but sigwait */
    tell_pacer("with a thread");
    kill(own, SIGTERM);
    int signal = 0;
    sigwait(&term, &signal);
    printf("sigwait %d, handled %d\n", signal, (int)handled);
    join(thread);
}

/* A thread that others made need not be real-time, nor bound to their processor. */
static void real_time(void) {
    cpu_set_t at_start, one, found;
    sched_getaffinity(0, sizeof at_start, &at_start);
    int first = 0;
    while (!CPU_ISSET(first, &at_start))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    say("real-time", sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 5}));
    say("bound", sched_setaffinity(0, sizeof one, &one));
    pthread_t thread = start(rest);
    tell_pacer("with a thread");
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(folder)) != NULL;) {
        if (task->d_name[0] == '.' || !is_pacer(task->d_name))
            continue;
        pid_t id = atoi(task->d_name);
        sched_getaffinity(id, sizeof found, &found);
        if (sched_getscheduler(id) != SCHED_OTHER || !CPU_EQUAL(&found, &at_start))
            printf("the pacer has policy %d and %d processors\n", sched_getscheduler(id), CPU_COUNT(&found));
    }
    closedir(folder);
    join(thread);
}

static void identities(void) {
    pthread_t thread = start(rest);
    tell_pacer("with a thread");
    say("setresuid", setresuid(65534, 65534, 65534));
    DIR *folder = opendir("/proc/self/task");
    int others = 0;
    for (struct dirent *task; (task = readdir(folder)) != NULL;) {
        char path[300], text[4096] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        int file = open(path, O_RDONLY);
        if (task->d_name[0] == '.' || file < 0 || read(file, text, sizeof text - 1) <= 0)
            continue;
        others += strstr(text, "Uid:\t65534\t65534\t65534\t65534") == NULL;
        close(file);
    }
    printf("threads of another user: %d\n", others);
    join(thread);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"unshares-joined", unshares_joined}, {"unshares-detached", unshares_detached},
               {"unshares-by-syscall", unshares_by_syscall}, {"unshares-at-once", unshares_at_once}, {"enters", enters}, {"tasks", tasks}, {"sandboxed-thread", sandboxed_thread},
               {"sandboxed-alone", sandboxed_alone}, {"counter-forbidden", counter_forbidden}, {"threads-forbidden", threads_forbidden}, {"forks", forks}, {"forks-alone", forks_alone},
               {"daemons", daemons}, {"atfork", atfork}, {"descriptors", descriptors}, {"cancelled", cancelled},
               {"main-ends", main_ends}, {"main-vanishes", main_vanishes}, {"interrupted", interrupted},
               {"filtered", filtered}, {"to-the-process", to_the_process}, {"real-time", real_time}, {"identities", identities}};
    if (argc > 2 && strcmp(argv[1], "under-filter") == 0)
        return start_under_filter(argv + 2);
    if (argc != 2)
        return 2;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, argv[1]) == 0)
            all[i].run();
    }
    return 0;
}
