// SPDX-License-Identifier: Apache-2.0
//
// TLSF (Matthew Conte's, as lvgl carries it), which manages memory that it is handed, one thread at a
// time, in blocks aligned to 8. Here: one lock; one stretch of reserved addresses into which its
// pools grow; every block asked for with alignment 16; big blocks mapped apart.
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "apart.h"
#include "heap_lock.h"
#include "keep_errno.h"

extern void *lv_tlsf_create(void *memory);
extern void *lv_tlsf_add_pool(void *heap, void *memory, size_t bytes);
extern void *lv_tlsf_memalign(void *heap, size_t alignment, size_t bytes);
extern size_t lv_tlsf_free(void *heap, const void *block);
extern size_t lv_tlsf_block_size(void *block);
extern size_t lv_tlsf_size(void);
extern size_t lv_tlsf_pool_overhead(void);

#define RAW_ZERO_EMPTY 1
#define RAW_CALLOC 1

// The recipe's LV_MEM_SIZE bounds a pool by the same number.
#define RESERVED ((size_t)1 << 36)
#define SMALLEST_RESERVE ((size_t)1 << 24)
#define POOL ((size_t)1 << 20)
#define APART ((size_t)1 << 18)
#define PAGE ((size_t)4096)
#define ALIGNMENT ((size_t)16)

static void *heap;
static char *reserve_start;
static char *reserve_end;
static char *pools_end;

static inline int is_apart(const void *block)
{
    return (uintptr_t)block - (uintptr_t)reserve_start >= (size_t)(reserve_end - reserve_start);
}

// As much address space as the process may have: a limit (RLIMIT_AS) may refuse the whole.
static int reserve(void)
{
    for (size_t size = RESERVED; size >= SMALLEST_RESERVE; size /= 2) {
        char *start = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (start == MAP_FAILED)
            continue;
        reserve_start = start;
        reserve_end = start + size;
        pools_end = start;
        return 1;
    }
    return 0;
}

static char *extend(size_t bytes)
{
    if (bytes > (size_t)(reserve_end - pools_end) || mprotect(pools_end, bytes, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    char *start = pools_end;
    pools_end += bytes;
    return start;
}

static int create_heap(void)
{
    if (reserve_start == NULL && !reserve())
        return 0;
    char *control = extend(apart_round_up(lv_tlsf_size(), PAGE));
    if (control == NULL)
        return 0;
    heap = lv_tlsf_create(control);
    return heap != NULL;
}

// A new pool holds the request, and an eighth of what there is, so that pools stay few.
static int grow(size_t alignment, size_t size)
{
    size_t needed = size + alignment + 4 * ALIGNMENT + lv_tlsf_pool_overhead();
    size_t eighth = (size_t)(pools_end - reserve_start) / 8;
    size_t bytes = apart_round_up(needed > eighth ? needed : eighth, POOL);
    char *start = extend(bytes);
    return start != NULL && lv_tlsf_add_pool(heap, start, bytes) != NULL;
}

static void *allocate_locked(size_t alignment, size_t size)
{
    if (heap == NULL && !create_heap())
        return NULL;
    void *block = lv_tlsf_memalign(heap, alignment, size);
    if (block == NULL && grow(alignment, size))
        block = lv_tlsf_memalign(heap, alignment, size);
    return block;
}

static void *raw_aligned(size_t alignment, size_t size)
{
    if (size >= APART || alignment >= APART)
        return apart_map(alignment, size);
    heap_lock();
    void *block = allocate_locked(alignment, size);
    heap_unlock();
    return block;
}

static void *raw_malloc(size_t size)
{
    return raw_aligned(ALIGNMENT, size);
}

static void raw_free(void *block)
{
    if (is_apart(block)) {
        apart_unmap(block);
        return;
    }
    heap_lock();
    lv_tlsf_free(heap, block);
    heap_unlock();
}

static size_t raw_usable(void *block)
{
    return is_apart(block) ? apart_usable(block) : lv_tlsf_block_size(block);
}

// TLSF's own realloc would move a block to an 8-byte boundary.
static void *raw_realloc(void *block, size_t size)
{
    size_t usable = raw_usable(block);
    if (size <= usable && size >= usable / 2)
        return block;
    void *moved = raw_malloc(size);
    if (moved == NULL)
        return NULL;
    memcpy(moved, block, usable < size ? usable : size);
    raw_free(block);
    return moved;
}

static void *raw_calloc(size_t count, size_t size)
{
    size_t total = count * size;
    void *block = raw_malloc(total);
    // Fresh mappings are zero, and touching them would cost their memory.
    if (block != NULL && !is_apart(block))
        memset(block, 0, total);
    return block;
}

#include "family.h"
