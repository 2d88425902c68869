// SPDX-License-Identifier: Apache-2.0
/* A program that needs no symbol version of a newer libc (no start files): prints which allocator serves it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const char imas_allocator_name[] __attribute__((weak));

__attribute__((used)) static void begin(void) {
    for (size_t size = 0; size < 3000; size++) {
        char *block = malloc(size);
        block = realloc(memset(block, 1, size), 2 * size + 1);
        free(block);
    }
    puts(imas_allocator_name != NULL ? imas_allocator_name : "untouched");
    exit(0);
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start: xor %ebp, %ebp\n and $-16, %rsp\n call begin");
#else
__asm__(".globl _start\n_start: b begin");
#endif
