// SPDX-License-Identifier: Apache-2.0
// Large blocks, after the tests of that kind in rptest and mimalloc-bench: blocks of 32 KiB to 8 MiB are made, written page by page, grown and freed.
// large [-t THREADS] [-n STEPS] [-k BLOCKS] [-s SEED]
#include "steps.h"

static size_t size_of(uint64_t *random)
{
    uint64_t doubled = below(random, 8);
    return ((size_t)32 << (10 + doubled)) + below(random, 30000);
}

static void touch(unsigned char *block, size_t size)
{
    for (size_t at = sizeof size; at + 1 < size; at += 4096) block[at] = (unsigned char)at;
}

static void *work(void *argument)
{
    struct task *task = argument;
    void **blocks = no_blocks(task->count);
    for (unsigned long step = 0; step < task->steps; step++) {
        void **slot = &blocks[below(&task->random, task->count)];
        if (*slot != NULL && step % 4 == 0) {
            size_t old, size = size_of(&task->random);
            memcpy(&old, *slot, sizeof old);
            unsigned char *block = realloc(*slot, size);
            if (block == NULL || memcmp(block, &old, sizeof old) != 0) fail("realloc lost what was in the block");
            memcpy(block, &size, sizeof size);
            block[size - 1] = (unsigned char)(size * 31 + 7);
            *slot = block;
            continue;
        }
        task->freed += checked_free(*slot);
        size_t size = size_of(&task->random);
        *slot = stamped(size);
        touch(*slot, size);
    }
    free_all(task, blocks);
    return NULL;
}

int main(int argc, char **argv) { return in_steps(argc, argv, "large", work, 1, 3000, 40); }
