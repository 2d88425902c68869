// SPDX-License-Identifier: Apache-2.0
// The aligned family, as glibc 2.36 has it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fact.h"
#include "served.h"

static const size_t sizes[] = { 0, 1, 8, 15, 16, 17, 63, 64, 100, 256, 1000, 4096, 5000, 40000, 300000, (size_t)3 << 20 };
enum { SIZES = sizeof sizes / sizeof *sizes };

static void check_block(const char *name, unsigned char *block, size_t alignment, size_t size)
{
    fact(name, block != NULL && is_aligned(block, alignment), "(%zu, %zu) is %p", alignment, size, (void *)block);
    if (block == NULL)
        return;
    fact("aligned-usable-covers", malloc_usable_size(block) >= size, "(%zu, %zu): %zu usable", alignment, size,
        malloc_usable_size(block));
    memset(block, 0x77, malloc_usable_size(block));
}

// Three held at once, freed in another order than they came.
static void check_powers(void)
{
    for (size_t alignment = sizeof(void *); alignment <= (size_t)4 << 20; alignment *= 2)
        for (int index = 0; index < SIZES; index++) {
            size_t size = opaque_size(sizes[index]);
            void *first = NULL;
            int status = posix_memalign(&first, alignment, size);
            fact("posix_memalign-0", status == 0, "(%zu, %zu) is %d", alignment, size, status);
            check_block("posix_memalign-aligned", first, alignment, size);
            unsigned char *second = opaque(memalign(alignment, size));
            check_block("memalign-aligned", second, alignment, size);
            unsigned char *third = opaque(aligned_alloc(alignment, size));
            check_block("aligned_alloc-aligned", third, alignment, size);
            free(second);
            free(first);
            free(third);
        }
}

static void check_huge_alignment(void)
{
    for (size_t alignment = (size_t)8 << 20; alignment <= (size_t)64 << 20; alignment *= 2) {
        unsigned char *block = opaque(memalign(alignment, opaque_size(100)));
        fact("huge-alignment", block != NULL && is_aligned(block, alignment), "memalign(%zu, 100) is %p", alignment, (void *)block);
        if (block != NULL)
            memset(block, 1, 100);
        free(block);
    }
}

static void check_posix_rules(void)
{
    static const size_t wrong[] = { 0, 1, 2, 3, 4, 7, 9, 12, 24, 48, 100, 4097 };
    for (size_t index = 0; index < sizeof wrong / sizeof *wrong; index++) {
        void *kept = &kept;
        errno = 1234;
        int status = posix_memalign(&kept, wrong[index], 64);
        fact("posix_memalign-einval", status == EINVAL, "alignment %zu gives %d", wrong[index], status);
        fact("posix_memalign-keeps-pointer", kept == &kept, "alignment %zu writes the pointer", wrong[index]);
        fact("posix_memalign-keeps-errno", errno == 1234, "alignment %zu makes errno %d", wrong[index], errno);
    }
    void *kept = &kept;
    errno = 1234;
    int status = posix_memalign(&kept, 64, opaque_size(SIZE_MAX - 100));
    fact("posix_memalign-enomem", status == ENOMEM && kept == &kept, "gives %d", status);
    free(opaque(malloc(1)));
    void *block = NULL;
    errno = 1234;
    status = posix_memalign(&block, 64, 64);
    fact("posix_memalign-keeps-errno", status == 0 && errno == 1234, "success makes errno %d", errno);
    free(block);
}

static size_t power_above(size_t number)
{
    size_t power = 16;
    while (power < number)
        power *= 2;
    return power;
}

// glibc rounds an odd alignment up, and until 2.38 its aligned_alloc does so too.
static void check_odd(void)
{
    static const size_t odd[] = { 0, 1, 3, 5, 12, 17, 24, 48, 100, 1000, 4097 };
    for (size_t index = 0; index < sizeof odd / sizeof *odd; index++) {
        size_t alignment = opaque_size(odd[index]);
        unsigned char *block = opaque(memalign(alignment, opaque_size(100)));
        fact("memalign-odd-rounds-up", block != NULL && is_aligned(block, power_above(alignment)), "memalign(%zu, 100) is %p",
            alignment, (void *)block);
        free(block);
    }
    unsigned char *block = opaque(aligned_alloc(opaque_size(64), opaque_size(100)));
    fact("aligned_alloc-any-size", block != NULL && is_aligned(block, 64), "aligned_alloc(64, 100) is %p", (void *)block);
    free(block);
}

static void check_refusals(void)
{
    errno = 0;
    void *block = opaque(memalign(opaque_size(64), opaque_size(SIZE_MAX - 100)));
    fact("memalign-refuses", block == NULL && errno == ENOMEM, "%p, errno %d", block, errno);
    errno = 0;
    block = opaque(memalign(opaque_size(SIZE_MAX / 2 + 2), opaque_size(100)));
    fact("memalign-einval", block == NULL && errno == EINVAL, "%p, errno %d", block, errno);
    errno = 0;
    block = opaque(aligned_alloc(opaque_size(4096), opaque_size((size_t)PTRDIFF_MAX)));
    fact("aligned_alloc-refuses", block == NULL && errno == ENOMEM, "%p, errno %d", block, errno);
    errno = 0;
    block = opaque(valloc(opaque_size(SIZE_MAX - 4095)));
    fact("valloc-refuses", block == NULL && errno == ENOMEM, "%p, errno %d", block, errno);
    errno = 0;
    block = opaque(pvalloc(opaque_size(SIZE_MAX - 100)));
    fact("pvalloc-refuses", block == NULL && errno == ENOMEM, "%p, errno %d", block, errno);
}

static void check_pages(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (int index = 0; index < SIZES; index++) {
        size_t size = opaque_size(sizes[index]);
        unsigned char *block = opaque(valloc(size));
        check_block("valloc-aligned", block, page, size);
        free(block);
        block = opaque(pvalloc(size));
        check_block("pvalloc-aligned", block, page, (size + page - 1) / page * page);
        free(block);
    }
}

static void *function(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

// glibc has cfree for old programs only, and the sized ones from 2.43: asked by name.
static void check_other_frees(void)
{
    void (*old)(void *) = (void (*)(void *))function("cfree");
    void (*sized)(void *, size_t) = (void (*)(void *, size_t))function("free_sized");
    void (*aligned_sized)(void *, size_t, size_t) = (void (*)(void *, size_t, size_t))function("free_aligned_sized");
    for (int round = 0; round < 100000; round++) {
        if (old != NULL)
            old(opaque(malloc(opaque_size(5000))));
        if (sized != NULL)
            sized(opaque(malloc(opaque_size(5000))), 5000);
        if (aligned_sized != NULL)
            aligned_sized(opaque(aligned_alloc(64, opaque_size(640))), 64, 640);
    }
    if (sized != NULL) {
        sized(NULL, 0);
        // A wrong size is the caller's error; production's glibc does not see it, so a trial must not.
        sized(opaque(malloc(opaque_size(100))), 7);
    }
    fact("free_sized-frees", true, "unseen");
}

int main(int argc, char **argv)
{
    facts_begin(argc, argv);
    check_served();
    check_powers();
    check_huge_alignment();
    check_posix_rules();
    check_odd();
    check_refusals();
    check_pages();
    check_other_frees();
    return facts_end();
}
