// SPDX-License-Identifier: Apache-2.0
/* Property test of the heap, built with IMAS_FIT_CHECK and sanitizers for every combination of
 * config.h's parameters and every policy: random operations, every byte checked, another user of
 * the break among them. The invariant is walked by block.c itself.
 *
 *   heap_test SEED
 */
#include "heap.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 200, OPERATIONS = 5000, BYTES_MAX = 2000 };

struct slot {
    unsigned char *payload;
    size_t bytes;
    unsigned char mark;
};

static struct heap heap;
static struct slot slots[SLOTS];

static void fail(const char *what)
{
    fprintf(stderr, "heap_test: %s\n", what);
    exit(1);
}

static size_t draw(size_t bound)
{
    return (size_t)random() % bound;
}

static void check_content(const struct slot *slot, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (slot->payload[i] != slot->mark)
            fail("a byte changed");
}

static void fill(struct slot *slot, void *payload, size_t bytes)
{
    if (!payload)
        fail("no memory");
    if ((uintptr_t)payload % FIT_GRANULE_BYTES)
        fail("payload not aligned");
    if (heap_usable(&heap, payload) < bytes)
        fail("usable size below the request");
    *slot = (struct slot){payload, heap_usable(&heap, payload), (unsigned char)draw(256)};
    memset(payload, slot->mark, slot->bytes);
}

static void allocate(struct slot *slot)
{
    size_t bytes = draw(BYTES_MAX);
    fill(slot, heap_allocate(&heap, bytes), bytes);
}

static void allocate_aligned(struct slot *slot)
{
    size_t alignment = (size_t)1 << draw(13);
    size_t bytes = draw(BYTES_MAX);
    void *payload = heap_allocate_aligned(&heap, alignment, bytes);
    if ((uintptr_t)payload % alignment)
        fail("alignment not kept");
    fill(slot, payload, bytes);
}

static void release(struct slot *slot)
{
    check_content(slot, slot->bytes);
    heap_release(&heap, slot->payload);
    slot->payload = NULL;
}

static void resize(struct slot *slot)
{
    size_t bytes = draw(BYTES_MAX);
    size_t kept = bytes < slot->bytes ? bytes : slot->bytes;
    slot->payload = heap_resize(&heap, slot->payload, bytes);
    check_content(slot, kept);
    fill(slot, slot->payload, bytes);
}

/* Another user of the break, with odd sizes. */
static void move_break(void)
{
    size_t bytes = 1 + draw(5000);
    unsigned char *memory = sbrk((intptr_t)bytes);
    if (memory != (void *)-1)
        memset(memory, 0xee, bytes);
}

static void step(struct slot *slot)
{
    size_t kind = draw(100);
    if (kind == 0)
        move_break();
    else if (kind == 1)
        heap_trim(&heap, draw(BYTES_MAX));
    else if (slot->payload && kind < 30)
        resize(slot);
    else if (slot->payload)
        release(slot);
    else if (kind < 80)
        allocate(slot);
    else
        allocate_aligned(slot);
}

static void check_end(void)
{
    for (size_t i = 0; i < SLOTS; i++)
        if (slots[i].payload)
            release(&slots[i]);
    struct statistics s = heap_statistics(&heap);
    if (s.mallocs != s.frees)
        fail("mallocs and frees differ");
    if (heap.list.free_blocks != s.blocks)
        fail("a block is not free");
    if (s.reuses + s.grows != s.mallocs)
        fail("a request was neither a reuse nor a growth");
    if (FIT_MERGE ? s.coalesces == 0 : s.coalesces != 0)
        fail("merging is not what was built");
    if (heap_allocate(&heap, SIZE_MAX) || heap_allocate_aligned(&heap, 4096, SIZE_MAX - 4096))
        fail("an absurd size was served");
}

int main(int argc, char **argv)
{
    srandom(argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1);
    for (int i = 0; i < OPERATIONS; i++)
        step(&slots[draw(SLOTS)]);
    check_end();
    return 0;
}
