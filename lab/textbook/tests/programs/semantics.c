// SPDX-License-Identifier: Apache-2.0
/* Prints what the malloc family does in the cases where allocators differ. Run without a preload
 * it says what glibc does; every fit allocator has to print the same. */
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile size_t huge = SIZE_MAX;
static volatile size_t none = 0;

static bool at(const void *p, size_t alignment)
{
    return p && (uintptr_t)p % alignment == 0;
}

static void say(const char *fact, long value)
{
    printf("%s: %ld\n", fact, value);
}

static void *refused(const char *what, void *p)
{
    printf("%s: %s, errno %d\n", what, p ? "block" : "NULL", p ? 0 : errno);
    errno = 0;
    return p;
}

static void sizes(void)
{
    bool aligned = true;
    for (size_t bytes = 0; bytes < 100; bytes++) {
        void *p = malloc(bytes);
        aligned = aligned && at(p, 16) && malloc_usable_size(p) >= bytes;
    }
    say("malloc(0..99) aligned to 16", aligned);
    say("malloc(0) twice is the same", malloc(none) == malloc(none));
    say("usable size of NULL", (long)malloc_usable_size(NULL));
    refused("malloc(SIZE_MAX)", malloc(huge));
    refused("malloc(PTRDIFF_MAX + 1)", malloc(huge / 2 + 1));
    refused("calloc overflow", calloc(huge / 2, 3));
    refused("calloc product too large", calloc(huge / 4, 3));
}

static void zeros(void)
{
    unsigned char *dirty = memset(malloc(5000), 0xff, 5000);
    free(dirty);
    unsigned char *clean = calloc(50, 100);
    int sum = 0;
    for (int i = 0; i < 5000; i++)
        sum |= clean[i];
    say("calloc leaves a bit set", sum);
}

static void reallocs(void)
{
    char *p = realloc(NULL, 10);
    say("realloc(NULL, n) gives a block", p != NULL);
    strcpy(p, "content");
    p = realloc(p, 100000);
    say("realloc keeps content growing", strcmp(p, "content") == 0);
    p = realloc(p, 8);
    say("realloc keeps content shrinking", strcmp(p, "content") == 0);
    refused("realloc too large", realloc(p, huge));
    say("the block survives a refused realloc", strcmp(p, "content") == 0);
    errno = 7;
    say("realloc(p, 0) gives a block", realloc(p, none) != NULL);
    say("errno after realloc(p, 0)", errno);
}

static void alignments(void)
{
    say("memalign(48) is at 64", at(memalign(48, 100), 64));
    say("memalign(0)", at(memalign(none, 100), 16));
    say("aligned_alloc(64, 100)", at(aligned_alloc(64, 100), 64));
    say("aligned_alloc(48, 96)", at(aligned_alloc(48, 96), 64));
    say("aligned_alloc(1 MiB)", at(aligned_alloc(1 << 20, 100), 1 << 20));
    say("valloc", at(valloc(100), 4096));
    void *page = pvalloc(1);
    say("pvalloc is a page", at(page, 4096) && malloc_usable_size(page) >= 4096);
    refused("memalign beyond", memalign(huge, 100));
    refused("memalign too large", memalign(4096, huge - 100));
    refused("pvalloc too large", pvalloc(huge));
    refused("valloc too large", valloc(huge - 4096));
}

static void posix(void)
{
    void *unchanged = &huge, *p = unchanged;
    errno = 7;
    say("posix_memalign(3)", posix_memalign(&p, 3, 10));
    say("posix_memalign(24)", posix_memalign(&p, 24, 10));
    say("posix_memalign(0)", posix_memalign(&p, none, 10));
    say("posix_memalign too large", posix_memalign(&p, 64, huge));
    say("pointer changed", p != unchanged);
    say("posix_memalign(4096, 0)", posix_memalign(&p, 4096, none));
    say("aligned", at(p, 4096));
}

static void frees(void)
{
    errno = 7;
    free(NULL);
    free(malloc(100));
    free(malloc(100000));
    free(memalign(4096, 100));
    say("errno after free", errno);
    say("malloc_info of unknown options", malloc_info(1, stdout));
    say("mallopt", mallopt(M_MMAP_THRESHOLD, 1 << 20));
}

int main(void)
{
    sizes();
    zeros();
    reallocs();
    alignments();
    posix();
    frees();
    return 0;
}
