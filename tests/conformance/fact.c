// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "fact.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum { FACTS = 64, DETAIL = 160 };

struct noted {
    const char *name;
    bool holds;
    char detail[DETAIL];
};

static struct noted facts[FACTS];
static int fact_count;
static bool full;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void facts_begin(int argc, char **argv)
{
    // A kernel with pages of 16 KiB gives 32 MiB where one byte is written, if it gives huge pages to all.
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    full = argc > 1 && strcmp(argv[1], "full") == 0;
}

bool facts_are_full(void)
{
    return full;
}

unsigned facts_slowness(void)
{
    const char *times = getenv("IMAS_TEST_SLOWNESS");
    int factor = times != NULL ? atoi(times) : 1;
    return factor > 1 ? (unsigned)factor : 1;
}

static struct noted *find(const char *name)
{
    for (int index = 0; index < fact_count; index++)
        if (strcmp(facts[index].name, name) == 0)
            return &facts[index];
    if (fact_count == FACTS)
        abort();
    facts[fact_count] = (struct noted){ .name = name, .holds = true };
    return &facts[fact_count++];
}

// vsnprintf of integers and strings allocates nothing.
void fact(const char *name, bool holds, const char *detail, ...)
{
    pthread_mutex_lock(&mutex);
    struct noted *noted = find(name);
    if (!holds && noted->holds) {
        va_list arguments;
        va_start(arguments, detail);
        vsnprintf(noted->detail, DETAIL, detail, arguments);
        va_end(arguments);
        noted->holds = false;
    }
    pthread_mutex_unlock(&mutex);
}

int facts_end(void)
{
    int failures = 0;
    for (int index = 0; index < fact_count; index++) {
        printf("%s\t%s\t%s\n", facts[index].name, facts[index].holds ? "pass" : "fail", facts[index].detail);
        failures += !facts[index].holds;
    }
    fflush(stdout);
    return failures != 0;
}
