// SPDX-License-Identifier: Apache-2.0
// Memory after a burst: what is given back, and what a quiet process keeps.
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fact.h"
#include "served.h"

enum { BURST_MIB = 192, SMALL = 200, SPARSE_MIB = 256 };

static long resident_mib(void)
{
    long size = 0, resident = 0;
    FILE *stream = fopen("/proc/self/statm", "r");
    if (stream != NULL && fscanf(stream, "%ld %ld", &size, &resident) != 2)
        resident = 0;
    if (stream != NULL)
        fclose(stream);
    return resident * sysconf(_SC_PAGESIZE) >> 20;
}

// malloc_trim is asked for, then a moment passes in which the process still allocates a little: allocators
// that give back by and by do it then.
static long resident_after_rest(void)
{
    malloc_trim(0);
    for (int round = 0; round < 150 && resident_mib() > BURST_MIB / 4; round++) {
        usleep(20000);
        free(opaque(malloc(opaque_size((size_t)round * 1000 + 10))));
        malloc_trim(0);
    }
    return resident_mib();
}

static void **allocate(size_t count, size_t size)
{
    void **blocks = calloc(count, sizeof *blocks);
    for (size_t index = 0; index < count; index++)
        blocks[index] = memset(malloc(size), 1, size);
    return blocks;
}

static void release(void **blocks, size_t count)
{
    for (size_t index = 0; index < count; index++)
        free(blocks[index]);
    free(blocks);
}

static void check_burst(const char *name, size_t size)
{
    size_t count = ((size_t)BURST_MIB << 20) / size;
    void **blocks = allocate(count, size);
    long peak = resident_mib();
    release(blocks, count);
    long kept = resident_after_rest();
    fact("burst-was-real", peak >= BURST_MIB, "only %ld MiB resident", peak);
    fact(name, kept <= BURST_MIB / 4, "%ld of %ld MiB still resident after %zu-byte blocks", kept, peak, size);
}

// The same burst again and again must not need more each time.
static void check_reuse(void)
{
    long first = 0, last = 0;
    for (int round = 0; round < 8; round++) {
        void **blocks = allocate(40000, SMALL + (size_t)round % 3 * 16);
        last = resident_mib();
        first = round == 0 ? last : first;
        release(blocks, 40000);
    }
    fact("burst-reuses-memory", last <= first * 5 / 2 + 4, "%ld MiB at first, %ld at last", first, last);
}

// A table of which little is used must not cost what it would cost in full: twice, so that the block may be a used one.
static void check_sparse(void)
{
    const size_t size = (size_t)SPARSE_MIB << 20;
    long before = resident_mib();
    for (int round = 0; round < 2; round++) {
        char *table = opaque(calloc(opaque_size(size / 1000 + 1), 1000));
        table[size / 2] = 1;
        long held = resident_mib() - before;
        fact("large-calloc-is-sparse", held <= SPARSE_MIB / 8, "%ld of %d MiB resident, one page was written", held, SPARSE_MIB);
        free(table);
    }
}

int main(int argc, char **argv)
{
    facts_begin(argc, argv);
    check_served();
    check_sparse();
    check_reuse();
    check_burst("large-burst-given-back", (size_t)1 << 20);
    check_burst("small-burst-given-back", SMALL);
    return facts_end();
}
