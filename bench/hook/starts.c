// SPDX-License-Identifier: Apache-2.0
/*
 * starts - what a start costs: starts ROUNDS LIBDIR [ALLOCATOR]
 * Starts /bin/true plain, with a library that does nothing, and in each of our modes, in turn, and prints the lower
 * quartile of the wall time of each, and its difference to plain, in microseconds. Interleaved, so that a busy machine slows all alike.
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../abi/imas_abi.h"

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

struct mode {
    const char *name;
    char preload[4096];
    uint32_t kind; /* of the page, 0 for none */
    double *microseconds;
};

static const char page_path[] = "/dev/shm/imas-starts.page";

static void make_page(uint32_t kind) {
    int fd = open(page_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct imas_page_header header = {.magic = IMAS_PAGE_MAGIC, .version = IMAS_PAGE_VERSION, .kind = kind,
                                      .pid = (uint32_t)getpid(), .armed = 1,
                                      .page_bytes = kind == IMAS_PAGE_TRIAL ? IMAS_TRIAL_PAGE_BYTES : IMAS_HEADER_BYTES};
    if (write(fd, &header, sizeof header) < 0 || ftruncate(fd, header.page_bytes) != 0)
        _exit(125);
    close(fd);
}

/* fork and not posix_spawn: the page carries the child's pid */
static double start(const struct mode *mode) {
    int ready[2];
    char byte = 0;
    if (pipe(ready) != 0)
        exit(2);
    pid_t pid = fork();
    if (pid == 0) {
        static char preload[4200], page[4200];
        char *environment[] = {preload, "IMAS_UNSET=LD_PRELOAD", page, NULL};
        snprintf(preload, sizeof preload, "LD_PRELOAD=%s", mode->preload);
        snprintf(page, sizeof page, "IMAS_PAGE=%s", page_path);
        if (mode->kind != 0)
            make_page(mode->kind);
        if (read(ready[0], &byte, 1) < 0)
            _exit(125);
        execle("/bin/true", "true", (char *)NULL, environment + (*mode->preload == '\0'));
        _exit(125);
    }
    usleep(2000); /* the child waits */
    double begin = now();
    if (write(ready[1], &byte, 1) != 1)
        exit(2);
    int status;
    waitpid(pid, &status, 0);
    close(ready[0]);
    close(ready[1]);
    return status == 0 ? now() - begin : 1e9;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    int rounds = atoi(argv[1]);
    static struct mode modes[6] = {{.name = "plain"}, {.name = "allocator"}, {.name = "guard", .kind = IMAS_PAGE_FLIGHT},
                                   {.name = "guard+allocator", .kind = IMAS_PAGE_FLIGHT},
                                   {.name = "trial", .kind = IMAS_PAGE_TRIAL}, {.name = "pass (no page)"}};
    const char *lib = argv[2], *allocator = argc > 3 ? argv[3] : "jemalloc";
    snprintf(modes[1].preload, 4096, "%s/allocators/lib%s.so", lib, allocator);
    snprintf(modes[2].preload, 4096, "%s/libimas-guard.so", lib);
    snprintf(modes[3].preload, 4096, "%s/libimas-guard.so:%s/allocators/lib%s.so", lib, lib, allocator);
    snprintf(modes[4].preload, 4096, "%s/libimas.so", lib);
    snprintf(modes[5].preload, 4096, "%s/libimas.so", lib);
    for (int m = 0; m < 6; m++)
        modes[m].microseconds = calloc((size_t)rounds, sizeof(double));
    for (int round = 0; round < rounds; round++)
        for (int m = 0; m < 6; m++)
            modes[m].microseconds[round] = start(&modes[m]);
    for (int m = 0; m < 6; m++) {
        qsort(modes[m].microseconds, (size_t)rounds, sizeof(double), compare);
        double cost = modes[m].microseconds[rounds / 4];
        printf("%-16s %8.1f us  %+8.1f\n", modes[m].name, cost, cost - modes[0].microseconds[rounds / 4]);
    }
    unlink(page_path);
    return 0;
}
