// SPDX-License-Identifier: Apache-2.0
/*
 * std::env leaves out the entries of the environment that are no variables: those without a '=', and those
 * that have it as their first byte alone. A program that is started by `imas run` is to find them. So before
 * Rust begins each is given a name, in its place, under which std::env shows it:
 * imas_linux::variables::Variables takes the name off again.
 */
#include <stdlib.h>
#include <string.h>

#define NAME "IMAS_ODD_ENTRY="

extern char **environ;

static char *with_name(const char *entry) {
    size_t size = strlen(entry) + 1;
    char *named = malloc(sizeof NAME - 1 + size);
    if (named != NULL) {
        memcpy(named, NAME, sizeof NAME - 1);
        memcpy(named + sizeof NAME - 1, entry, size);
    }
    return named;
}

__attribute__((constructor)) static void name_odd_entries(void) {
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        if (**entry != '\0' && strchr(*entry + 1, '=') != NULL)
            continue;
        char *named = with_name(*entry);
        if (named != NULL)
            *entry = named;
    }
}
