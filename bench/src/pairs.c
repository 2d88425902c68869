// SPDX-License-Identifier: Apache-2.0
/*
 * pairs - malloc and free over and over, for counting instructions: pairs (same|mixed) COUNT
 *   same   pairs of 64 bytes
 *   mixed  a random block of 256 is replaced by one of 16 to 271 bytes
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 256

static uint64_t state = 88172645463325252u;

static uint64_t random_number(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void same(long count) {
    for (long i = 0; i < count; i++) {
        void *volatile block = malloc(64);
        free(block);
    }
}

static void mixed(long count) {
    static void *block[BLOCKS];
    for (long i = 0; i < count; i++) {
        uint64_t random = random_number();
        void **place = &block[random % BLOCKS];
        free(*place);
        *place = malloc(16 + (random >> 32) % 256);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: pairs (same|mixed) COUNT\n");
        return 2;
    }
    (strcmp(argv[1], "same") == 0 ? same : mixed)(atol(argv[2]));
    return 0;
}
