// SPDX-License-Identifier: Apache-2.0
/* A library that binds at once, with an IFUNC resolver that sets a handler and allocates: it runs before ld.so has relocated
 * what is preloaded. Allocators that are preloaded by hand crash in it. With PROGRAM, the program that uses it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef PROGRAM
int chosen(void);
int handled(void);

int main(void) {
    raise(SIGUSR1);
    free(malloc(10));
    printf("%d %d\n", chosen(), handled());
    return 0;
}
#else
static volatile sig_atomic_t signals;

static void handle(int signal) {
    signals += signal == SIGUSR1;
}

int handled(void) {
    return signals;
}

static int answer(void) {
    return 42;
}

static int (*resolve(void))(void) {
    struct sigaction action = {.sa_handler = handle}, before = {.sa_handler = handle};
    int failed = sigaction(SIGUSR1, &action, &before) != 0 || before.sa_handler != SIG_DFL;
#ifdef ALLOCATES
    char *block = malloc(100);
    failed |= block == NULL;
    free(realloc(block, 200));
    free(calloc(3, 5));
#endif
    return failed ? NULL : answer;
}
static int choice(void) __attribute__((ifunc("resolve")));

/* Through a pointer of the library's own: it is relocated with the library, not with the program. */
int (*const volatile to_choice)(void) = choice;

int chosen(void) {
    return to_choice();
}
#endif
