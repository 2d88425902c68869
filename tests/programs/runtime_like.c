// SPDX-License-Identifier: Apache-2.0
// A program with the symbols of language runtimes and nothing else of them (-rdynamic). With -version it does what
// VERSION_DOES says: it is asked so whether it takes a setting.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef LIKE_JAVA
int JLI_Launch(void) { return 0; }
#endif
#ifdef LIKE_PYTHON
int Py_BytesMain(void) { return 0; }
#endif
#ifdef LIKE_GO
__attribute__((section(".go.buildinfo"), used)) static const char build[] = LIKE_GO;
#endif
#ifdef LIKE_DOTNET
__attribute__((used)) static const char host[] = "hostfxr_main_startupinfo";
#endif
#ifndef VERSION_DOES
#define VERSION_DOES return 0
#endif

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[argc - 1], "-version") == 0) {
        VERSION_DOES;
    }
#ifdef LIKE_DOTNET
    const char *set = getenv("DOTNET_GCConserveMemory");
    printf("conserves %s\n", set ? set : "nothing");
#endif
    printf("ran with %d words\n", argc);
    return 0;
}
