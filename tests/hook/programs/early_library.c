// SPDX-License-Identifier: Apache-2.0
/* A library whose constructor allocates before the hook's has run, in every way, and keeps what it got. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

char *early_kept, *early_grown, *early_zeroed;
void *early_aligned;

__attribute__((constructor)) static void early(void) {
    early_kept = strdup("kept since before the constructors");
    early_grown = malloc(10);
    memcpy(early_grown, "grown", 6);
    early_grown = realloc(early_grown, 100000);
    early_zeroed = calloc(1000, 100);
    early_aligned = memalign(4096, 300000);
    for (int i = 0; i < 10000; i++)
        free(malloc((size_t)i));
}
