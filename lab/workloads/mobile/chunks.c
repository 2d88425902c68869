// SPDX-License-Identifier: Apache-2.0
// Like the malloc test of gperftools as the mobile paper describes it: blocks of many chunk sizes, their pointers kept in an array, in a list
// through the blocks, or scattered over a table; then read and freed, in order or at random. Nanoseconds of CPU time an operation, by phase.
// "few" is 500 blocks at a time, "many" 20,000; "linear" is one size a pass, in order, "random" is sizes up to three pages, in random order.
// chunks [-n PASSES] [-s SEED]
#include "figures.h"

enum store { ARRAY, LIST, TABLE, STORES };
enum { MOST = 20000, SLOTS = 32768 };

struct shape {
    const char *name;
    size_t blocks;
    unsigned long passes;
    int random;
};

// The pointers, in whichever way; `order` is the order of visiting.
struct kept {
    enum store store;
    void **slots;
    void *head;
    uint32_t *order;
};

struct times {
    double allocate, access, release;
    uint64_t operations, sum;
};

static size_t place(const struct kept *kept, size_t i)
{
    // An odd factor permutes the slots of a table whose size is a power of two.
    return kept->store == TABLE ? i * UINT64_C(40503) % SLOTS : i;
}

static void keep(struct kept *kept, size_t i, void *block)
{
    if (kept->store == LIST) {
        memcpy(block, &kept->head, sizeof kept->head);
        kept->head = block;
    } else {
        kept->slots[place(kept, i)] = block;
    }
}

static void in_order(uint32_t *order, size_t count, uint64_t *random)
{
    for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
    for (size_t i = count; random != NULL && i > 1; i--) {
        size_t other = below(random, i);
        uint32_t moved = order[i - 1];
        order[i - 1] = order[other];
        order[other] = moved;
    }
}

static uint64_t read_all(const struct kept *kept, size_t count)
{
    uint64_t sum = 0;
    if (kept->store == LIST) {
        for (void *block = kept->head; block != NULL; memcpy(&block, block, sizeof block)) sum += ((unsigned char *)block)[15];
        return sum;
    }
    for (size_t i = 0; i < count; i++) sum += *(unsigned char *)kept->slots[place(kept, kept->order[i])];
    return sum;
}

static void free_all(struct kept *kept, size_t count)
{
    if (kept->store == LIST) {
        while (kept->head != NULL) {
            void *block = kept->head;
            memcpy(&kept->head, block, sizeof kept->head);
            free(block);
        }
        return;
    }
    for (size_t i = 0; i < count; i++) free(kept->slots[place(kept, kept->order[i])]);
}

static void pass(const struct shape *shape, struct kept *kept, const uint32_t *sizes, struct times *times)
{
    double start = cpu_seconds();
    for (size_t i = 0; i < shape->blocks; i++) {
        unsigned char *block = malloc(sizes[i]);
        if (block == NULL) fail("malloc returned NULL");
        block[0] = (unsigned char)i;
        block[15] = 1;
        keep(kept, i, block);
    }
    double allocated = cpu_seconds();
    times->sum += read_all(kept, shape->blocks);
    double read = cpu_seconds();
    free_all(kept, shape->blocks);
    times->release += cpu_seconds() - read;
    times->access += read - allocated;
    times->allocate += allocated - start;
    times->operations += shape->blocks;
}

static void fill(uint32_t *sizes, const struct shape *shape, unsigned long number, uint64_t *random)
{
    static const uint32_t chunks[] = { 16, 32, 48, 64, 128, 256, 512, 1024, 4096 };
    for (size_t i = 0; i < shape->blocks; i++)
        sizes[i] = shape->random ? 16 + (uint32_t)below(random, 3 * 4096 - 16) : chunks[number % (sizeof chunks / sizeof *chunks)];
}

static uint64_t run(const struct shape *shape, uint64_t seed)
{
    static void *slots[SLOTS];
    static uint32_t order[MOST], sizes[MOST];
    struct times times = { 0 };
    uint64_t random = seed;
    for (unsigned long number = 0; number < shape->passes; number++) {
        // Random visits have no meaning for a list: the blocks come in the order of their links, which random sizes scatter.
        struct kept kept = { (enum store)(number / 9 % STORES), slots, NULL, order };
        fill(sizes, shape, number, &random);
        in_order(order, shape->blocks, shape->random ? &random : NULL);
        pass(shape, &kept, sizes, &times);
    }
    const struct { const char *phase; double seconds; } phases[] = {
        { "malloc", times.allocate }, { "access", times.access }, { "free", times.release },
        { "all", times.allocate + times.access + times.release },
    };
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", shape->name, phases[i].phase);
        figure(name, phases[i].seconds * 1e9 / (double)times.operations);
    }
    return times.sum;
}

int main(int argc, char **argv)
{
    // A pass of `many` has 40 times the blocks: 27 of them visit every chunk size under every way of keeping.
    unsigned long passes = option(argc, argv, 'n', 27);
    uint64_t seed = seeded(option(argc, argv, 's', 1), 0);
    const struct shape shapes[] = {
        { "few-linear", 500, passes * 20, 0 },
        { "few-random", 500, passes * 20, 1 },
        { "many-linear", MOST, passes, 0 },
        { "many-random", MOST, passes, 1 },
    };
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) sum += run(&shapes[i], seed + i);
    end_of_figures();
    return sum == 0; // what was read is used
}
