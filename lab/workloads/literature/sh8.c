// SPDX-License-Identifier: Apache-2.0
// Like MicroQuill's SmartHeap test 8: as sh6, but most blocks are freed soon and out of order, and a few live long and grow by realloc.
// sh8 [-t THREADS] [-n STEPS] [-k BLOCKS] [-s SEED]
#include "steps.h"

struct growing {
    unsigned char *bytes;
    size_t size;
};

enum { LONG_LIVED = 64, LARGEST = 20000 };

static void grow(struct growing *one, uint64_t *random)
{
    size_t wanted = one->size >= LARGEST ? 32 : one->size + 16 + below(random, 400);
    if (one->bytes != NULL && one->bytes[0] != 77) fail("realloc lost the first byte");
    unsigned char *bytes = realloc(one->bytes, wanted);
    if (bytes == NULL) fail("realloc returned NULL");
    bytes[0] = 77;
    bytes[wanted - 1] = 78;
    *one = (struct growing){ bytes, wanted };
    bytes[0] = 77;
}

static void *work(void *argument)
{
    struct task *task = argument;
    void **blocks = no_blocks(task->count);
    struct growing lasting[LONG_LIVED] = { 0 };
    for (unsigned long step = 0; step < task->steps; step++) {
        // Nearby indices die young, far ones later.
        unsigned long span = below(&task->random, 8) ? task->count / 16 + 1 : task->count;
        unsigned long at = (step + below(&task->random, span)) % task->count;
        task->freed += checked_free(blocks[at]);
        blocks[at] = stamped(16 + below(&task->random, below(&task->random, 10) ? 200 : 1000));
        if (step % 50 == 0) grow(&lasting[below(&task->random, LONG_LIVED)], &task->random);
    }
    for (unsigned long i = 0; i < task->count; i++) task->freed += checked_free(blocks[i]);
    for (int i = 0; i < LONG_LIVED; i++) free(lasting[i].bytes);
    free(blocks);
    return NULL;
}

int main(int argc, char **argv) { return in_steps(argc, argv, "sh8", work, 2, 5000000, 5000); }
