// SPDX-License-Identifier: Apache-2.0
/* One misuse of the heap, named by the argument. The library has to end it; reaching the end of
 * main means that it was not noticed. */
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The optimiser must not know what is allocated and freed. */
static void *volatile keep;

static char *block(size_t bytes)
{
    keep = malloc(bytes);
    return keep;
}

static void double_free(void)
{
    char *p = block(100);
    block(16);
    free(p);
    free(p);
}

static void double_free_of_merged(void)
{
    char *lower = block(100), *upper = block(100);
    block(16);
    free(lower);
    free(upper); /* now a part of the lower one's free block */
    free(upper);
}

static void realloc_of_freed(void)
{
    char *p = block(100);
    block(16);
    free(p);
    keep = realloc(p, 200);
}

static void usable_size_of_freed(void)
{
    char *p = block(100);
    block(16);
    free(p);
    keep = (void *)malloc_usable_size(p);
}

static void foreign_stack(void)
{
    _Alignas(16) char local[64] = {0};
    block(16);
    keep = local;
    free(keep);
}

static void foreign_mapping(void)
{
    keep = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    free(keep);
}

static void foreign_middle(void)
{
    char *p = memset(block(1000), 0, 1000);
    keep = p + 512;
    free(keep);
}

static void foreign_odd(void)
{
    keep = block(100) + 8;
    free(keep);
}

/* Eight bytes beyond the usable size are the next header. */
static void overflow(void)
{
    char *p = block(100);
    block(100);
    memset(p, 'A', malloc_usable_size(p) + 8);
    free(p);
}

static void overflow_by_zeros(void)
{
    char *p = block(100);
    block(100);
    memset(p, 0, malloc_usable_size(p) + 8);
    free(p);
}

static void overflow_seen_by_victim(void)
{
    char *p = block(100), *victim = block(100);
    memset(p, 'A', malloc_usable_size(p) + 8);
    free(victim);
}

static void overflow_into_free(void)
{
    char *p = block(100), *next = block(100);
    block(16);
    free(next);
    memset(p + malloc_usable_size(p), 'A', 8);
    block(90);
}

static void underflow(void)
{
    char *p = block(100);
    memset(p - 8, 'A', 8);
    free(p);
}

static void link_overwritten(void)
{
    char *p = block(100);
    block(16);
    char *q = block(100);
    block(16);
    free(p);
    free(q);
    memset(p, 'A', 16); /* use after free: the links of the free list */
    memset(q, 'A', 16);
    block(90);
    block(90);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"double_free", double_free},
    {"double_free_of_merged", double_free_of_merged},
    {"realloc_of_freed", realloc_of_freed},
    {"usable_size_of_freed", usable_size_of_freed},
    {"foreign_stack", foreign_stack},
    {"foreign_mapping", foreign_mapping},
    {"foreign_middle", foreign_middle},
    {"foreign_odd", foreign_odd},
    {"overflow", overflow},
    {"overflow_by_zeros", overflow_by_zeros},
    {"overflow_seen_by_victim", overflow_seen_by_victim},
    {"overflow_into_free", overflow_into_free},
    {"underflow", underflow},
    {"link_overwritten", link_overwritten},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases && argc == 2; i++)
        if (strcmp(argv[1], cases[i].name) == 0)
            cases[i].run();
    return 0;
}
