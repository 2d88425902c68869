// SPDX-License-Identifier: Apache-2.0
//
// Zeroes of a large calloc, without a write to each of its pages. Many allocators write zeroes over the whole block,
// new or used. A program that takes a table of a gigabyte and uses a little of it then waits seconds, and holds a
// gigabyte, where glibc maps the table and the kernel gives only the pages that are used.
//
// Here the kernel takes back the whole pages of the block and gives zeroed ones when the program touches them. Nothing
// outside of the block is given back, so what the allocator keeps around it stays.
//
//   LARGE_CALLOC                       the sizes from which on it is done
//   large_calloc_clear(block, size)    makes the block's bytes zero
#ifndef IMAS_LARGE_CALLOC_H
#define IMAS_LARGE_CALLOC_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// The largest value of glibc's mmap threshold: from there on each calloc of the untouched program has new pages too.
// Below it glibc writes zeroes over a block that was used before. A page that is given back and touched again costs
// some ten times what it costs to write zeroes over it, so for smaller blocks this would harm programs that use all
// of them.
#define LARGE_CALLOC ((size_t)32 << 20)

// Whether the kernel took these pages back. It refuses where memory is locked.
static int large_calloc_drop(char *start, size_t bytes)
{
    int saved = errno, answer;
    do
        answer = madvise(start, bytes, MADV_DONTNEED);
    while (answer != 0 && errno == EAGAIN);
    errno = saved;
    return answer == 0;
}

static __attribute__((noinline, cold)) void large_calloc_clear(char *block, size_t size)
{
    size_t page = (size_t)getpagesize();
    uintptr_t first = ((uintptr_t)block + page - 1) & ~(page - 1);
    // Where the block lies in huge pages (MAP_HUGETLB), some kernels round the end up, over what follows the block, and
    // others round it down. All refuse a start that is no multiple of the huge page.
    first |= page;
    size_t before = first - (uintptr_t)block;
    size_t whole = (size - before) & ~(page - 1);
    char *dropped = block + before;
    if (!large_calloc_drop(dropped, whole)) {
        memset(block, 0, size);
        return;
    }
    memset(block, 0, before);
    memset(dropped + whole, 0, size - before - whole);
}

#endif
