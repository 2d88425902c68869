// SPDX-License-Identifier: Apache-2.0
/* threads [COUNT]: threads that come and go, many more than there are slots; each frees what another
 * allocated. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE 16
static void *passed[AT_ONCE];

static void *work(void *argument) {
    void **place = argument;
    free(*place);
    for (int i = 1; i <= 20; i++)
        free(malloc((size_t)i * 37));
    *place = malloc(500);
    memset(*place, 1, 500);
    return NULL;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 20000;
    pthread_t thread[AT_ONCE];
    for (int done = 0; done < count; done += AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++)
            if (pthread_create(&thread[i], NULL, work, &passed[i]) != 0)
                return 1;
        for (int i = 0; i < AT_ONCE; i++)
            pthread_join(thread[i], NULL);
    }
    puts("done");
    return 0;
}
