// SPDX-License-Identifier: Apache-2.0
/* A plugin: libc allocates, the plugin frees; and the other way round. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *plugin_text(int number) {
    char *text = NULL;
    if (asprintf(&text, "plugin %d", number) < 0)
        return NULL;
    char *copy = strdup(text);
    free(text);
    return copy;
}

size_t plugin_line(const char *path) {
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t got = file != NULL ? getline(&line, &room, file) : -1;
    if (file != NULL)
        fclose(file);
    free(line);
    return got > 0 ? 1 : 0;
}
