// SPDX-License-Identifier: Apache-2.0
/* The paper's test 1: a block of 65,535 bytes, and back. */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    puts("Running test 1 to test a simple malloc and free");
    free(malloc(65535));
    return 0;
}
