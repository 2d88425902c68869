// SPDX-License-Identifier: Apache-2.0
// Prints what glibc's malloc does without settings, as NAME=NUMBER lines: how many blocks of a size a thread keeps for itself
// (tcache_count), to what the heap begins and how small it gets again (first_heap, after_trim: top_pad and trim_threshold),
// and whether blocks of 124 and 128 KiB are mapped for themselves (mmap_threshold).
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BLOCKS = 64, LARGE = 16, CHUNK = 32 };

static int is_mapped(const void *block)
{
    return (((const uintptr_t *)block)[-1] & 2) != 0;
}

static long kept_by_the_thread(void)
{
    static void *blocks[BLOCKS];
    free(malloc(24)); // since 2.42 a thread's lists are made, on the heap, at its first free
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(24);
    size_t before = mallinfo2().fordblks; // what a thread keeps counts as used
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return BLOCKS - (long)((mallinfo2().fordblks - before) / CHUNK);
}

int main(void)
{
    static char buffer[4096]; // stdout takes nothing from the heap
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    char *begin = sbrk(0);
    void *first = malloc(1);
    printf("first_heap=%ld\n", (long)((char *)sbrk(0) - begin));

    // Each is larger than what is free at the end of the heap.
    void *filling = malloc(65536), *below = malloc(126976);
    printf("mapped_124k=%d\n", is_mapped(below));
    void *more = malloc(65536), *at = malloc(131072);
    printf("mapped_128k=%d\n", is_mapped(at));
    free(below);
    free(more);
    free(filling);

    void *large[LARGE];
    for (int i = 0; i < LARGE; i++)
        large[i] = malloc(65536);
    for (int i = LARGE; i-- > 0;)
        free(large[i]);
    printf("after_trim=%ld\n", (long)((char *)sbrk(0) - begin));
    printf("tcache_count=%ld\n", kept_by_the_thread());
    free(first);
    return 0;
}
