// SPDX-License-Identifier: Apache-2.0
/* Linked with libjemalloc.so.2: its documented interface beside malloc and free. */
#include <stdio.h>
#include <stdlib.h>

void *mallocx(size_t, int);
void sdallocx(void *, size_t, int);

int main(void) {
    for (size_t i = 0; i < 2000; i++) {
        void *one = mallocx(100 + i, 0), *two = malloc(100 + i);
        free(one);
        sdallocx(two, 100 + i, 0);
    }
    puts("ok");
    return 0;
}
