// SPDX-License-Identifier: Apache-2.0
/*
 * live MIX THREADS MEGABYTES: builds a heap, churns it, and prints the usable bytes it holds; then waits to
 * be killed. MIX  small (16 to 127 bytes), mixed (16 bytes to 64 KiB, mostly small), large (4 KiB to 1 MiB),
 * grown (by realloc)
 */
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *mix;
static size_t target;

struct heap {
    uint64_t random;
    size_t live, count, room;
    void **block;
};

static uint64_t draw(struct heap *heap) {
    heap->random ^= heap->random << 13;
    heap->random ^= heap->random >> 7;
    heap->random ^= heap->random << 17;
    return heap->random;
}

static size_t size_of(struct heap *heap) {
    uint64_t random = draw(heap);
    if (strcmp(mix, "small") == 0)
        return 16 + random % 112;
    if (strcmp(mix, "large") == 0)
        return 4096 + random % (1 << 20);
    return 16 + random % (random >> 40 & 15 ? 512 : 65536);
}

static void grow(struct heap *heap) {
    void *block = malloc(size_of(heap));
    if (strcmp(mix, "grown") == 0)
        for (int i = 0; i < 4; i++)
            block = realloc(block, size_of(heap));
    heap->live += malloc_usable_size(block);
    heap->block[heap->count++] = block;
}

static void shrink(struct heap *heap) {
    size_t which = draw(heap) % heap->count;
    heap->live -= malloc_usable_size(heap->block[which]);
    free(heap->block[which]);
    heap->block[which] = heap->block[--heap->count];
}

static void *work(void *argument) {
    struct heap *heap = argument;
    while (heap->live < target)
        grow(heap);
    for (int i = 0; i < 200000 && strcmp(mix, "large") != 0; i++) {
        shrink(heap);
        while (heap->live < target)
            grow(heap);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    mix = argv[1];
    int threads = atoi(argv[2]);
    target = (size_t)atol(argv[3]) * (1 << 20) / (size_t)threads;
    struct heap heaps[64];
    pthread_t thread[64];
    size_t live = 0;
    for (int i = 0; i < threads; i++) {
        heaps[i] = (struct heap){.random = 88172645463325252u + (uint64_t)i * 977, .room = target / 32 + 1000};
        heaps[i].block = malloc(heaps[i].room * sizeof(void *));
        live += malloc_usable_size(heaps[i].block);
        pthread_create(&thread[i], NULL, work, &heaps[i]);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < threads; i++)
        live += heaps[i].live;
    printf("%zu\n", live);
    fflush(stdout);
    pause();
}
