// SPDX-License-Identifier: Apache-2.0
// Asks for each name twice, by getenv and by secure_getenv; NAME=VALUE is set instead. Then shows its environment, and a child's.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern char **environ;
static const char *shown(const char *value) { return value != NULL ? value : "-"; }
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strchr(argv[i], '=') != NULL) {
            putenv(argv[i]);
            continue;
        }
        printf("%s=%s ", argv[i], shown(getenv(argv[i])));
        printf("%s\n", shown(secure_getenv(argv[i])));
    }
    for (char **entry = environ; *entry != NULL; entry++) {
        if (strncmp(*entry, "PATH=", 5) != 0)
            printf("has %s\n", *entry);
    }
    setenv("TOLD", "later", 1);
    printf("TOLD=%s\n", shown(getenv("TOLD")));
    fflush(stdout);
    return system("exec /usr/bin/env | grep -v ^PATH= | sed 's/^/child /'") != 0;
}
