// SPDX-License-Identifier: Apache-2.0
/* A small program that allocates and says how it went: built for glibc, static, 32-bit and musl. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    long sum = 0;
    for (int i = 1; i < 3000; i++) {
        char *block = malloc((size_t)i);
        memset(block, i, (size_t)i);
        sum += block[i / 2];
        free(block);
    }
    printf("%ld\n", sum);
    return 12;
}
