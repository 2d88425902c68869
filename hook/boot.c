// SPDX-License-Identifier: Apache-2.0
#include "boot.h"

#include "live.h"
#include "sys.h"

#define REGIONS 128
#define LARGEST_STEP 6 /* regions double up to 16 MiB */
#define BLOCK_ALIGNMENT ((size_t)16)

/* Lies right before each block, so that realloc knows how much to copy. */
struct boot_header {
    size_t size;
    size_t unused; /* keeps blocks on 16 bytes */
};

struct region {
    uintptr_t start, end;
    uintptr_t next; /* first free byte; moved by compare-and-swap */
};

static _Alignas(16) unsigned char arena[BOOT_ARENA_BYTES];
/* The first region is the arena itself, filled in at first use: an address here would be one relocation
 * more. */
static struct region regions[REGIONS];
static unsigned region_count; /* regions handed out, ready or not; 0: not even the arena */

static void publish(struct region *region, uintptr_t start, size_t bytes) {
    region->end = start + bytes;
    set_relaxed(region->next, start);
    __atomic_store_n(&region->start, start, __ATOMIC_RELEASE);
}

/* A region that holds at least `bytes`: the arena first, then mappings. Two threads may both add one; each is
 * used. */
static bool add_region(size_t bytes) {
    unsigned index = add_relaxed(region_count, 1);
    if (index >= REGIONS)
        return false;
    if (index == 0 && bytes <= BOOT_ARENA_BYTES) {
        publish(&regions[0], (uintptr_t)arena, BOOT_ARENA_BYTES);
        return true;
    }
    size_t step = BOOT_ARENA_BYTES << (index < LARGEST_STEP ? index : LARGEST_STEP);
    size_t size = bytes > step ? bytes : step;
    void *memory = sys_anonymous(size);
    if (memory == NULL)
        return false;
    publish(&regions[index], (uintptr_t)memory, size);
    return true;
}

static void *take(struct region *region, size_t alignment, size_t size) {
    if (__atomic_load_n(&region->start, __ATOMIC_ACQUIRE) == 0)
        return NULL;
    uintptr_t next = get_relaxed(region->next);
    uintptr_t block;
    do {
        block = (next + sizeof(struct boot_header) + alignment - 1) & -alignment;
        if (block < next || block > region->end || size > region->end - block)
            return NULL;
    } while (!__atomic_compare_exchange_n(&region->next, &next, block + size, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    ((struct boot_header *)block)[-1].size = size;
    return (void *)block;
}

static unsigned ready_regions(void) {
    unsigned count = get_relaxed(region_count);
    return count < REGIONS ? count : REGIONS;
}

static void *take_from_any(size_t alignment, size_t size) {
    for (unsigned i = ready_regions(); i-- > 0;) {
        void *block = take(&regions[i], alignment, size);
        if (block != NULL)
            return block;
    }
    return NULL;
}

void *boot_allocate(size_t alignment, size_t size) {
    if (alignment < BLOCK_ALIGNMENT)
        alignment = BLOCK_ALIGNMENT;
    if (size > PTRDIFF_MAX - alignment - 4096 || alignment > (size_t)1 << 30)
        return NULL;
    size = (size + BLOCK_ALIGNMENT - 1) & -BLOCK_ALIGNMENT;
    void *block = take_from_any(alignment, size);
    while (block == NULL && add_region((size + alignment + sizeof(struct boot_header) + 4095) & ~(size_t)4095))
        block = take_from_any(alignment, size);
    if (block != NULL)
        live_mark_boot(block);
    return block;
}

bool boot_owns(const void *block) {
    for (unsigned i = ready_regions(); i-- > 0;) {
        uintptr_t start = __atomic_load_n(&regions[i].start, __ATOMIC_ACQUIRE);
        if (start != 0 && (uintptr_t)block - start < regions[i].end - start)
            return true;
    }
    return false;
}

bool boot_is_arena(void) {
    return get_relaxed(region_count) <= 1 && (regions[0].start == 0 || regions[0].start == boot_arena());
}

uintptr_t boot_arena(void) {
    return (uintptr_t)arena;
}

size_t boot_size(const void *block) {
    return ((const struct boot_header *)block)[-1].size;
}
