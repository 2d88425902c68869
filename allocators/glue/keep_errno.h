// SPDX-License-Identifier: Apache-2.0
//
// Put before an allocator's sources with -include. glibc's free leaves errno alone, and saving it
// around each free costs some ten instructions; the calls that give memory back are rare, so they keep
// errno instead. A caller that reads errno after a failure sees the old value: the allocators
// read it only to word a warning, or to try again on EAGAIN, which is done here.
#ifndef IMAS_KEEP_ERRNO_H
#define IMAS_KEEP_ERRNO_H

// The sources ask for these themselves, some only later than this header.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

static inline int imas_keep_errno_munmap(void *start, size_t length)
{
    int saved = errno;
    int result = munmap(start, length);
    errno = saved;
    return result;
}

static inline int imas_keep_errno_mprotect(void *start, size_t length, int protection)
{
    int saved = errno;
    int result = mprotect(start, length, protection);
    errno = saved;
    return result;
}

static inline int imas_keep_errno_madvise(void *start, size_t length, int advice)
{
    int saved = errno;
    int result;
    do
        result = madvise(start, length, advice);
    while (result != 0 && errno == EAGAIN);
    errno = saved;
    return result;
}

#define munmap(start, length) imas_keep_errno_munmap(start, length)
#define mprotect(start, length, protection) imas_keep_errno_mprotect(start, length, protection)
#define madvise(start, length, advice) imas_keep_errno_madvise(start, length, advice)

#endif
