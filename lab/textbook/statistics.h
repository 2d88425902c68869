// SPDX-License-Identifier: Apache-2.0
/* The nine lines that a fit allocator prints at exit, in the words and order of Ramos,
 * "Implementation of Custom Malloc and Its Performance Against System Malloc" (UTA, CSE 3320). */
#ifndef IMAS_FIT_STATISTICS_H
#define IMAS_FIT_STATISTICS_H

#include <stddef.h>

struct statistics {
    size_t mallocs;         /* blocks handed out, by whatever function */
    size_t frees;           /* blocks taken back */
    size_t reuses;          /* requests served by a free block */
    size_t grows;           /* requests that found none */
    size_t splits;          /* blocks cut in two */
    size_t coalesces;       /* free neighbours joined */
    size_t blocks;          /* blocks in the list now, used and free */
    size_t requested_bytes; /* sum of the sizes asked for, as they were asked */
    size_t max_heap_bytes;  /* sum of the rounded sizes the heap grew by, headers not counted */
};

/* Writes a blank line, the title and the nine lines to `fd` with one write. Allocates nothing. */
void statistics_print(const struct statistics *statistics, int fd);

#endif
