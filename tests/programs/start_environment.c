// SPDX-License-Identifier: Apache-2.0
/* start_environment COMMAND...: starts the command with an environment as execve allows it: in an order of its
 * own, with a name twice, an entry without '=' and one without a name. What was inherited comes first. Without
 * a command: prints the environment; with "-o FILE": into that file. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOST 200

extern char **environ;

static int show(void) {
    for (char **entry = environ; *entry != NULL; entry++)
        puts(*entry);
    return 0;
}

int main(int count, char **words) {
    if (count < 2)
        return show();
    if (strcmp(words[1], "-o") == 0)
        return freopen(words[2], "w", stdout) == NULL ? 8 : show();
    char *odd[] = {"ZULU=1", "MODE=first", "no_equals_sign", "ALPHA=2", "MODE=second", "=nameless", ""};
    char *environment[MOST];
    size_t length = 0;
    for (char **entry = environ; *entry != NULL && length < MOST / 2; entry++)
        environment[length++] = *entry;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        environment[length++] = odd[i];
    environment[length] = NULL;
    execve(words[1], words + 1, environment);
    return 9;
}
