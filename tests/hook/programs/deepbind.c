// SPDX-License-Identifier: Apache-2.0
/* A plugin found through the executable's RUNPATH and loaded with RTLD_DEEPBIND. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    void *plugin = dlopen("libplugin.so", RTLD_NOW | RTLD_DEEPBIND);
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
        free(made);
        if (line("/proc/self/status") != 1)
            return 2;
    }
    printf("self %d\n", dlopen(NULL, RTLD_NOW) != NULL);
    return 0;
}
