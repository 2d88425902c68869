// SPDX-License-Identifier: Apache-2.0
/* Hazards of processes that fork, or start others. */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hazards.h"

static void wait_for(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    printf("child %s %d\n", WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    fflush(stdout);
}

static void child_works(void) {
    bool has_pacer;
    printf("tasks in the child: %d\n", count_tasks(&has_pacer));
    pthread_t thread = start(rest);
    tell_pacer("in the child");
    churn(1);
    join(thread);
    /* The kernel may count it for a while yet; the pacer then ends only when it looks again. */
    for (int left = 1000; count_tasks(&has_pacer) > 1 && left > 0; left--)
        usleep(10000);
    printf("tasks in the child: %d\n", count_tasks(&has_pacer));
    fflush(stdout);
}

void forks_alone(void) {
    bool has_pacer;
    start_and_forget();
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    printf("tasks after fork: %d\n", count_tasks(&has_pacer));
    wait_for(child);
}

void forks(void) {
    pthread_t thread = start(rest);
    tell_pacer("in the parent");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        child_works();
        _exit(7);
    }
    wait_for(child);
    for (int i = 0; i < 200; i++) { /* a trim may be under way */
        child = fork();
        if (child == 0) {
            free(malloc(100000));
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status != 0)
            printf("child %x\n", status);
    }
    child = vfork();
    if (child == 0) {
        execl("/bin/echo", "echo", "by vfork", NULL);
        _exit(9);
    }
    wait_for(child);
    char *const echo[] = {"echo", "by posix_spawn", NULL};
    extern char **environ;
    posix_spawn(&child, "/bin/echo", NULL, NULL, echo, environ);
    wait_for(child);
    /* As clone does it: no fork handler runs. */
    fflush(stdout);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        poll(NULL, 0, 1200);
        unshare(0);
        _exit(5);
    }
    wait_for(child);
    join(thread);
    fflush(stdout);
    execl("/bin/echo", "echo", "by exec", NULL);
}

void daemons(void) {
    pthread_t thread = start(rest);
    tell_pacer("in the parent");
    (void)thread;
    fflush(stdout);
    if (daemon(1, 1) != 0)
        exit(2);
    child_works();
    puts("daemon done");
}

static char notes[200];

static void note(const char *what) {
    free(malloc(10)); /* the allocator's locks are free */
    strcat(strcat(notes, " "), what);
}

static void first_before(void) { note("before-1"); }
static void first_in_parent(void) { note("parent-1"); }
static void first_in_child(void) { note("child-1"); }
static void second_before(void) { note("before-2"); }
static void second_in_parent(void) { note("parent-2"); }
static void second_in_child(void) {
    note("child-2");
    join(start(rest)); /* a library that brings its threads back */
}

void atfork(void) {
    pthread_atfork(first_before, first_in_parent, first_in_child);
    pthread_t thread = start(rest);
    tell_pacer("with a thread");
    pthread_atfork(second_before, second_in_parent, second_in_child);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        puts(notes);
        fflush(stdout);
        _exit(3);
    }
    wait_for(child);
    puts(notes);
    join(thread);
}
