// SPDX-License-Identifier: Apache-2.0
/* The paper's test 2: a large block, 1,024 of 1 KiB behind it; the large one and every second of
 * the others go, and the large request comes again. */
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 1024, BLOCK_BYTES = 1024, LARGE_BYTES = 65535 };

int main(void)
{
    puts("Running test 2 to exercise malloc and free");
    static void *block[BLOCKS];
    void *large = malloc(LARGE_BYTES);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = malloc(BLOCK_BYTES);
    free(large);
    for (int i = 0; i < BLOCKS; i += 2)
        free(block[i]);
    free(malloc(LARGE_BYTES));
    return 0;
}
