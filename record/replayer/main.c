// SPDX-License-Identifier: Apache-2.0
/* main.c - imas-replayer PROGRAM RESULT SHARE SHARE SHARE SHARE */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "replayer.h"

#define PROGRAM_MAGIC UINT64_C(0x3147525052414D49)
#define RESULT_MAGIC UINT64_C(0x3153525252414D49)

/* The same definitions are in lab/imas-replay/src/trace/program.rs and result.rs. */
struct program {
    uint64_t magic, words, places, threads, looks, unused[3];
    uint64_t word[];
};
struct result {
    uint64_t magic, is_whole, cpu_ns, refused, looks, faults, unused[2];
    struct result_look {
        uint64_t resident, live, untouched[REPLAYER_CLASSES], huge, unused;
    } look[];
};
enum word { MADE = 1, ZEROED, FREED, RESIZED, LARGE, ALIGNMENT, THREAD, THREAD_END, TIME, LOOK, END };

struct place {
    unsigned char *block;
    uint64_t size;
    int class;
};

static const struct program *program;
static struct result *result;
static struct place *places;
static const uint64_t *next_word;
static uint64_t large, alignment; /* of the next word; 0: none set */
static uint64_t live, live_of_class[REPLAYER_CLASSES];
static uint64_t looking_ns;

void fail(const char *why) {
    static const char before[] = "imas-replayer: ";
    if (write(2, before, sizeof before - 1) < 0 || write(2, why, strlen(why)) < 0 || write(2, "\n", 1) < 0)
        _exit(3);
    _exit(2);
}

/* ---- blocks -------------------------------------------------------------------------------------------- */

static void count_in(const struct place *place) {
    live += place->size;
    if (place->class != TOUCH_NO_CLASS)
        live_of_class[place->class] += place->size;
}

static void count_out(const struct place *place) {
    live -= place->size;
    if (place->class != TOUCH_NO_CLASS)
        live_of_class[place->class] -= place->size;
}

static void *made_aligned(uint64_t size) {
    uint64_t wanted = alignment & ((UINT64_C(1) << 56) - 1);
    void *block = NULL;
    switch (alignment >> 56) {
    case 1:
        return posix_memalign(&block, wanted, size) == 0 ? block : NULL;
    case 2:
        return aligned_alloc(wanted, size);
    case 3:
        return valloc(size);
    case 4:
        return memalign((size_t)getpagesize(), (size + (uint64_t)getpagesize() - 1) & -(uint64_t)getpagesize());
    default:
        return memalign(wanted, size);
    }
}

static void make(struct place *place, uint64_t size, bool is_zeroed) {
    if (is_zeroed)
        place->block = calloc(1, size);
    else
        place->block = alignment != 0 ? made_aligned(size) : malloc(size);
    alignment = 0;
    place->size = place->block != NULL ? size : 0;
    place->class = touch_class(place->size, is_zeroed);
    if (place->block == NULL) {
        result->refused++;
        return;
    }
    count_in(place);
    touch_block(place->block, 0, size, place->class);
}

static void resize(struct place *place, uint64_t size) {
    unsigned char *block = realloc(place->block, size);
    if (block == NULL) {
        result->refused++;
        return;
    }
    count_out(place);
    uint64_t before = place->size;
    place->block = block;
    place->size = size;
    place->class = touch_class(size, place->class == 3);
    count_in(place);
    if (size > before)
        touch_block(block, before, size, place->class);
}

static void release(struct place *place) {
    if (place->block == NULL)
        return;
    count_out(place);
    free(place->block);
    place->block = NULL;
}

/* ---- looks --------------------------------------------------------------------------------------------- */

static void look(uint64_t index) {
    uint64_t begun = clock_cpu_ns();
    if (index >= program->looks)
        fail("the program is damaged");
    struct result_look *to = &result->look[index];
    struct look_memory memory = look_memory();
    to->resident = memory.resident;
    to->huge = memory.huge;
    to->live = live;
    memcpy(to->untouched, live_of_class, sizeof live_of_class);
    looking_ns += clock_cpu_ns() - begun;
}

