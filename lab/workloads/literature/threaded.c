// SPDX-License-Identifier: Apache-2.0
// Like glibc's bench-malloc-thread: each thread has an array of blocks and replaces a random one by a block whose size is drawn from a
// distribution in which small blocks are far more frequent (an inverse power of the size).
// threaded [-t THREADS] [-n STEPS] [-k BLOCKS] [-s SEED]
#include "steps.h"

static size_t size_of(uint64_t *random)
{
    uint64_t uniform = (next_random(random) >> 52) + 1; // 1 to 4096
    size_t size = 65536 / uniform;
    return size < 16 ? 16 + below(random, 48) : size > 32768 ? 32768 : size;
}

static void *work(void *argument)
{
    struct task *task = argument;
    void **blocks = no_blocks(task->count);
    for (unsigned long step = 0; step < task->steps; step++) {
        void **slot = &blocks[below(&task->random, task->count)];
        task->freed += checked_free(*slot);
        *slot = stamped(size_of(&task->random));
    }
    free_all(task, blocks);
    return NULL;
}

int main(int argc, char **argv) { return in_steps(argc, argv, "threaded", work, 4, 6000000, 1024); }
