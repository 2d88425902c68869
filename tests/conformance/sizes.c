// SPDX-License-Identifier: Apache-2.0
// malloc, calloc and free: every size from 0 to the absurd.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fact.h"
#include "served.h"

static void check_zero(void)
{
    void *first = opaque(malloc(opaque_size(0)));
    void *second = opaque(malloc(opaque_size(0)));
    fact("malloc-0-unique", first != NULL && second != NULL && first != second, "%p and %p", first, second);
    fact("malloc-0-aligned", is_aligned(first, 16) && is_aligned(second, 16), "%p and %p", first, second);
    free(first);
    free(second);
    void *cleared = opaque(calloc(opaque_size(0), 8));
    fact("calloc-0-unique", cleared != NULL, "NULL");
    free(cleared);
}

static void check_block(unsigned char *block, size_t size)
{
    fact("malloc-any-size", block != NULL, "malloc(%zu) is NULL", size);
    if (block == NULL)
        return;
    size_t usable = malloc_usable_size(block);
    fact("aligned-16", is_aligned(block, 16), "malloc(%zu) is %p", size, (void *)block);
    fact("usable-covers", usable >= size, "malloc(%zu) has %zu usable", size, usable);
    fact("usable-stable", malloc_usable_size(block) == usable, "malloc(%zu): differs when asked again", size);
    // systemd and redis write up to it.
    memset(block, 0xa5, usable);
}

// Two of each size are held at once, so that their written usable bytes must not overlap.
static void check_sizes(void)
{
    for (size_t size = 1; size < 70000; size = size < 2100 ? size + 1 : size + size / 64 + 1) {
        unsigned char *one = opaque(malloc(opaque_size(size)));
        unsigned char *other = opaque(malloc(opaque_size(size)));
        check_block(one, size);
        check_block(other, size);
        memset(one, 0x5a, malloc_usable_size(one));
        fact("blocks-apart", other[0] == 0xa5 && other[size - 1] == 0xa5, "two blocks of %zu overlap", size);
        free(one);
        free(other);
    }
}

static void check_big(void)
{
    for (size_t size = (size_t)1 << 17; size <= (size_t)1 << 28; size *= 2) {
        unsigned char *block = opaque(malloc(opaque_size(size + 5)));
        fact("big-blocks", block != NULL && is_aligned(block, 16) && malloc_usable_size(block) >= size + 5,
            "malloc(%zu) is %p", size + 5, (void *)block);
        if (block != NULL)
            block[0] = block[size + 4] = 1;
        free(block);
    }
}

static void check_refusals(void)
{
    static const size_t absurd[] = { (size_t)PTRDIFF_MAX + 1, SIZE_MAX, SIZE_MAX - 7, SIZE_MAX - 100, SIZE_MAX - 4096,
        (size_t)PTRDIFF_MAX, (size_t)1 << 62, (size_t)1 << 50 };
    for (size_t index = 0; index < sizeof absurd / sizeof *absurd; index++) {
        errno = 0;
        void *block = opaque(malloc(opaque_size(absurd[index])));
        fact("malloc-refuses", block == NULL, "malloc(%zu) is %p", absurd[index], block);
        fact("malloc-refusal-enomem", errno == ENOMEM, "malloc(%zu) leaves errno %d", absurd[index], errno);
        errno = 0;
        block = opaque(calloc(1, opaque_size(absurd[index])));
        fact("calloc-refuses", block == NULL && errno == ENOMEM, "calloc(1, %zu) is %p, errno %d", absurd[index], block, errno);
    }
}

static void check_overflow(void)
{
    static const size_t pairs[][2] = { { SIZE_MAX, 2 }, { (size_t)1 << 33, (size_t)1 << 33 }, { SIZE_MAX / 8 + 2, 8 },
        { (size_t)PTRDIFF_MAX / 2, 3 } };
    for (size_t index = 0; index < sizeof pairs / sizeof *pairs; index++) {
        size_t count = opaque_size(pairs[index][0]), size = opaque_size(pairs[index][1]);
        errno = 0;
        void *block = opaque(calloc(count, size));
        fact("calloc-overflow", block == NULL && errno == ENOMEM, "calloc(%zu, %zu) is %p, errno %d", count, size, block, errno);
        errno = 0;
        block = opaque(reallocarray(NULL, count, size));
        fact("reallocarray-overflow", block == NULL && errno == ENOMEM, "(%zu, %zu) is %p, errno %d", count, size, block, errno);
    }
}

