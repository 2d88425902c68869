// SPDX-License-Identifier: Apache-2.0
/* A program that uses the break itself, between its mallocs. Prints "done" when neither side has
 * touched the other's bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 300, OWN_BYTES = 777, BLOCK_BYTES = 3000 };

static unsigned char *own[ROUNDS];
static unsigned char *block[ROUNDS];

static int all(const unsigned char *bytes, size_t length, int mark)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != (unsigned char)mark)
            return 0;
    return 1;
}

int main(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        own[i] = memset(sbrk(OWN_BYTES), i, OWN_BYTES);
        block[i] = memset(malloc(BLOCK_BYTES), ~i, BLOCK_BYTES);
        if (i % 3 == 2)
            free(block[i - 1]);
    }
    for (int i = 0; i < ROUNDS; i++)
        if (!all(own[i], OWN_BYTES, i) || (i % 3 != 1 && !all(block[i], BLOCK_BYTES, ~i)))
            return 1;
    puts("done");
    return 0;
}
