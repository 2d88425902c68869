// SPDX-License-Identifier: Apache-2.0
// Like MicroQuill's SmartHeap test 6: each thread keeps a list of blocks of 1 to 1,000 bytes, small ones being more frequent; it fills the
// list, frees runs of neighbours in it in the order they were made, and fills the gaps again.
// sh6 [-t THREADS] [-n PASSES] [-k BLOCKS] [-s SEED]
#include "steps.h"

static size_t size_of(uint64_t *random)
{
    // Three of four below 100 bytes.
    return below(random, 4) < 3 ? 16 + below(random, 84) : 100 + below(random, 901);
}

static void *work(void *argument)
{
    struct task *task = argument;
    void **blocks = no_blocks(task->count);
    for (unsigned long pass = 0; pass < task->steps; pass++) {
        for (unsigned long i = 0; i < task->count; i++)
            if (blocks[i] == NULL) blocks[i] = stamped(size_of(&task->random));
        unsigned long at = below(&task->random, task->count / 2), run = task->count / 4;
        for (unsigned long i = at; i < at + run; i++) {
            task->freed += checked_free(blocks[i]);
            blocks[i] = NULL;
        }
    }
    free_all(task, blocks);
    return NULL;
}

int main(int argc, char **argv) { return in_steps(argc, argv, "sh6", work, 1, 2000, 20000); }
