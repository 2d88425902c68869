// SPDX-License-Identifier: Apache-2.0
/* Built position-dependent: the executable answers for the address of malloc, and of other functions, with a stub,
 * without defining it. Until ld.so has relocated the executable, its last object, such a stub leads to address 0. So a
 * library that calls one earlier, or whose compiler does, ends the program (tarantool has the address of strlen). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* Whether all these functions are there. */
static int are_reached(void) {
    const void *volatile functions[] = {
        (const void *)strlen,    (const void *)memcpy, (const void *)memset, (const void *)memmove,
        (const void *)memcmp,    (const void *)strcmp, (const void *)strchr, (const void *)dlsym,
        (const void *)sigaction, (const void *)execve, (const void *)_exit,  (const void *)dl_iterate_phdr,
        (const void *)dladdr,    (const void *)getauxval,
    };
    int count = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        count += functions[i] != NULL;
    return count == (int)(sizeof functions / sizeof *functions);
}

int main(void) {
    if (!are_reached())
        return 1;
    void *(*volatile take)(size_t) = malloc;
    void (*volatile give)(void *) = free;
    for (int i = 0; i < 1000; i++)
        give(take(100));
    puts("through pointers");
    return 0;
}
