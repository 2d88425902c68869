// SPDX-License-Identifier: Apache-2.0
/* A fault at the end of whatever program this is linked into, where FAULT_AT_END is set. */
#include <stdlib.h>

__attribute__((destructor)) static void fault(void) {
    if (getenv("FAULT_AT_END") != NULL)
        *(volatile int *)8 = 1;
}