/* ---- the calls ----------------------------------------------------------------------------------------- */

static struct place *place_of(uint64_t word) {
    uint64_t index = word << 4 >> 36;
    if (index >= program->places)
        fail("the program is damaged");
    return &places[index];
}

static uint64_t size_of(uint64_t word) {
    uint64_t size = large != 0 ? large : word & UINT32_MAX;
    large = 0;
    return size;
}

static uint32_t thread_of(uint64_t word) {
    uint64_t number = word << 4 >> 4;
    if (number == 0 || number > program->threads)
        fail("the program is damaged");
    return (uint32_t)number;
}

/* A thread that ends passes its turn to the next one; at the end of the program, to the first one. */
static void leave(uint32_t self) {
    uint64_t word = *next_word;
    if (word >> 60 == THREAD)
        next_word++;
    turn_leave(self, word >> 60 == THREAD ? thread_of(word) : 1);
}

static void other_word(uint32_t self, uint64_t word) {
    switch (word >> 60) {
    case LARGE:
        large = word << 4 >> 4;
        break;
    case ALIGNMENT:
        alignment = word << 4 >> 4;
        break;
    case THREAD:
        turn_to(self, thread_of(word));
        break;
    case TIME:
        clock_set(word << 4 >> 4);
        break;
    case LOOK:
        look(word << 4 >> 4);
        break;
    default:
        fail("the program is damaged");
    }
}

void play(uint32_t self) {
    for (;;) {
        uint64_t word = *next_word;
        switch (word >> 60) {
        case END:
            if (self != 1)
                turn_leave(self, 1);
            return;
        case THREAD_END:
            next_word++;
            leave(self);
            return;
        }
        next_word++;
        switch (word >> 60) {
        case MADE:
            make(place_of(word), size_of(word), false);
            break;
        case ZEROED:
            make(place_of(word), size_of(word), true);
            break;
        case FREED:
            release(place_of(word));
            break;
        case RESIZED:
            resize(place_of(word), size_of(word));
            break;
        default:
            other_word(self, word);
        }
    }
}

/* ---- beginning and end --------------------------------------------------------------------------------- */

static void open_program(const char *path) {
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0 || (uint64_t)about.st_size < sizeof *program)
        fail("the program cannot be opened");
    program = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (program == MAP_FAILED || program->magic != PROGRAM_MAGIC)
        fail("not a program for the replayer");
    uint64_t words = ((uint64_t)about.st_size - sizeof *program) / sizeof(uint64_t);
    if (words != program->words || words == 0 || program->word[words - 1] >> 60 != END)
        fail("the program is damaged");
    next_word = program->word;
}

static void open_result(const char *path) {
    size_t bytes = sizeof *result + program->looks * sizeof *result->look;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)bytes) != 0)
        fail("the result cannot be written");
    result = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (result == MAP_FAILED)
        fail("the result cannot be mapped");
    result->magic = RESULT_MAGIC;
    result->looks = program->looks;
}

static void make_table(void) {
    size_t bytes = (program->places + 1) * sizeof *places;
    places = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (places == MAP_FAILED)
        fail("no memory for the table of blocks");
}

int main(int count, char **arguments) {
    if (count != 3 + REPLAYER_CLASSES)
        fail("usage: imas-replayer PROGRAM RESULT SHARE SHARE SHARE SHARE");
    for (int i = 0; i < REPLAYER_CLASSES; i++) {
        unsigned long share = strtoul(arguments[3 + i], NULL, 10);
        touch_shares[i] = share < REPLAYER_WHOLE ? (uint32_t)share : REPLAYER_WHOLE;
    }
    open_program(arguments[1]);
    open_result(arguments[2]);
    make_table();
    turn_begin((uint32_t)program->threads);
    uint64_t begun = clock_cpu_ns(), faults = look_faults();
    play(1);
    result->cpu_ns = clock_cpu_ns() - begun - looking_ns;
    result->faults = look_faults() - faults;
    result->is_whole = 1;
    return 0;
}
