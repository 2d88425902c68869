// SPDX-License-Identifier: Apache-2.0
// The smallest process that allocates: one block, written. Prints what the kernel says is resident of it, before that block and after.
// minimal
#include "figures.h"

#include <fcntl.h>
#include <unistd.h>

// Without stdio, which allocates.
static size_t rollup(char *text, size_t room)
{
    int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    if (file < 0) fail("/proc/self/smaps_rollup cannot be opened");
    size_t length = 0;
    ssize_t got;
    while (length + 1 < room && (got = read(file, text + length, room - length - 1)) > 0) length += (size_t)got;
    close(file);
    text[length] = '\0';
    return length;
}

static void print_text(const char *prefix, const char *text)
{
    static const char *const fields[] = { "Rss", "Pss", "Private_Dirty", "Anonymous" };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char key[32], name[48];
        snprintf(key, sizeof key, "\n%s:", fields[i]);
        const char *at = strstr(text, key);
        if (at == NULL) fail("a field of /proc/self/smaps_rollup is missing");
        snprintf(name, sizeof name, "%s.%s", prefix, fields[i]);
        figure(name, strtod(at + strlen(key), NULL) * 1024);
    }
}

int main(void)
{
    static char before[4096], after[4096];
    rollup(before, sizeof before);
    void *volatile block = malloc(100);
    if (block == NULL) fail("malloc returned NULL");
    touch(block, 100);
    rollup(after, sizeof after);
    print_text("start", before);
    print_text("first", after);
    end_of_figures();
    free(block);
    return 0;
}
