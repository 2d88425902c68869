// SPDX-License-Identifier: Apache-2.0
/* Compiled once a version, with ARENA_VERSION and ARENA_NAME naming it and config.h's parameters. */
#include "arena.h"

#include "policy.h"

#include <sys/mman.h>

static bool arena_open(struct arena *arena)
{
    void *memory =
        mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    *arena = (struct arena){.memory = memory};
    blocks_adopt(&arena->list, &arena->segment, memory, ARENA_BYTES);
    return true;
}

static void arena_close(struct arena *arena)
{
    munmap(arena->memory, ARENA_BYTES);
    *arena = (struct arena){.memory = NULL};
}

static void *arena_allocate(struct arena *arena, size_t bytes)
{
    uint32_t units = block_units_for(bytes);
    struct block *b = units ? policy_find(&arena->list, units) : NULL;
    if (!b)
        return NULL;
    blocks_take(&arena->list, b, units);
    return block_payload(b);
}

static void arena_release(struct arena *arena, void *payload)
{
    blocks_give(&arena->list, blocks_used(&arena->list, payload));
}

static struct arena_view arena_view(const struct arena *arena)
{
    const struct blocks *list = &arena->list;
    return (struct arena_view){
        .free_blocks = list->free_blocks,
        .free_payload_bytes =
            list->free_units * FIT_GRANULE_BYTES - list->free_blocks * FIT_HEADER_BYTES,
        .used_blocks = list->blocks - list->free_blocks,
    };
}

/* The only symbol that the version's object keeps global (Makefile). */
const struct arena_version ARENA_VERSION = {
    .name = ARENA_NAME,
    .header_bytes = FIT_HEADER_BYTES,
    .request_min = FIT_MIN_PAYLOAD,
    .merges = FIT_MERGE,
    .open = arena_open,
    .close = arena_close,
    .allocate = arena_allocate,
    .release = arena_release,
    .view = arena_view,
};
