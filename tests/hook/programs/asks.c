// SPDX-License-Identifier: Apache-2.0
/* Asks for memory in two ways, one of them rare. */
#include <stdlib.h>

int main(void) {
    void *volatile blocks[] = {malloc(10), valloc(10)};
    return blocks[0] == NULL || blocks[1] == NULL;
}
