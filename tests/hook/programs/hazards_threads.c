// SPDX-License-Identifier: Apache-2.0
/* The threads of hazards.c, and what it says of the one that gives back. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hazards.h"

double clock_s(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

bool is_pacer(const char *id) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", id);
    int file = open(path, O_RDONLY);
    if (file < 0 || read(file, name, sizeof name - 1) < 0)
        name[0] = '\0';
    close(file);
    return strcmp(name, "imas-give-back\n") == 0;
}

int count_tasks(bool *has_pacer) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    *has_pacer = false;
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] == '.')
            continue;
        count++;
        *has_pacer = *has_pacer || is_pacer(task->d_name);
    }
    closedir(tasks);
    return count;
}

/* It gets its name soon after it was started. */
void tell_pacer(const char *where) {
    const char *expects = getenv("EXPECT_PACER");
    bool expected = expects != NULL && strcmp(expects, "1") == 0, has_pacer = false;
    int looks = expected ? 1000 : expects != NULL ? 200 : 1;
    while (looks-- > 0 && (count_tasks(&has_pacer), !has_pacer))
        usleep(10000);
    printf("pacer %s: %s\n", where, has_pacer == expected ? "as expected" : "not as expected");
}

volatile int released;

void *rest(void *unused) {
    while (!released)
        usleep(1000);
    return unused;
}

pthread_t start(void *(*run)(void *)) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, run, NULL);
    if (error != 0)
        printf("pthread_create: %s\n", strerror(error));
    return thread;
}

void join(pthread_t thread) {
    released = 1;
    pthread_join(thread, NULL);
    released = 0;
}

/* Works, and frees small blocks between others, so that there is something to give back. */
void churn(double seconds) {
    enum { BLOCKS = 20000 };
    static void *blocks[BLOCKS];
    for (double until = clock_s(CLOCK_MONOTONIC) + seconds; clock_s(CLOCK_MONOTONIC) < until;) {
        for (int i = 0; i < BLOCKS; i++)
            blocks[i] = malloc(300);
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
        poll(NULL, 0, 20);
    }
}

void say(const char *what, long answer) {
    printf("%s: %s\n", what, answer == 0 ? "done" : strerror(errno));
}

/* Waits until the kernel counts no thread but the main one and the pacer: one that has ended, and was joined, is counted for
 * a while yet. */
void await_the_last(void) {
    bool has_pacer;
    for (int tasks = count_tasks(&has_pacer); tasks > 1 + has_pacer; tasks = count_tasks(&has_pacer))
        usleep(1000);
}

/* Detached, and ended before this returns: nobody joins it. */
void start_and_forget(void) {
    pthread_t thread = start(rest);
    pthread_detach(thread);
    tell_pacer("with a thread");
    released = 1;
    await_the_last();
    released = 0;
}
