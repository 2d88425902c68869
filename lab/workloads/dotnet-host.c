// SPDX-License-Identifier: Apache-2.0
// dotnet-host ROOT APP.dll [ARGUMENT...]: starts a program of .NET by the runtime in the folder ROOT, as the app host does
// that `dotnet build` puts beside a program. The suite finds what it measures in its PATH, where no package puts `dotnet`.
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

typedef int start_function(int count, const char **words, const char *host, const char *root, const char *app);

static void *library_of(const char *root) {
    char pattern[PATH_MAX];
    glob_t found;
    int length = snprintf(pattern, sizeof pattern, "%s/host/fxr/*/libhostfxr.so", root);
    if (length < 0 || (size_t)length >= sizeof pattern || glob(pattern, 0, NULL, &found) != 0) return NULL;
    void *library = dlopen(found.gl_pathv[0], RTLD_NOW);
    globfree(&found);
    return library;
}

int main(int count, char **words) {
    char root[PATH_MAX], app[PATH_MAX], host[PATH_MAX];
    if (count < 3 || !realpath(words[1], root) || !realpath(words[2], app) || !realpath("/proc/self/exe", host)) {
        fputs("dotnet-host: usage: dotnet-host ROOT APP.dll [ARGUMENT...], with a runtime and a program that are there\n", stderr);
        return 2;
    }
    void *library = library_of(root);
    start_function *start = library ? (start_function *)dlsym(library, "hostfxr_main_startupinfo") : NULL;
    if (!start) {
        fprintf(stderr, "dotnet-host: no .NET in %s\n", root);
        return 2;
    }
    words[2] = host;
    return start(count - 2, (const char **)words + 2, host, root, app);
}
