// SPDX-License-Identifier: Apache-2.0
/* threads WHAT: threads of every kind that allocate. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <threads.h>
#include <unistd.h>

#include "choice.h"

static _Thread_local char large[200000];

static void *use(void *nothing) {
    void *kept[64];
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 64; i++)
            kept[i] = malloc((size_t)(1 + (i * 37 + round * 1001) % (round % 4 == 3 ? 200000 : 3000)));
        for (int i = 0; i < 64; i++)
            kept[i] = realloc(kept[i], (size_t)(500 + i * 10));
        for (int i = 0; i < 64; i++)
            free(kept[i]);
    }
    return nothing;
}

static int with_stack(size_t bytes) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, bytes);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        int error = pthread_create(&thread, &attributes, use, NULL);
        printf("%d ", error);
        if (error == 0)
            pthread_join(thread, NULL);
    }
    return puts("");
}

static int smallest_stack(void) { return with_stack((size_t)PTHREAD_STACK_MIN); }
static int small_stack(void) { return with_stack(65536); }

static void *touches(void *nothing) {
    memset(large, 1, sizeof large);
    return use(nothing);
}

static int large_tls(void) {
    pthread_t thread[8];
    for (int i = 0; i < 8; i++)
        printf("%d ", pthread_create(&thread[i], NULL, touches, NULL));
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    return puts("");
}

static pthread_barrier_t barrier;
static void *waits(void *nothing) {
    void *kept[20];
    for (int i = 0; i < 20; i++)
        kept[i] = malloc((size_t)(100 + i * 50));
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 20; i++)
        free(kept[i]);
    return nothing;
}

static int many(void) {
    enum { COUNT = 500 };
    static pthread_t thread[COUNT];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    pthread_barrier_init(&barrier, NULL, COUNT);
    int errors = 0;
    for (int i = 0; i < COUNT; i++)
        errors += pthread_create(&thread[i], &attributes, waits, NULL) != 0;
    for (int i = 0; i < COUNT; i++)
        pthread_join(thread[i], NULL);
    return printf("%d\n", errors);
}

static void *frees_one(void *block) {
    free(block);
    return NULL;
}

static int short_lived(void) {
    for (int i = 0; i < 1500; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, frees_one, malloc(100)) == 0)
            pthread_join(thread, NULL);
    }
    return puts("ok");
}

static pthread_key_t key;
static int destroyed;
static void destroy(void *block) {
    free(block);
    use(NULL);
    if (destroyed++ < 3)
        pthread_setspecific(key, malloc(100));
}

static void *has_destructor(void *nothing) {
    pthread_setspecific(key, malloc(50));
    return nothing;
}

/* A destructor of thread data that allocates, and sets its key again. */
static int destructors(void) {
    pthread_key_create(&key, destroy);
    pthread_t thread;
    pthread_create(&thread, NULL, has_destructor, NULL);
    pthread_join(thread, NULL);
    return printf("%d\n", destroyed);
}

static void *cancelled(void *nothing) {
    for (;;) {
        free(malloc(1000));
        pthread_testcancel();
    }
    return nothing;
}

static int cancellation(void) {
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, cancelled, NULL);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        printf("%d", result == PTHREAD_CANCELED);
    }
    return puts("");
}

/* Blocks go from one thread to another, which frees them. */
static void *queue[1000];
static sem_t full;
static void *frees(void *nothing) {
    for (int i = 0; i < 1000; i++) {
        sem_wait(&full);
        free(queue[i]);
    }
    return nothing;
}

static int handed_over(void) {
    pthread_t thread;
    sem_init(&full, 0, 0);
    pthread_create(&thread, NULL, frees, NULL);
    for (int i = 0; i < 1000; i++) {
        queue[i] = memset(malloc((size_t)i * 13 + 1), i, (size_t)i * 13 + 1);
        sem_post(&full);
    }
    pthread_join(thread, NULL);
    return puts("ok");
}

static void *stays(void *nothing) {
    pause();
    return nothing;
}

/* The address space leaves room for few threads only: pthread_create fails, the program goes on. */
static int limited(void) {
    setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)3 << 30, (rlim_t)3 << 30});
    int failed = 0, count = 0;
    for (; !failed && count < 2000; count++) {
        pthread_t thread;
        failed = pthread_create(&thread, NULL, stays, NULL);
    }
    use(NULL);
    return printf("%s\n", strerror(failed));
}

/* Whether or not a thread can be made, the program works on. */
static int one_or_none(void) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, use, NULL);
    if (error == 0)
        pthread_join(thread, NULL);
    use(NULL);
    return printf("%s\n", strerror(error));
}

static int own_stack(void) {
    size_t bytes = 256 << 10;
    void *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, bytes);
    pthread_t thread;
    printf("%d\n", pthread_create(&thread, &attributes, use, NULL));
    pthread_join(thread, NULL);
    memset(stack, 0, bytes);
    munmap(stack, bytes);
    use(NULL);
    return 0;
}

static const struct choice CHOICES[] = {
    {"smallest-stack", smallest_stack}, {"small-stack", small_stack}, {"large-tls", large_tls}, {"many", many},
    {"short-lived", short_lived}, {"destructors", destructors}, {"cancellation", cancellation},
    {"handed-over", handed_over}, {"limited", limited}, {"own-stack", own_stack}, {"one-or-none", one_or_none}, {NULL, NULL},
};

int main(int count, char **words) { return choose(CHOICES, count, words); }
