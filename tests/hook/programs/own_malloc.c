// SPDX-License-Identifier: Apache-2.0
/* An executable with an allocator of its own that does not know posix_memalign: blocks must not meet a
 * stranger's. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(16) char arena[64 << 20];
static size_t used;
static unsigned long served;

static int mine(const void *block) {
    return (const char *)block >= arena && (const char *)block < arena + sizeof arena;
}

void *malloc(size_t size) {
    size_t *header = (size_t *)(void *)(arena + used);
    if (size > sizeof arena - used - 32)
        return NULL;
    used += (size + 31) & ~(size_t)15;
    *header = size;
    served++;
    return header + 2;
}

void free(void *block) {
    if (block != NULL && !mine(block)) {
        static const char text[] = "free of a stranger's block\n";
        fwrite(text, 1, sizeof text - 1, stderr);
        abort();
    }
}

void *calloc(size_t count, size_t size) {
    void *block = malloc(count * size);
    return block != NULL ? memset(block, 0, count * size) : NULL;
}

void *realloc(void *old, size_t size) {
    void *block = malloc(size);
    if (block != NULL && old != NULL)
        memcpy(block, old, ((size_t *)old)[-2] < size ? ((size_t *)old)[-2] : size);
    return block;
}

int main(int argc, char **argv) {
    char *text = strdup("mine");
    printf("%s %d %d", text, mine(text), argc);
    for (int i = 0; i < argc; i++)
        printf(" %s", argv[i]);
    printf("\nLD_PRELOAD %s\n", getenv("LD_PRELOAD") != NULL ? getenv("LD_PRELOAD") : "none");
    printf("IMAS_PAGE %d IMAS_UNSET %d\n", getenv("IMAS_PAGE") != NULL, getenv("IMAS_UNSET") != NULL);
    void *theirs = NULL;
    printf("posix_memalign %d\n", posix_memalign(&theirs, 64, 100));
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int injected = 0;
    while (fgets(line, sizeof line, maps) != NULL)
        injected += strstr(line, "libimas") != NULL;
    fclose(maps);
    printf("injected %d served %d\n", injected, served > 0);
    free(text);
    return 4;
}
