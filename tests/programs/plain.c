// SPDX-License-Identifier: Apache-2.0
/* plain.c - allocates and says so, in plain C that every compiler, linker and C library here takes. With
 * OWN_MALLOC it brings a malloc. */
#include <stdio.h>
#include <stdlib.h>

#ifdef OWN_MALLOC
static _Alignas(16) char memory[1 << 20];
static size_t used;

void *malloc(size_t size) {
    void *block = memory + used;
    used += (size + 15) / 16 * 16;
    return used <= sizeof memory ? block : NULL;
}

void free(void *block) {
    (void)block;
}
#endif

int main(void) {
    void *volatile block = malloc(100);
    printf(block != NULL ? "plain\n" : "no memory\n");
    free(block);
    return 0;
}
