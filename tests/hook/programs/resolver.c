// SPDX-License-Identifier: Apache-2.0
/* The first malloc comes from an IFUNC resolver, while ld.so is still relocating and thread storage is not
 * set up. jemalloc, mimalloc and others crash here when preloaded by hand; the hook's arena must not. */
#include <stdio.h>
#include <stdlib.h>

static int answer(void) {
    return 42;
}

static int (*resolve(void))(void) {
    for (int i = 0; i < 100; i++)
        free(malloc(100));
    return answer;
}
int chosen(void) __attribute__((ifunc("resolve")));

int main(void) {
    free(malloc(10));
    printf("%d\n", chosen());
    return 0;
}
