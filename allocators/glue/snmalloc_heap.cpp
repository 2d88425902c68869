// SPDX-License-Identifier: Apache-2.0
// snmalloc, a library of headers, behind C functions. Fork: SNMALLOC_PTHREAD_FORK_PROTECTION.
#include <snmalloc/snmalloc.h>

extern "C" {

void *sn_malloc(size_t size)
{
    return snmalloc::libc::malloc(size);
}

void sn_free(void *block)
{
    snmalloc::libc::free(block);
}

void *sn_calloc(size_t count, size_t size)
{
    return snmalloc::libc::calloc(count, size);
}

void *sn_realloc(void *block, size_t size)
{
    return snmalloc::libc::realloc(block, size);
}

void *sn_memalign(size_t alignment, size_t size)
{
    return snmalloc::libc::memalign(alignment, size);
}

size_t sn_usable(void *block)
{
    return snmalloc::libc::malloc_usable_size(block);
}
}
