// SPDX-License-Identifier: Apache-2.0
/* next.h - the malloc family after ours in the order of symbols: the candidate's, or libc's. */
#ifndef IMAS_HOOK_NEXT_H
#define IMAS_HOOK_NEXT_H

#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "page_size.h"
#include "sys.h"

struct family {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void (*free)(void *);
    void *(*memalign)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    size_t (*usable_size)(void *);
    int (*mallopt)(int, int);
    struct mallinfo (*mallinfo)(void);
    struct mallinfo2 (*mallinfo2)(void);
    int (*trim)(size_t);
    /* malloc_usable_size of what is not in the bootstrap arena: the allocator's own as soon as that is
     * enough. */
    size_t (*ask)(void *);
    uintptr_t minus_arena; /* 0 - the arena's address: adding is one instruction less than subtracting */
};

/* Pages of its own, so that it can be made read-only. The first ten are set once next_found answers true. */
union next_table {
    struct family family;
    char page[PAGE_MOST];
};
HIDDEN extern union next_table next_table;
#define next (next_table.family)

/* Whether the table is filled in: acquire, so that what it holds is seen. */
bool next_found(void);

/*
 * Looks that family up. False when it is not whole: functions are missing, or are in more than one object;
 * then libc's own serves if that is complete. Names that only some allocators have are left NULL, or libc's
 * where they touch no block. Called once, from the constructor: a failed search allocates.
 */
bool next_find(void);

/* Whether what a call before the constructor needs was found as ld.so relocated us. */
bool next_found_early(void);

/* Whether the next family serves a call before the constructor: then an allocator begins at the same call in a trial as in
 * production, where nothing stands before it. It does not while ld.so relocates: most allocators would crash there. */
bool next_serves_early(void);

/* Whether there was such a call. In production the allocator would have had to serve it. */
bool next_was_called_in_relocation(void);

/* Notes such a call that came even before ld.so relocated us. */
void next_note_call_in_relocation(void);

/* malloc_usable_size of anything. */
size_t next_ask_whose(void *block);

/* No write to the table any more. */
void next_seal(void);

#endif
