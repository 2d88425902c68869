// SPDX-License-Identifier: Apache-2.0
/* memory.c - the two functions a compiler may call for assignments of structures; there is no libc to have
 * them from. */
#include <stddef.h>

__attribute__((visibility("hidden"))) void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        ((volatile unsigned char *)to)[i] = ((const unsigned char *)from)[i];
    return to;
}

__attribute__((visibility("hidden"))) void *memset(void *to, int value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        ((volatile unsigned char *)to)[i] = (unsigned char)value;
    return to;
}
