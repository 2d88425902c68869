// SPDX-License-Identifier: Apache-2.0
/* Allocates so much and so long that an allocator maps, gives back and asks for the time. */
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    enum { BLOCKS = 4000, CALLS = 200000 };
    static void *block[BLOCKS];
    unsigned state = 1;
    for (int i = 0; i < CALLS; i++) {
        state = state * 1103515245 + 12345;
        unsigned place = (state >> 8) % BLOCKS;
        free(block[place]);
        block[place] = malloc(16 + (state >> 24) * (i % 100 == 0 ? 3000 : 3));
        *(char *)block[place] = 1;
    }
    puts("done");
    return 0;
}
