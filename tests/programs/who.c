// SPDX-License-Identifier: Apache-2.0
/* who.c - prints what serves this process: imas_allocator_name, else "libc"; with an argument, how many
 * arenas eight threads of glibc's malloc end up with. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8 };
static pthread_barrier_t together;

static void *allocate(void *nothing) {
    pthread_barrier_wait(&together);
    void *volatile block = malloc(100);
    pthread_barrier_wait(&together); /* all hold one at once, so nobody inherits another's arena */
    free(block);
    return nothing;
}

static int arenas(void) {
    char *text = NULL;
    size_t length = 0;
    FILE *into = open_memstream(&text, &length);
    if (into == NULL || malloc_info(0, into) != 0)
        exit(99);
    fclose(into);
    int count = 0;
    for (const char *at = text; (at = strstr(at, "<heap nr=")) != NULL; at++)
        count++;
    free(text);
    return count;
}

int main(int count, char **words) {
    (void)words;
    const char *name = dlsym(RTLD_DEFAULT, "imas_allocator_name");
    printf("%s\n", name != NULL ? name : "libc");
    if (count < 2)
        return 0;
    pthread_t thread[THREADS];
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, allocate, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    printf("%s\n", arenas() > 1 ? "several arenas" : "one arena");
    return 0;
}
