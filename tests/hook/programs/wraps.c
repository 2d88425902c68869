// SPDX-License-Identifier: Apache-2.0
/* A library that wraps the function WRAPS, as fakers of the clock and wrappers of sockets do: at its first use it sets
 * itself up, under a lock, and allocates. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(name) #name
#define NAME(name) TEXT(name)

typedef long call(long, long, long, long, long, long, long);

static call *next;
static pthread_once_t once = PTHREAD_ONCE_INIT;
char *wraps_settings;

static void begin(void) {
    next = (call *)dlsym(RTLD_NEXT, NAME(WRAPS));
    wraps_settings = strdup("settings");
}

__attribute__((constructor)) static void at_load(void) {
    pthread_once(&once, begin);
}

/* All arguments of the functions that are wrapped are words. The name stands in the object file only: a header declares the
 * function otherwise. */
long wraps(long a, long b, long c, long d, long e, long f, long g) __asm__(NAME(WRAPS));
long wraps(long a, long b, long c, long d, long e, long f, long g) {
    pthread_once(&once, begin);
    return next(a, b, c, d, e, f, g);
}
