// SPDX-License-Identifier: Apache-2.0
/*
 * Resident memory of a minimal process: allocates one block, writes it, and prints its resident KiB, as the
 * kernel counts them at that moment: all of it, and the anonymous part, which no other process shares.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long field(const char *text, const char *name)
{
    const char *found = strstr(text, name);
    return found == NULL ? -1 : strtol(found + strlen(name), NULL, 10);
}

int main(void)
{
    static char text[4096];
    char *volatile block = malloc(64);
    if (block == NULL)
        return 1;
    block[0] = 1;
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (got <= 0)
        return 1;
    printf("%ld %ld\n", field(text, "\nRss:"), field(text, "\nAnonymous:"));
    free(block);
    return 0;
}
