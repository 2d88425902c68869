// SPDX-License-Identifier: Apache-2.0
// Like glibc's bench-malloc-simple: for each of a few sizes and numbers of blocks, all are allocated and all are freed again in the same order, over and over.
// simple [-n ROUNDS]
#include "common.h"

int main(int argc, char **argv)
{
    static const size_t sizes[] = { 16, 64, 128, 512, 1024, 4096 };
    static const unsigned counts[] = { 25, 100, 400, 1600 };
    unsigned long rounds = option(argc, argv, 'n', 120);
    void *blocks[1600];
    uint64_t freed = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            for (unsigned long round = 0; round < rounds * 1600 / counts[c]; round++) {
                for (unsigned i = 0; i < counts[c]; i++) blocks[i] = stamped(sizes[s]);
                for (unsigned i = 0; i < counts[c]; i++) freed += checked_free(blocks[i]);
            }
        }
    }
    printf("simple: %llu bytes\n", (unsigned long long)freed);
    return 0;
}
