// SPDX-License-Identifier: Apache-2.0
/* Runs the experiments of Öberg, "Malloc" (KTH 2021), on the three arenas and prints CSV.
 *
 *   freelist-driver walk VERSION SEED       one random walk; a row after the 40 requests of the
 *                                           start and after each of the 1,000 iterations
 *   freelist-driver write SESSIONS ROUNDS   time of the write sessions under both header sizes,
 *                                           taken in turn
 *   freelist-driver footprint               memory under the 1,000 blocks that are written, and the
 *                                           size of the first-level data cache (0: not known)
 */
#include "arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    START_REQUESTS = 40,
    ITERATIONS = 1000,
    REQUEST_MAX = 1024,
    WRITE_BLOCKS = 1000,
    WRITE_BYTES = 16,
    LIVE_MAX = START_REQUESTS + ITERATIONS,
};

static const struct arena_version *const versions[] = {
    &arena_plain, &arena_merging, &arena_small_head};

struct walk {
    const struct arena_version *version;
    struct arena arena;
    struct random_data random;
    char random_state[128];
    void *live[LIVE_MAX];
    size_t live_count;
    size_t refused;
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "imas: %s: %s\n", what, why);
    exit(2);
}

static void open_arena(const struct arena_version *version, struct arena *arena)
{
    if (!version->open(arena))
        fail("cannot map an arena", "out of memory");
}

static void seed_walk(struct walk *walk, unsigned long seed)
{
    initstate_r((unsigned)seed, walk->random_state, sizeof walk->random_state, &walk->random);
}

/* Uniform in [0, bound); the bias of the division is below 1e-6 for the bounds used here. The
 * additive generator: neighbouring seeds of the 48-bit congruential one walk side by side. */
static size_t draw(struct walk *walk, size_t bound)
{
    int32_t number;
    random_r(&walk->random, &number);
    return (size_t)number % bound;
}

static void allocate_one(struct walk *walk)
{
    size_t least = walk->version->request_min;
    size_t bytes = least + draw(walk, REQUEST_MAX - least + 1);
    void *block = walk->version->allocate(&walk->arena, bytes);
    if (block)
        walk->live[walk->live_count++] = block;
    else
        walk->refused++;
}

static void release_one(struct walk *walk)
{
    if (walk->live_count == 0)
        return;
    size_t at = draw(walk, walk->live_count);
    walk->version->release(&walk->arena, walk->live[at]);
    walk->live[at] = walk->live[--walk->live_count];
}

static void print_row(const struct walk *walk, int iteration)
{
    struct arena_view view = walk->version->view(&walk->arena);
    double mean =
        view.free_blocks ? (double)view.free_payload_bytes / (double)view.free_blocks : 0.0;
    printf("%d,%zu,%.3f,%zu,%zu\n", iteration, view.free_blocks, mean, view.used_blocks,
           walk->refused);
}

static void run_walk(const struct arena_version *version, unsigned long seed)
{
    struct walk walk = {.version = version};
    seed_walk(&walk, seed);
    open_arena(version, &walk.arena);
    puts("iteration,free_blocks,mean_free_bytes,used_blocks,refused");
    for (int i = 0; i < START_REQUESTS; i++)
        allocate_one(&walk);
    print_row(&walk, 0);
    for (int i = 1; i <= ITERATIONS; i++) {
        if (draw(&walk, 2))
            allocate_one(&walk);
        if (draw(&walk, 2))
            release_one(&walk);
        print_row(&walk, i);
    }
    version->close(&walk.arena);
}

struct writing {
    const struct arena_version *version;
    struct arena arena;
    volatile unsigned long *blocks[WRITE_BLOCKS];
};

static void fill(struct writing *writing, const struct arena_version *version)
{
    writing->version = version;
    open_arena(version, &writing->arena);
    for (size_t i = 0; i < WRITE_BLOCKS; i++)
        if (!(writing->blocks[i] = version->allocate(&writing->arena, WRITE_BYTES)))
            fail(version->name, "the arena is full");
}

/* The process's own time: a session is not longer because others want the processor. */
static long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static long session_ns(const struct writing *writing, unsigned long rounds)
{
    long start = now_ns();
    for (unsigned long round = 0; round < rounds; round++)
        for (size_t i = 0; i < WRITE_BLOCKS; i++)
            *writing->blocks[i] = round;
    return now_ns() - start;
}

static void run_write(unsigned long sessions, unsigned long rounds)
{
    static struct writing large, small;
    fill(&large, &arena_merging);
    fill(&small, &arena_small_head);
    puts("session,large_header_ns,small_header_ns");
    for (unsigned long session = 1; session <= sessions; session++) {
        long large_ns = session_ns(&large, rounds);
        printf("%lu,%ld,%ld\n", session, large_ns, session_ns(&small, rounds));
    }
}

/* From the first block's header to the end of the last one's payload. */
static size_t footprint_bytes(const struct writing *writing)
{
    size_t start = (size_t)writing->blocks[0] - writing->version->header_bytes;
    return (size_t)writing->blocks[WRITE_BLOCKS - 1] + WRITE_BYTES - start;
}

static void run_footprint(void)
{
    static struct writing writing;
    puts("version,header_bytes,first_free_bytes,blocks,payload_bytes,footprint_bytes,"
         "data_cache_bytes");
    long cache_bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        struct arena empty;
        open_arena(versions[i], &empty);
        fill(&writing, versions[i]);
        printf("%s,%zu,%zu,%d,%d,%zu,%ld\n", versions[i]->name, versions[i]->header_bytes,
               versions[i]->view(&empty).free_payload_bytes, WRITE_BLOCKS,
               WRITE_BLOCKS * WRITE_BYTES, footprint_bytes(&writing),
               cache_bytes > 0 ? cache_bytes : 0);
    }
}

static unsigned long number(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end)
        fail(text, "not a number");
    return value;
}

static const struct arena_version *version_named(const char *name)
{
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        if (strcmp(versions[i]->name, name) == 0)
            return versions[i];
    fail(name, "no such version (plain, merging, small-head)");
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "walk") == 0)
        run_walk(version_named(argv[2]), number(argv[3]));
    else if (argc == 4 && strcmp(argv[1], "write") == 0)
        run_write(number(argv[2]), number(argv[3]));
    else if (argc == 2 && strcmp(argv[1], "footprint") == 0)
        run_footprint();
    else
        fail("freelist-driver", "usage: walk VERSION SEED | write SESSIONS ROUNDS | footprint");
    if (fflush(stdout) != 0)
        fail("cannot write the figures", "stdout is closed or full");
    return 0;
}
