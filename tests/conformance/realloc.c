// SPDX-License-Identifier: Apache-2.0
// realloc in all its cases.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fact.h"
#include "served.h"

static void fill(unsigned char *block, size_t size)
{
    for (size_t index = 0; index < size; index++)
        block[index] = (unsigned char)(index * 7 + size);
}

static bool filled(const unsigned char *block, size_t size, size_t shown)
{
    for (size_t index = 0; index < shown; index++)
        if (block[index] != (unsigned char)(index * 7 + size))
            return false;
    return true;
}

static void check_ends(void)
{
    void *fresh = opaque(realloc(opaque(NULL), opaque_size(100)));
    fact("realloc-null-allocates", fresh != NULL && malloc_usable_size(fresh) >= 100, "%p", fresh);
    void *gone = opaque(realloc(fresh, opaque_size(0)));
    fact("realloc-0-frees", gone == NULL, "realloc(p, 0) is %p", gone);
    void *empty = opaque(realloc(opaque(NULL), opaque_size(0)));
    fact("realloc-null-0-unique", empty != NULL, "NULL");
    free(empty);
}

// If realloc(p, 0) kept the block, this would end in hundreds of megabytes.
static void check_zero_gives_back(void)
{
    for (int round = 0; round < 4000; round++) {
        char *block = opaque(malloc(opaque_size(200000)));
        if (block == NULL) {
            fact("realloc-0-frees", false, "memory gone after %d rounds", round);
            return;
        }
        block[0] = 1;
        opaque(realloc(block, opaque_size(0)));
    }
}

static void check_resize(size_t from, size_t to)
{
    unsigned char *block = opaque(malloc(opaque_size(from)));
    if (block == NULL)
        return;
    fill(block, from);
    unsigned char *moved = opaque(realloc(block, opaque_size(to)));
    fact("realloc-any-size", moved != NULL, "realloc(%zu -> %zu) is NULL", from, to);
    if (moved == NULL)
        return;
    size_t kept = from < to ? from : to;
    fact("realloc-keeps-bytes", filled(moved, from, kept), "%zu -> %zu lost bytes", from, to);
    fact("realloc-aligned-16", is_aligned(moved, 16), "%zu -> %zu is %p", from, to, (void *)moved);
    fact("realloc-usable-covers", malloc_usable_size(moved) >= to, "%zu -> %zu: %zu usable", from, to, malloc_usable_size(moved));
    memset(moved, 1, malloc_usable_size(moved));
    free(moved);
}

static void check_resizes(void)
{
    static const size_t sizes[] = { 1, 7, 8, 9, 16, 17, 24, 100, 255, 256, 257, 1000, 1024, 4000, 4097, 8192, 20000, 65536,
        100000, 131073, 262144, 262145, 400000, 1000000, (size_t)3 << 20 };
    size_t count = sizeof sizes / sizeof *sizes;
    for (size_t from = 0; from < count; from++)
        for (size_t to = 0; to < count; to++)
            check_resize(sizes[from], sizes[to]);
}

// A buffer grown step by step, as text readers do.
static void check_growth(void)
{
    unsigned char *buffer = NULL;
    size_t size = 0;
    while (size < ((size_t)4 << 20)) {
        size_t larger = size + size / 3 + 13;
        unsigned char *moved = opaque(realloc(buffer, larger));
        fact("realloc-growth", moved != NULL && (size == 0 || (moved[0] == 3 && moved[size - 1] == 3)), "lost at %zu", size);
        if (moved == NULL)
            break;
        buffer = moved;
        memset(buffer, 3, larger);
        size = larger;
    }
    free(buffer);
}

static void check_refusal(void)
{
    static const size_t absurd[] = { (size_t)PTRDIFF_MAX + 1, SIZE_MAX, (size_t)1 << 62 };
    static const size_t sizes[] = { 100, 100000, (size_t)2 << 20 };
    for (size_t index = 0; index < 9; index++) {
        size_t size = sizes[index % 3];
        unsigned char *block = opaque(malloc(opaque_size(size)));
        fill(block, size);
        errno = 0;
        void *moved = opaque(realloc(block, opaque_size(absurd[index / 3])));
        fact("realloc-refuses", moved == NULL && errno == ENOMEM, "to %zu is %p, errno %d", absurd[index / 3], moved, errno);
        fact("realloc-refusal-keeps", filled(block, size, size), "block of %zu changed", size);
        free(block);
    }
}

static void check_aligned(void)
{
    for (size_t alignment = 32; alignment <= 65536; alignment *= 2) {
        unsigned char *block = opaque(memalign(alignment, opaque_size(300)));
        if (block == NULL)
            continue;
        fill(block, 300);
        unsigned char *moved = opaque(realloc(block, opaque_size(30000)));
        fact("realloc-of-aligned", moved != NULL && filled(moved, 300, 300), "alignment %zu lost bytes", alignment);
        moved = opaque(realloc(moved, opaque_size(20)));
        fact("realloc-of-aligned", moved != NULL && filled(moved, 300, 20), "alignment %zu lost bytes", alignment);
        free(moved);
    }
}

// Blocks that allocators map by themselves: what was skipped for the alignment must not be forgotten when
// they shrink or grow.
static void check_large_aligned(void)
{
    static const size_t sizes[] = { 140000, 300000, (size_t)1 << 20, (size_t)5 << 20 };
    static const size_t ends[] = { 311, 1000, 4000, 5000, 70000, (size_t)2 << 20 };
    for (size_t alignment = 32; alignment <= 65536; alignment *= 2)
        for (size_t index = 0; index < 24; index++) {
            size_t from = sizes[index % 4], to = ends[index / 4];
            unsigned char *block = opaque(memalign(alignment, opaque_size(from)));
            if (block == NULL)
                continue;
            fill(block, from);
            unsigned char *moved = opaque(realloc(block, opaque_size(to)));
            size_t kept = from < to ? from : to;
            size_t usable = moved != NULL ? malloc_usable_size(moved) : 0;
            fact("realloc-of-large-aligned", moved != NULL && usable >= to && usable < to + ((size_t)8 << 20) && filled(moved, from, kept),
                "alignment %zu, %zu -> %zu: %zu usable or bytes lost", alignment, from, to, usable);
            if (moved == NULL)
                continue;
            memset(moved, 1, to);
            free(moved);
        }
}

static void check_array(void)
{
    unsigned char *block = opaque(reallocarray(NULL, opaque_size(10), 30));
    fill(block, 300);
    block = opaque(reallocarray(block, opaque_size(1000), 30));
    fact("reallocarray-keeps-bytes", block != NULL && filled(block, 300, 300), "lost bytes");
    free(block);
}

int main(int argc, char **argv)
{
    facts_begin(argc, argv);
    check_served();
    check_ends();
    check_zero_gives_back();
    check_resizes();
    check_growth();
    check_refusal();
    check_aligned();
    check_large_aligned();
    check_array();
    return facts_end();
}
