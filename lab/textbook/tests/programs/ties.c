// SPDX-License-Identifier: Apache-2.0
/* Three equal holes, and a request that fits each: among equals every policy takes the first.
 * Prints the number of the hole. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { HOLES = 3, HOLE_BYTES = 1000 };

int main(void)
{
    uintptr_t hole[HOLES];
    for (int i = 0; i < HOLES; i++) {
        hole[i] = (uintptr_t)malloc(HOLE_BYTES);
        if (!malloc(16)) /* the wall to the next hole: never freed */
            return 1;
    }
    for (int i = 0; i < HOLES; i++)
        free((void *)hole[i]);
    uintptr_t placed = (uintptr_t)malloc(HOLE_BYTES - 100);
    for (int i = 0; i < HOLES; i++)
        if (placed == hole[i])
            printf("%d\n", i + 1);
    return 0;
}
