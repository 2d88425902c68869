// SPDX-License-Identifier: Apache-2.0
/* Sizes that no allocator can give, up to SIZE_MAX: as the first call of a new thread, and later. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 15, SIZE_MAX - 31, SIZE_MAX - 32, SIZE_MAX - 33,
                               SIZE_MAX - 4095, SIZE_MAX - 4096, SIZE_MAX - 5000, SIZE_MAX / 2 + 1};
enum { SIZES = sizeof sizes / sizeof *sizes, WAYS = 8 };

struct request {
    int way;
    size_t size;
    void *block;
    int error;
};

static int posix_way(void **block, size_t size) {
    errno = posix_memalign(block, 64, size);
    return errno;
}

static void *make(int way, size_t size) {
    void *block = NULL;
    switch (way) {
    case 0:
        return malloc(size);
    case 1:
        return calloc(1, size);
    case 2:
        return realloc(NULL, size);
    case 3:
        return aligned_alloc(16, size);
    case 4:
        return memalign(32, size);
    case 5:
        return valloc(size);
    case 6:
        return pvalloc(size);
    default:
        return posix_way(&block, size) == 0 ? block : NULL;
    }
}

static void *ask(void *argument) {
    struct request *request = argument;
    errno = 0;
    request->block = make(request->way, request->size);
    request->error = errno;
    return NULL;
}

static int refused(struct request *request) {
    return request->block == NULL && request->error == ENOMEM;
}

/* Once as the thread's first call, then after calls that succeed. */
static int in_new_thread(struct request *request) {
    pthread_t thread;
    pthread_create(&thread, NULL, ask, request);
    pthread_join(thread, NULL);
    return refused(request);
}

static int in_old_thread(struct request *request) {
    free(malloc(100));
    ask(request);
    free(malloc(100));
    return refused(request);
}

int main(void) {
    int first = 0, later = 0;
    for (int way = 0; way < WAYS; way++) {
        for (int i = 0; i < SIZES; i++) {
            struct request request = {.way = way, .size = sizes[i]};
            first += in_new_thread(&request);
            later += in_old_thread(&request);
        }
    }
    printf("%d %d of %d refused\n", first, later, WAYS * SIZES);
    return 0;
}
