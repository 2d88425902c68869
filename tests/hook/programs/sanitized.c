// SPDX-License-Identifier: Apache-2.0
/* Built with each sanitizer: its runtime brings an allocator and wants to be first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    char *text = strcpy(malloc(10), "sanitized");
    printf("%s %s\n", text, getenv("LD_PRELOAD") != NULL ? "preloaded" : "clean");
    free(text);
    return 5;
}
