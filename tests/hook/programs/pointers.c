// SPDX-License-Identifier: Apache-2.0
/* Built position-dependent: the executable answers for malloc's address with a stub, without defining it. */
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    void *(*volatile take)(size_t) = malloc;
    void (*volatile give)(void *) = free;
    for (int i = 0; i < 1000; i++)
        give(take(100));
    puts("through pointers");
    return 0;
}
