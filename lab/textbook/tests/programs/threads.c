// SPDX-License-Identifier: Apache-2.0
/* Threads that come and go and free each other's blocks, and forks among them. Every block is full
 * of its own mark, and errno has to survive each call, whoever waits for the lock; prints "done"
 * when nothing was ever wrong. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, GENERATIONS = 10, STEPS = 5000, SHARED = 64, BYTES_MAX = 600, FORKS = 20 };

struct parcel {
    size_t bytes;
    unsigned char mark;
    unsigned char content[];
};

static struct parcel *shared[SHARED];

static void stop(const char *why)
{
    ssize_t written = write(STDERR_FILENO, why, strlen(why));
    (void)written;
    _exit(1);
}

static struct parcel *pack(unsigned *seed)
{
    size_t bytes = (size_t)rand_r(seed) % BYTES_MAX;
    struct parcel *parcel = malloc(sizeof *parcel + bytes);
    if (!parcel)
        stop("no memory\n");
    parcel->bytes = bytes;
    parcel->mark = (unsigned char)rand_r(seed);
    memset(parcel->content, parcel->mark, bytes);
    return parcel;
}

static void unpack(struct parcel *parcel)
{
    for (size_t i = 0; parcel && i < parcel->bytes; i++)
        if (parcel->content[i] != parcel->mark)
            stop("a byte changed\n");
    free(parcel);
}

static void *work(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    for (int i = 0; i < STEPS; i++) {
        size_t at = (size_t)rand_r(&seed) % SHARED;
        errno = at < SHARED / 2 ? ERANGE : EDOM;
        int before = errno;
        unpack(__atomic_exchange_n(&shared[at], pack(&seed), __ATOMIC_ACQ_REL));
        if (errno != before)
            stop("errno changed\n");
    }
    return NULL;
}

static void fork_once(unsigned seed)
{
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 100; i++)
            unpack(pack(&seed));
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        stop("a child failed\n");
}

int main(void)
{
    for (int generation = 0; generation < GENERATIONS; generation++) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(generation * 8 + i + 1)))
                stop("no thread\n");
        for (int i = 0; i < FORKS / GENERATIONS; i++)
            fork_once((unsigned)i);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    puts("done");
    return 0;
}
