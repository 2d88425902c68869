// SPDX-License-Identifier: Apache-2.0
/* Odd alignments, realloc to nothing, absurd sizes: what glibc does is what every candidate does. */
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void show(const char *what, void *block, size_t alignment) {
    printf("%s: %s %d errno %d\n", what, block != NULL ? "block" : "NULL",
           block != NULL ? (int)((uintptr_t)block % alignment) : 0, block != NULL ? 0 : errno);
    free(block);
    errno = 0;
}

int main(void) {
    volatile size_t most = SIZE_MAX;
    errno = 0;
    show("memalign 48", memalign(48, 100), 16);
    show("memalign 1", memalign(1, 100), 16);
    show("memalign 4096", memalign(4096, 1), 4096);
    show("aligned_alloc 64, 100", aligned_alloc(64, 100), 64);
    show("aligned_alloc 48, 96", aligned_alloc(48, 96), 16);
    show("valloc", valloc(10), 4096);
    show("pvalloc", pvalloc(10), 4096);
    void *block = (void *)1;
    printf("posix_memalign 24: %d\n", posix_memalign(&block, 24, 100));
    printf("posix_memalign 64, most: %d %d\n", posix_memalign(&block, 64, most - 100), block == (void *)1);
    printf("realloc to 0: %s\n", realloc(malloc(10), 0) == NULL ? "NULL" : "block");
    show("realloc of NULL", realloc(NULL, 10), 16);
    show("malloc 0", malloc(0), 16);
    for (size_t size = 1; size < 64; size++) {
        void *small = malloc(size);
        if ((uintptr_t)small % 16 != 0)
            printf("malloc %zu is not aligned\n", size);
        free(small);
    }
    show("malloc most", malloc(most), 16);
    show("malloc most / 2 + 1", malloc(most / 2 + 1), 16);
    show("malloc most - 4000", malloc(most - 4000), 16);
    show("calloc overflow", calloc(most / 2, 3), 16);
    char *kept = strcpy(malloc(20), "kept");
    show("realloc most", realloc(kept, most - 100), 16);
    puts(kept);
    free(kept);
    errno = 77;
    free(malloc(1 << 22));
    free(NULL);
    printf("errno after free %d\n", errno);
    printf("usable size of NULL %zu\n", malloc_usable_size(NULL));
    return 0;
}
