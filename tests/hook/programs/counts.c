// SPDX-License-Identifier: Apache-2.0
/* counts N THREADS: makes exactly known numbers of calls in each thread:
 * 3N malloc class, 2N realloc, 2N memalign class, 6N + 1 free; 1510N bytes. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static long rounds;

static void *work(void *argument) {
    (void)argument;
    for (long i = 0; i < rounds; i++) {
        void *a = malloc(10);
        void *b = calloc(10, 10);
        void *c = memalign(64, 200);
        void *d = NULL;
        if (posix_memalign(&d, 128, 300) != 0)
            abort();
        a = realloc(a, 400);
        void *e = realloc(NULL, 500 - 400);
        free(malloc(400));
        free(a);
        free(b);
        free(c);
        free(d);
        if (e == NULL)
            abort();
        static __thread void *kept;
        free(kept); /* NULL in the first round: a call all the same */
        kept = e;
        if (i + 1 == rounds)
            free(kept);
    }
    return NULL;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atol(argv[1]) : 0;
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    for (int done = 0; done < threads; done++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) != 0)
            return 1;
        pthread_join(thread, NULL);
    }
    puts("counted");
    return 0;
}
