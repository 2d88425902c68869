// SPDX-License-Identifier: Apache-2.0
// Random operations, every byte of every block checked.
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fact.h"
#include "served.h"

enum { BLOCKS = 4000 };

struct block {
    unsigned char *bytes;
    size_t size;
    unsigned char seed;
};

static struct block blocks[BLOCKS];
static uint64_t state = 88172645463325252u;

// xorshift64: the same sequence in every run.
static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

// Mostly small, as programs are; sometimes up to half a megabyte.
static size_t draw_size(void)
{
    unsigned kind = (unsigned)(draw() % 1000);
    if (kind < 900)
        return draw() % 512;
    if (kind < 990)
        return draw() % 8192;
    return draw() % (kind < 999 ? 65536 : 524288);
}

static void fill(struct block *block)
{
    block->seed = (unsigned char)draw();
    for (size_t index = 0; index < block->size; index++)
        block->bytes[index] = (unsigned char)(block->seed + index * 13);
}

static bool whole(const struct block *block, size_t size)
{
    for (size_t index = 0; index < size; index++)
        if (block->bytes[index] != (unsigned char)(block->seed + index * 13))
            return false;
    return true;
}

static void note(const struct block *block, size_t alignment, long operation)
{
    fact("stress-no-refusal", block->bytes != NULL, "refused %zu bytes at operation %ld", block->size, operation);
    fact("stress-aligned", is_aligned(block->bytes, alignment), "%p for alignment %zu at operation %ld",
        (void *)block->bytes, alignment, operation);
}

static void allocate(struct block *block, long operation)
{
    unsigned kind = (unsigned)(draw() % 16);
    size_t alignment = 16;
    block->size = draw_size();
    if (kind == 0)
        block->bytes = memalign(alignment = (size_t)32 << draw() % 8, block->size);
    else if (kind < 4)
        block->bytes = calloc(1, block->size);
    else
        block->bytes = malloc(block->size);
    note(block, alignment, operation);
    for (size_t index = 0; kind > 0 && kind < 4 && index < block->size; index++)
        fact("stress-calloc-clears", block->bytes[index] == 0, "byte %zu of %zu at operation %ld", index, block->size, operation);
    fill(block);
}

static void resize(struct block *block, long operation)
{
    size_t before = block->size;
    size_t after = draw_size() + 1;
    block->bytes = realloc(block->bytes, after);
    block->size = after;
    note(block, 16, operation);
    fact("stress-bytes-kept", whole(block, before < after ? before : after), "realloc %zu -> %zu at operation %ld", before,
        after, operation);
    fill(block);
}

static void release(struct block *block, long operation)
{
    fact("stress-bytes-kept", whole(block, block->size), "block of %zu at operation %ld", block->size, operation);
    free(block->bytes);
    block->bytes = NULL;
}

int main(int argc, char **argv)
{
    facts_begin(argc, argv);
    check_served();
    long operations = facts_are_full() ? 1000000 : 120000;
    for (long operation = 0; operation < operations; operation++) {
        struct block *block = &blocks[draw() % BLOCKS];
        if (block->bytes == NULL)
            allocate(block, operation);
        else if (draw() % 4 == 0)
            resize(block, operation);
        else
            release(block, operation);
    }
    for (long index = 0; index < BLOCKS; index++)
        if (blocks[index].bytes != NULL)
            release(&blocks[index], operations + index);
    return facts_end();
}
