// SPDX-License-Identifier: Apache-2.0
/* LIBRARY: a library that chooses a function by a variable of the environment while ld.so relocates it, before what comes
 * first in ld.so's list is relocated. Else a program that is linked with it. */
#include <stdio.h>
#include <stdlib.h>

int chosen(void);

#ifdef LIBRARY
static int as_usual(void) { return 1; }
static int as_told(void) { return 2; }
static int (*choose(void))(void) { return getenv("CHOICE") != NULL ? as_told : as_usual; }
static int choice(void) __attribute__((ifunc("choose")));
static int (*const volatile pointer)(void) = choice;
int chosen(void) { return pointer(); }
#else
int main(void) {
    printf("%d\n", chosen());
    return 0;
}
#endif
