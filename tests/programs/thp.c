// SPDX-License-Identifier: Apache-2.0
// Prints what the kernel says of huge pages for this process: the line of its status.
#include <stdio.h>
#include <string.h>

int main(void)
{
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "THP_enabled:", 12) == 0)
            printf("%s", line);
    return 0;
}
