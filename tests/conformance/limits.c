// SPDX-License-Identifier: Apache-2.0
// Out of memory: RLIMIT_AS and RLIMIT_DATA refuse, the process goes on.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fact.h"
#include "served.h"

enum { MOST_BLOCKS = 200000, MOST_LARGE = 1000, ROOM_MIB = 64, LARGE_MIB = 64 };

static void *blocks[MOST_BLOCKS + MOST_LARGE];

// statm: size, resident, shared, text, lib, data; in pages.
static size_t statm_bytes(int field)
{
    unsigned long values[6] = { 0 };
    FILE *stream = fopen("/proc/self/statm", "r");
    if (stream == NULL || fscanf(stream, "%lu %lu %lu %lu %lu %lu", &values[0], &values[1], &values[2], &values[3],
                              &values[4], &values[5]) != 6)
        values[field] = 0;
    if (stream != NULL)
        fclose(stream);
    return values[field] * (size_t)sysconf(_SC_PAGESIZE);
}

static int allocate_some(size_t size, int count, int most)
{
    while (count < most) {
        char *block = malloc(size);
        if (block == NULL)
            break;
        block[0] = 1;
        blocks[count++] = block;
    }
    return count;
}

// Some allocators reserved much before the limit came: what is left of that goes to large blocks.
static int allocate_until_refused(size_t size)
{
    errno = 0;
    int count = allocate_some(size, 0, MOST_BLOCKS);
    if (count < MOST_BLOCKS)
        return count;
    return allocate_some((size_t)LARGE_MIB << 20, count, MOST_BLOCKS + MOST_LARGE);
}

static void free_all(int count)
{
    while (count > 0)
        free(blocks[--count]);
}

// In a child, so that each limit meets a fresh process. Exit status: which step went wrong.
static int live_under_limit(int resource, int field, size_t size)
{
    struct rlimit limit;
    limit.rlim_cur = limit.rlim_max = statm_bytes(field) + ((size_t)ROOM_MIB << 20);
    if (setrlimit(resource, &limit) != 0)
        return 10;
    int count = allocate_until_refused(size);
    if (count == MOST_BLOCKS + MOST_LARGE)
        return 11;
    if (errno != ENOMEM)
        return 12;
    if (count == 0)
        return 0;
    memset(blocks[0], 7, size < 4096 ? size : 4096);
    if (realloc(blocks[0], (size_t)1 << 40) != NULL || *(char *)blocks[0] != 7)
        return 13;
    free_all(count);
    char *again = malloc(size);
    if (again == NULL)
        return 14;
    free(again);
    return 0;
}

static void check_limit(const char *name, int resource, int field, size_t size)
{
    static const char *const steps[] = { "setrlimit failed", "never refused", "errno is not ENOMEM",
        "realloc did not refuse and keep", "no memory after freeing all" };
    pid_t child = fork();
    if (child == 0) {
        alarm(50 * facts_slowness());
        _exit(live_under_limit(resource, field, size));
    }
    int status = -1;
    waitpid(child, &status, 0);
    int step = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    fact(name, status == 0, "blocks of %zu: %s (status 0x%x)", size,
        step >= 10 && step < 15 ? steps[step - 10] : "died", (unsigned)status);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = { 1000, 50000, 300000, (size_t)8 << 20 };
    facts_begin(argc, argv);
    check_served();
    for (int index = 0; index < 4; index++) {
        check_limit("rlimit-as-refuses", RLIMIT_AS, 0, sizes[index]);
        check_limit("rlimit-data-refuses", RLIMIT_DATA, 5, sizes[index]);
    }
    return facts_end();
}
