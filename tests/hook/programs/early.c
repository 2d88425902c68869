// SPDX-License-Identifier: Apache-2.0
/* Blocks that a library's constructor got before the hook's had run are used, grown and freed by the
 * program. */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char *early_kept, *early_grown, *early_zeroed;
extern void *early_aligned;

int main(void) {
    int zero = 1;
    for (int i = 0; i < 100000; i++)
        zero = zero && early_zeroed[i] == 0;
    printf("%s %s %d %d\n", early_kept, early_grown, zero, (int)((uintptr_t)early_aligned % 4096));
    printf("%d %d\n", malloc_usable_size(early_kept) >= 35, malloc_usable_size(early_grown) >= 100000);
    early_kept = realloc(early_kept, 1 << 20);
    early_grown = realloc(early_grown, 8);
    early_aligned = realloc(early_aligned, 1 << 20);
    printf("%s %.5s\n", early_kept, early_grown);
    free(early_kept);
    free(early_grown);
    free(early_zeroed);
    free(early_aligned);
    return 3;
}
