// SPDX-License-Identifier: Apache-2.0
/* The paper's test 3: two neighbours go and serve a request that neither could. */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    puts("Running test 3 to test coalesce");
    void *lower = malloc(1200);
    void *upper = malloc(1200);
    free(lower);
    free(upper);
    free(malloc(2048));
    return 0;
}
