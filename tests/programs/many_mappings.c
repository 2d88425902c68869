// SPDX-License-Identifier: Apache-2.0
// many_mappings KIND [FOLDER]: as many mappings as the machine lets a process have, less some hundred. KIND: "pages" of
// memory, or "files" in the folder with names as long as they may be. Prints "ready" and waits.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MARGIN = 300, NAME = 250, MOST = 100000 };

static long limit(void) {
    long most = 65530;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    if (file != NULL) {
        if (fscanf(file, "%ld", &most) != 1) {
            most = 65530;
        }
        fclose(file);
    }
    return (most < MOST ? most : MOST) - MARGIN;
}

// Every second page may not be read: none is joined with its neighbour.
static int pages(long count) {
    long page = sysconf(_SC_PAGESIZE);
    char *begin = mmap(NULL, (size_t)(count * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) {
        return 1;
    }
    for (long at = 0; at < count; at += 2) {
        if (at % 64 == 0) {
            begin[at * page] = 1;
        }
        if (mprotect(begin + (at + 1) * page, (size_t)page, PROT_NONE) != 0) {
            return 1;
        }
    }
    return 0;
}

static int files(long count, const char *folder) {
    if (chdir(folder) != 0) {
        return 1;
    }
    for (long at = 0; at < count; at++) {
        char name[NAME + 1];
        snprintf(name, sizeof name, "%0*ld.so", NAME - 3, at);
        int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (file < 0 || mmap(NULL, 1, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED) {
            return 1;
        }
        close(file);
        unlink(name);
    }
    return 0;
}

int main(int count, char **words) {
    if (count < 2 || (strcmp(words[1], "files") == 0 ? count < 3 || files(limit(), words[2]) : pages(limit())) != 0) {
        perror("many_mappings");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    pause();
    return 0;
}
