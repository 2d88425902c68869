// SPDX-License-Identifier: Apache-2.0
/* dawdle SIZE TIMES: so many blocks of that size, for an allocator that takes its time over some sizes
 * (foreign.c). */
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    for (int left = atoi(argv[2]); left > 0; left--) {
        void *block = malloc((size_t)atoll(argv[1]));
        if (block == NULL)
            return 1;
        free(block);
    }
    return 0;
}
