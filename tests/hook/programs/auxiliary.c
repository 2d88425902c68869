// SPDX-License-Identifier: Apache-2.0
/* auxiliary: looks for the auxiliary vector where Go's runtime does: behind the NULL that ends the
 * environment, in pairs. The kernel puts it there, and it must still be found when variables have been taken
 * away. */
#include <elf.h>
#include <stdio.h>

int main(int argc, char **argv) {
    char **at = argv + argc + 1;
    while (*at != NULL)
        at++;
    unsigned long page = 0;
    for (const Elf64_auxv_t *pair = (const Elf64_auxv_t *)(at + 1); pair->a_type != AT_NULL; pair++) {
        if (pair->a_type == AT_PAGESZ)
            page = pair->a_un.a_val;
    }
    printf("page %lu\n", page);
    return page == 0;
}
