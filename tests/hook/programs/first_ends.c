// SPDX-License-Identifier: Apache-2.0
/* first_ends [ends]: a second thread takes 64 MB in small blocks and ends the program; with "ends" the first one has ended by then. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 200000
#define BYTES 320

static char *kept[BLOCKS];
static int waits_for_the_end;

/* The state of the first thread follows its name in parentheses. */
static int first_has_ended(void) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(text, sizeof text, file) == NULL)
        exit(3);
    fclose(file);
    return strrchr(text, ')')[2] == 'Z';
}

static void *work(void *nothing) {
    while (waits_for_the_end && !first_has_ended())
        usleep(1000);
    for (int i = 0; i < BLOCKS; i++) {
        kept[i] = malloc(BYTES);
        if (kept[i] == NULL)
            exit(2);
        memset(kept[i], 1, BYTES);
    }
    puts("taken");
    fflush(stdout);
    exit(0);
    return nothing;
}

int main(int count, char **words) {
    (void)words;
    waits_for_the_end = count > 1;
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0)
        return 1;
    if (waits_for_the_end)
        pthread_exit(NULL);
    pthread_join(thread, NULL);
    return 0;
}
