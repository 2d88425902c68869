// SPDX-License-Identifier: Apache-2.0
/*
 * gives_back WAY - frees most of a heap of small blocks, so that the free pages lie between blocks in use, and waits
 * until its resident memory has fallen below a half of what it was, 60 s at most. Prints "fell" or "stayed".
 * WAY is how it waits: threads (the others sleep), poll, epoll, select, accept, sleep. With GIVES_BACK_IDLE it works so
 * little that nothing is given back unasked, and ends when its standard input does. On an emulated machine it works
 * IMAS_TEST_SLOWNESS times as long: giving back costs more there, and may take a hundredth of its work.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BLOCKS 600000
#define BLOCK_BYTES 200
/* One block of these stays. mimalloc gives back no page of 64 KiB with one in it; jemalloc for arm64, whose pages are of that
 * size everywhere, no 4,096 blocks. */
#define PINNED 16384
#define DEADLINE_S 60

static long resident_kib(void) {
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &size, &resident) != 2)
        exit(2);
    fclose(file);
    return resident * 4;
}

static char *blocks[BLOCKS];

static void fill(void) {
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BLOCK_BYTES);
        memset(blocks[i], 1, BLOCK_BYTES);
    }
}

static void empty(void) {
    for (int i = 0; i < BLOCKS; i++) {
        if (i % PINNED != 0) {
            free(blocks[i]);
            blocks[i] = NULL;
        }
    }
}

static double cpu_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* What is given back is a share of what was worked. */
static void work(double seconds) {
    for (double until = cpu_s() + seconds; cpu_s() < until;) {
    }
}

static void *sleep_long(void *unused) {
    sleep(1000000); /* the process ends before */
    return unused;
}

static int listen_somewhere(void) {
    int file = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval wait = {0, 200000};
    if (bind(file, (struct sockaddr *)&any, sizeof any) != 0 || listen(file, 1) != 0)
        exit(2);
    setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    return file;
}

static void wait_once(const char *way) {
    static int file = -1;
    struct epoll_event event;
    struct timeval wait = {0, 200000};
    if (strcmp(way, "poll") == 0) {
        poll(NULL, 0, 200);
    } else if (strcmp(way, "epoll") == 0) {
        file = file < 0 ? epoll_create1(0) : file;
        epoll_wait(file, &event, 1, 200);
    } else if (strcmp(way, "select") == 0) {
        select(0, NULL, NULL, NULL, &wait);
    } else if (strcmp(way, "accept") == 0) {
        file = file < 0 ? listen_somewhere() : file;
        accept(file, NULL, NULL);
    } else {
        usleep(0);
        nanosleep(&(struct timespec){0, 200000000}, NULL);
    }
}

int main(int argc, char **argv) {
    const char *way = argc == 2 ? argv[1] : "threads";
    pthread_t thread;
    for (int i = 0; strcmp(way, "threads") == 0 && i < 2; i++)
        pthread_create(&thread, NULL, sleep_long, NULL);
    fill();
    long full = resident_kib();
    const char *times = getenv("IMAS_TEST_SLOWNESS");
    int slowness = times != NULL ? atoi(times) : 1;
    if (getenv("GIVES_BACK_IDLE") == NULL)
        work(1.6 * slowness);
    empty();
    time_t until = time(NULL) + DEADLINE_S * slowness;
    while (resident_kib() > full / 2 && time(NULL) < until)
        wait_once(way);
    puts(resident_kib() > full / 2 ? "stayed" : "fell");
    fflush(stdout);
    if (getenv("GIVES_BACK_IDLE") != NULL)
        getchar();
    if (getenv("GIVES_BACK_TELL") != NULL)
        fprintf(stderr, "%ld -> %ld KiB, %.3f s of CPU time\n", full, resident_kib(), cpu_s());
    return 0;
}
