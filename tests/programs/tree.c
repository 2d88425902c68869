// SPDX-License-Identifier: Apache-2.0
/*
 * tree.c - a process tree.
 *
 *   tree CHILDREN PAIRS          fork CHILDREN processes that each do PAIRS of malloc and free, and wait for them
 *   tree CHILDREN PAIRS exec     the same, each child a new program
 *   tree daemon FILE             leave a process behind that writes its pid to FILE and never ends by itself
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void pairs(long count) {
    for (long i = 0; i < count; i++) {
        void *volatile block = malloc((size_t)(i % 500 + 1));
        free(block);
    }
}

static void leave_behind(const char *file) {
    int written[2];
    char none;
    if (pipe(written) != 0)
        exit(1);
    if (fork() != 0) {
        close(written[1]);
        if (read(written[0], &none, 1) != 0) /* its end: the note is there */
            exit(1);
        return;
    }
    setsid();
    FILE *note = fopen(file, "a");
    fprintf(note, "%d\n", getpid());
    fclose(note);
    close(written[1]);
    fclose(stdout); /* the reader of our output must see its end */
    fclose(stderr);
    for (;;)
        pause();
}

static void child(char **words, int is_exec) {
    if (is_exec) {
        execl("/proc/self/exe", words[0], "0", words[2], (char *)NULL);
        _exit(97);
    }
    pairs(atol(words[2]));
    exit(0);
}

static int failures(int children) {
    int failed = 0, status;
    for (int i = 0; i < children; i++) {
        wait(&status);
        failed += status != 0;
    }
    return failed;
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    if (strcmp(words[1], "daemon") == 0) {
        leave_behind(words[2]);
        return 0;
    }
    int children = atoi(words[1]);
    if (children == 0)
        pairs(atol(words[2]));
    for (int i = 0; i < children; i++) {
        if (fork() == 0)
            child(words, count > 3);
    }
    return failures(children);
}
