// SPDX-License-Identifier: Apache-2.0
/*
 * count - starts a valgrind tool without valgrind's own launcher: count TOOL-OPTION... PROGRAM [ARGUMENT]...
 *
 * valgrind's launcher is an ordinary program. When a program under valgrind execs with LD_PRELOAD set, the
 * launcher comes first and would get our library in the program's stead, take its page and clean its
 * environment. This one is linked statically, so nothing can be preloaded into it. The tool's file is named
 * by BENCH_VALGRIND_TOOL.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char self[4096];
    const char *tool = getenv("BENCH_VALGRIND_TOOL");
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (argc < 2 || tool == NULL || length <= 0) {
        fprintf(stderr, "count: BENCH_VALGRIND_TOOL is not set, or nothing to run\n");
        return 2;
    }
    self[length] = '\0';
    setenv("VALGRIND_LAUNCHER", self, 1); /* what the tool execs for the program's own execs: us again */
    execv(tool, argv);
    perror(tool);
    return 2;
}
