// SPDX-License-Identifier: Apache-2.0
/* An allocator from elsewhere to preload: no name of its own, no pvalloc, a mallinfo2 with a mind of its own. With -DPARTIAL only half a family. */
#include <errno.h>
#include <malloc.h>
#include <stddef.h>

extern void *__libc_malloc(size_t size), *__libc_calloc(size_t count, size_t size), *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

void *malloc(size_t size) { return __libc_malloc(size); }
void free(void *block) { __libc_free(block); }
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { return __libc_realloc(block, size); }
#ifndef PARTIAL
struct mallinfo2 mallinfo2(void) { return (struct mallinfo2){.uordblks = 1 << 30, .fordblks = 1 << 29}; }
void *memalign(size_t alignment, size_t size) { return __libc_memalign(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return __libc_memalign(alignment, size); }
void *valloc(size_t size) { return __libc_memalign(4096, size); }
size_t malloc_usable_size(void *block) { return block != NULL ? (((size_t *)block)[-1] & ~(size_t)7) - 8 : 0; }
int posix_memalign(void **block, size_t alignment, size_t size) {
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0)
        return EINVAL;
    void *made = __libc_memalign(alignment, size);
    if (made != NULL)
        *block = made;
    return made != NULL ? 0 : ENOMEM;
}
#endif
