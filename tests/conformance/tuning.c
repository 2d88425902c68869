// SPDX-License-Identifier: Apache-2.0
// The functions around the heap: mallopt, mallinfo, malloc_trim, malloc_stats, malloc_info.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fact.h"
#include "served.h"

static void check_mallopt(void)
{
    fact("mallopt-accepts", mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1 && mallopt(M_TRIM_THRESHOLD, 1 << 20) == 1, "not 1");
}

static void check_mallinfo(void)
{
    void *block = opaque(malloc(opaque_size(1 << 20)));
    struct mallinfo2 info = mallinfo2();
    fact("mallinfo2-sane", info.uordblks < (size_t)1 << 40 && info.hblkhd < (size_t)1 << 40 && info.fordblks < (size_t)1 << 40,
        "%zu used, %zu free", info.uordblks, info.fordblks);
    free(block);
}

static void check_trim(void)
{
    errno = 1234;
    int given = malloc_trim(0);
    fact("malloc_trim-0-or-1", given == 0 || given == 1, "%d", given);
    fact("malloc_trim-keeps-errno", errno == 1234, "errno %d", errno);
    for (int round = 0; round < 20; round++) {
        void *block = opaque(malloc(opaque_size((size_t)round * 50000 + 1)));
        malloc_trim(0);
        free(block);
    }
}

// glibc's writes to standard error, and so must nobody's to standard output.
static void check_stats(void)
{
    FILE *caught = tmpfile();
    int output = dup(STDOUT_FILENO), error = dup(STDERR_FILENO);
    FILE *spilled = tmpfile();
    dup2(fileno(caught), STDERR_FILENO);
    dup2(fileno(spilled), STDOUT_FILENO);
    malloc_stats();
    fflush(stdout);
    dup2(output, STDOUT_FILENO);
    dup2(error, STDERR_FILENO);
    fact("malloc_stats-to-stderr", lseek(fileno(caught), 0, SEEK_END) > 0 && lseek(fileno(spilled), 0, SEEK_END) == 0, "elsewhere");
    fclose(caught);
    fclose(spilled);
    close(output);
    close(error);
}

static void check_info(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    int status = malloc_info(0, stream);
    fclose(stream);
    fact("malloc_info-xml", status == 0 && strncmp(text, "<malloc", 7) == 0 && strstr(text, "</malloc>") != NULL, "%.40s", text);
    fact("malloc_info-einval", malloc_info(1, stderr) == EINVAL, "not EINVAL");
    free(text);
}

int main(int argc, char **argv)
{
    facts_begin(argc, argv);
    check_served();
    check_mallopt();
    check_mallinfo();
    check_trim();
    check_stats();
    check_info();
    return facts_end();
}
