// SPDX-License-Identifier: Apache-2.0
/* malloc and free in destructors of thread-specific data, in atexit handlers and in a destructor of the
 * program. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_key_t key;
static char *kept;

static void at_thread_end(void *value) {
    static __thread int rounds;
    free(value);
    if (++rounds < 3)
        pthread_setspecific(key, strdup("again"));
}

static void *work(void *argument) {
    (void)argument;
    pthread_setspecific(key, malloc(100));
    free(strdup("x"));
    return NULL;
}

static void at_exit_first(void) {
    free(kept);
    kept = calloc(100, 100);
    puts("first");
}

static void at_exit_second(void) {
    kept = realloc(kept, 100000);
    puts("second");
}

__attribute__((destructor)) static void at_end(void) {
    char *text = malloc(50);
    strcpy(text, "destructor");
    puts(text);
    free(text);
    free(kept);
}

int main(void) {
    pthread_key_create(&key, at_thread_end);
    kept = malloc(10);
    for (int i = 0; i < 40; i++)
        if (atexit(i % 2 ? at_exit_first : at_exit_second) != 0) /* more than libc has room for: it allocates */
            return 1;
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) != 0)
            return 1;
        pthread_join(thread, NULL);
    }
    return 7;
}
