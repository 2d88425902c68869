// SPDX-License-Identifier: Apache-2.0
/* Built position-dependent: the executable answers for malloc's address without defining it. */
#include <stdio.h>
#include <stdlib.h>

void *(*volatile take)(size_t) = malloc;
void (*volatile give)(void *) = free;

int main(void) {
    for (int i = 0; i < 1000; i++)
        give(take(100));
    puts("through pointers");
    return 0;
}
