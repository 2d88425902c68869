// SPDX-License-Identifier: Apache-2.0
/* A library that allocates in its constructor, frees in its destructor, and passes blocks on. */
#include <stdlib.h>
#include <string.h>

static char *own;
__attribute__((constructor)) static void begin(void) { own = strdup("plugin"); }
__attribute__((destructor)) static void end(void) { free(own); }

char *give(void);
void take(void *block);
char *give(void) { return strdup(own); }
void take(void *block) { free(block); }
