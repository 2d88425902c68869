// SPDX-License-Identifier: Apache-2.0
/* A library as a user preloads it to look for mistakes: it takes malloc for itself (-DRARE: valloc alone) and says at
 * the end that it was asked. */
#include <stddef.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_valloc(size_t size);

static int asked;

#ifdef RARE
void *valloc(size_t size) {
    asked = 1;
    return __libc_valloc(size);
}
#else
void *malloc(size_t size) {
    asked = 1;
    return __libc_malloc(size);
}
#endif

__attribute__((destructor)) static void say(void) {
    if (asked && write(2, "checked\n", 8) < 0)
        _exit(9);
}
