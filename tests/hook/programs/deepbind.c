// SPDX-License-Identifier: Apache-2.0
/* A plugin found through the executable's RUNPATH and loaded with RTLD_DEEPBIND, by dlopen and by dlmopen
 * (argument "base"); "new" loads it into a namespace of its own, where it has a libc of its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_plugin(const char *way) {
    int mode = RTLD_NOW | RTLD_DEEPBIND;
    if (way == NULL)
        return dlopen("libplugin.so", mode);
    return dlmopen(strcmp(way, "base") == 0 ? LM_ID_BASE : LM_ID_NEWLM, "libplugin.so", mode);
}

int main(int argc, char **argv) {
    (void)argc;
    void *plugin = open_plugin(argv[1]);
    if (plugin == NULL) {
        printf("not found: %s\n", dlerror());
        return 1;
    }
    char *(*text)(int) = (char *(*)(int))dlsym(plugin, "plugin_text");
    size_t (*line)(const char *) = (size_t(*)(const char *))dlsym(plugin, "plugin_line");
    for (int i = 0; i < 100; i++) {
        char *made = text(i);
        if (i == 99)
            puts(made);
        if (argv[1] == NULL || strcmp(argv[1], "new") != 0)
            free(made); /* another namespace's blocks are not ours */
        if (line("/proc/self/status") != 1)
            return 2;
    }
    printf("self %d\n", dlopen(NULL, RTLD_NOW) != NULL);
    return 0;
}
