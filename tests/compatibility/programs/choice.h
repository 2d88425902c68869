// SPDX-License-Identifier: Apache-2.0
/* choice.h - what one program can do, by name. */
#ifndef IMAS_COMPATIBILITY_CHOICE_H
#define IMAS_COMPATIBILITY_CHOICE_H

#include <stdio.h>
#include <string.h>

struct choice {
    const char *name;
    int (*run)(void);
};

/* Runs the one that the first argument names; 0 when it returns, whatever it returns. */
static inline int choose(const struct choice *choices, int count, char **words) {
    for (; count > 1 && choices->name != NULL; choices++) {
        if (strcmp(choices->name, words[1]) == 0) {
            choices->run();
            return 0;
        }
    }
    fputs("no such choice\n", stderr);
    return 2;
}

#endif
