// SPDX-License-Identifier: Apache-2.0
/* nothing: a block whose address shares the mark of NULL in the hook's filter, then free(NULL), then that
 * block is freed. Ends with 77 where there is no room for it. */
#include <stdlib.h>

#define BLOCK ((size_t)1 << 20)

int main(void) {
    void *volatile none = NULL; /* volatile: a compiler leaves out what changes nothing */
    void *volatile block = aligned_alloc((size_t)1 << 32, BLOCK); /* low half 0, as that of NULL */
    if (block == NULL)
        return 77;
    for (int i = 0; i < 1000; i++)
        free(none);
    free(block);
    return 0;
}
