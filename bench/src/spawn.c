// SPDX-License-Identifier: Apache-2.0
/*
 * spawn - how long programs take from posix_spawn to their end, interleaved.
 *
 * spawn ROUNDS BLOCK [, NAME [VARIABLE=VALUE]... = PROGRAM [ARGUMENT]...]...
 *
 * In each round every way of starting gets BLOCK starts in a row, the ways in a new random order. The
 * environment is PATH, HOME and the variables given, all else being equal; shorter ones are filled up to the
 * length of the longest, because the size of the environment alone shifts the stack and with it the time. One
 * line per round and way:
 *   NAME WALL_NS CPU_NS     (least wall time of the block, and the CPU time, user and system, of that start)
 */
#include <errno.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#define END "," /* between ways: commands may hold a "--" of their own */
#define MOST_WAYS 64
#define MOST_VARIABLES 16

struct way {
    const char *name;
    char **argv;
    char *environment[MOST_VARIABLES + 4];
    int variables;
};

struct cost {
    uint64_t wall_ns, cpu_ns;
};

static struct way ways[MOST_WAYS];
static int way_count;

static _Noreturn void fail(const char *what, const char *why) {
    fprintf(stderr, "spawn: %s: %s\n", what, why);
    exit(2);
}

static void add_variable(struct way *way, char *pair) {
    if (way->variables == MOST_VARIABLES)
        fail(way->name, "too many variables");
    way->environment[way->variables++] = pair;
}

static void add_inherited(struct way *way, const char *name) {
    const char *value = getenv(name);
    char *pair;
    if (value != NULL && asprintf(&pair, "%s=%s", name, value) > 0)
        add_variable(way, pair);
}

/* Reads one way from `argv`, up to "," or the end; returns where it stopped. */
static char **read_way(char **argv) {
    if (way_count == MOST_WAYS)
        fail("command line", "too many ways");
    struct way *way = &ways[way_count++];
    way->name = *argv++;
    add_inherited(way, "PATH");
    add_inherited(way, "HOME");
    for (; *argv != NULL && strcmp(*argv, "=") != 0; argv++)
        add_variable(way, *argv);
    if (*argv == NULL)
        fail(way->name, "no program");
    way->argv = ++argv;
    while (*argv != NULL && strcmp(*argv, END) != 0)
        argv++;
    if (*argv != NULL)
        *argv++ = NULL;
    return argv;
}

static size_t environment_bytes(const struct way *way) {
    size_t bytes = 0;
    for (int i = 0; i < way->variables; i++)
        bytes += strlen(way->environment[i]) + 1;
    return bytes;
}

static void level_environments(void) {
    size_t longest = 0;
    for (int i = 0; i < way_count; i++)
        longest = environment_bytes(&ways[i]) > longest ? environment_bytes(&ways[i]) : longest;
    for (int i = 0; i < way_count; i++) {
        size_t fill = longest - environment_bytes(&ways[i]);
        char *filler = malloc(fill + 6);
        memcpy(filler, "FILL=", 5);
        memset(filler + 5, 'x', fill);
        filler[5 + fill] = '\0';
        ways[i].environment[ways[i].variables] = filler;
    }
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t ns_of(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

static struct cost start_once(struct way *way) {
    pid_t child;
    int status;
    struct rusage usage;
    uint64_t begin = now_ns();
    int error = posix_spawnp(&child, way->argv[0], NULL, NULL, way->argv, way->environment);
    if (error != 0)
        fail(way->argv[0], strerror(error));
    if (wait4(child, &status, 0, &usage) < 0)
        fail("wait4", strerror(errno));
    uint64_t wall = now_ns() - begin;
    if (status != 0)
        fail(way->name, "the program failed");
    return (struct cost){.wall_ns = wall, .cpu_ns = ns_of(usage.ru_utime) + ns_of(usage.ru_stime)};
}

static struct cost best_of_block(struct way *way, int block) {
    struct cost best = start_once(way);
    for (int i = 1; i < block; i++) {
        struct cost next = start_once(way);
        if (next.wall_ns < best.wall_ns)
            best = next;
    }
    return best;
}

static void shuffle(int *order, int count) {
    for (int i = count - 1; i > 0; i--) {
        int other = (int)(random() % (i + 1));
        int kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

static void play_round(int *order, int block) {
    shuffle(order, way_count);
    for (int i = 0; i < way_count; i++) {
        struct way *way = &ways[order[i]];
        struct cost cost = best_of_block(way, block);
        printf("%s %llu %llu\n", way->name, (unsigned long long)cost.wall_ns, (unsigned long long)cost.cpu_ns);
    }
}

int main(int argc, char **argv) {
    if (argc < 4 || strcmp(argv[3], END) != 0)
        fail("usage", "spawn ROUNDS BLOCK [, NAME [VARIABLE=VALUE]... = PROGRAM [ARGUMENT]...]...");
    int rounds = atoi(argv[1]), block = atoi(argv[2]);
    for (char **next = argv + 4; *next != NULL;)
        next = read_way(next);
    level_environments();
    int order[MOST_WAYS];
    for (int i = 0; i < way_count; i++)
        order[i] = i;
    srandom(1);
    for (int round = 0; round < rounds; round++)
        play_round(order, block);
    return 0;
}
