// SPDX-License-Identifier: Apache-2.0
/* malloc_trim gives the free end of the heap back. Prints "done" when the break has gone down by
 * most of a burst, and the heap works afterwards. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BLOCKS = 1000, BLOCK_BYTES = 4000 };

int main(void)
{
    static void *volatile block[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        block[i] = malloc(BLOCK_BYTES);
    char *high = sbrk(0);
    for (int i = 0; i < BLOCKS; i++)
        free(block[i]);
    int given = malloc_trim(0);
    long returned = high - (char *)sbrk(0);
    block[0] = malloc(100000);
    if (given != 1 || returned < (long)BLOCKS * BLOCK_BYTES - 8192 || malloc_trim(200000) != 0)
        return 1;
    free(block[0]);
    puts("done");
    return 0;
}