static bool all_zero(const unsigned char *bytes, size_t size)
{
    for (size_t index = 0; index < size; index++)
        if (bytes[index] != 0)
            return false;
    return true;
}

// Dirty a block of the size first: calloc most likely gets it again.
static void check_cleared(void)
{
    for (size_t size = 1; size < ((size_t)8 << 20); size = size * 5 / 4 + 1) {
        unsigned char *dirty[3];
        for (int index = 0; index < 3; index++)
            memset(dirty[index] = opaque(malloc(opaque_size(size))), 0xff, size);
        for (int index = 0; index < 3; index++)
            free(dirty[index]);
        unsigned char *clear = opaque(calloc(opaque_size(size), 1));
        fact("calloc-clears", clear != NULL && all_zero(clear, size), "calloc(%zu, 1) is not zero", size);
        fact("calloc-aligned", is_aligned(clear, 16), "calloc(%zu, 1) is %p", size, (void *)clear);
        free(clear);
    }
}

// Of a size from which on allocators' calloc gives whole pages back instead of writing to each. What lies before and
// behind the block keeps its bytes.
static void check_large_cleared(void)
{
    enum { BESIDE = 3000 };
    for (size_t size = ((size_t)32 << 20) - 5000; size < ((size_t)33 << 20); size += 4999 * 50 + 1) {
        unsigned char *before = memset(opaque(malloc(BESIDE)), 0xaa, BESIDE), *dirty = opaque(malloc(opaque_size(size)));
        free(memset(dirty, 0xff, size));
        unsigned char *clear = opaque(calloc(opaque_size(size), 1));
        unsigned char *behind = memset(opaque(malloc(BESIDE)), 0xbb, BESIDE);
        fact("calloc-clears", clear != NULL && all_zero(clear, size), "calloc(%zu, 1) is not zero", size);
        memset(clear, 0xcc, size);
        free(clear);
        clear = opaque(calloc(1, opaque_size(size)));
        fact("calloc-clears", clear != NULL && all_zero(clear, size), "calloc(1, %zu) is not zero", size);
        fact("calloc-leaves-others", before[0] == 0xaa && before[BESIDE - 1] == 0xaa && behind[0] == 0xbb && behind[BESIDE - 1] == 0xbb,
            "a neighbour of %zu bytes was changed", size);
        free(clear);
        free(behind);
        free(before);
    }
}

// The kernel does not take locked pages back.
static void check_large_locked(void)
{
    size_t size = (size_t)32 << 20;
    unsigned char *dirty = opaque(malloc(opaque_size(size)));
    memset(dirty, 0xff, size);
    if (mlock(dirty + size / 2, 4096) != 0)
        return;
    free(dirty);
    unsigned char *clear = opaque(calloc(opaque_size(size), 1));
    fact("calloc-clears-locked", clear != NULL && all_zero(clear, size), "calloc(%zu, 1) in locked memory is not zero", size);
    free(clear);
    munlockall();
}

static void check_free(void)
{
    errno = 1234;
    free(opaque(NULL));
    fact("free-null", errno == 1234, "errno became %d", errno);
    static const size_t sizes[] = { 1, 100, 5000, 100000, 300000, (size_t)5 << 20, (size_t)64 << 20 };
    for (int round = 0; round < 200; round++) {
        size_t size = sizes[round % 7];
        void *block = opaque(malloc(opaque_size(size)));
        if (block != NULL)
            memset(block, 1, size < 4096 ? size : 4096);
        errno = 1234;
        free(block);
        fact("free-keeps-errno", errno == 1234, "free of %zu bytes makes errno %d", size, errno);
    }
    fact("usable-null-0", malloc_usable_size(opaque(NULL)) == 0, "not 0");
}

// glibc's own functions take their memory here and the caller frees it here.
static void check_libc(void)
{
    char *printed = NULL;
    fact("libc-asprintf", asprintf(&printed, "%d-%s", 7, "seven") == 7 && strcmp(printed, "7-seven") == 0, "wrong text");
    free(printed);
    char *copied = strdup("copy");
    fact("libc-strdup", copied != NULL && malloc_usable_size(copied) >= 5, "%p", (void *)copied);
    free(copied);
}

int main(int argc, char **argv)
{
    facts_begin(argc, argv);
    check_served();
    check_zero();
    check_sizes();
    check_big();
    check_refusals();
    check_overflow();
    check_cleared();
    check_large_cleared();
    check_large_locked();
    check_free();
    check_libc();
    return facts_end();
}
