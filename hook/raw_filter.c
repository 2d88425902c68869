// SPDX-License-Identifier: Apache-2.0
#include "raw_filter.h"

#include <sys/auxv.h>

#include "libc.h"
#include "loaded.h"
#include "sys.h"
#include "text.h"

#define SET_SECCOMP 22 /* of prctl */
#define NEAR 64        /* bytes of code in which a system call is prepared */
#define CHUNK ((size_t)64 << 10)
#define MOST_CODE ((size_t)64 << 20) /* some 10 ms; what has more is not looked through */

/* ---- instructions -------------------------------------------------------------------------------------- */

/* All of them look NEAR bytes back and forth at most. */
#if defined(__x86_64__)
#define STEP 1

static uint32_t word_at(const unsigned char *at) {
    uint32_t word;
    __builtin_memcpy(&word, at, sizeof word);
    return word;
}

/* Whether `at` has this value in an instruction that loads it into a register, by the byte before (0xb8 + register), or
 * into 64 bits of it (48 c7, 0xc0 + register). */
static bool loads(const unsigned char *at, uint32_t value, unsigned char number) {
    return word_at(at) == value && ((at[-1] == 0xb8 + number && at[-2] != 0x41) || (at[-1] == 0xc0 + number && at[-2] == 0xc7));
}

enum { AX = 0, BX = 3, SI = 6, DI = 7 };

#define BLOCK 16
typedef unsigned char bytes_of_block __attribute__((vector_size(BLOCK), aligned(1)));
typedef uint64_t words_of_block __attribute__((vector_size(BLOCK), aligned(1)));

/* Whether nothing in it begins with two bytes of what is looked for. It settles nearly all, at gigabytes a second. */
static bool is_other_block(const unsigned char *at) {
    const bytes_of_block first = *(const bytes_of_block *)at, second = *(const bytes_of_block *)(at + 1);
    const words_of_block hits =
        (words_of_block)((first == 0x0f) & (second == 0x05)) |
        (words_of_block)((first == (SYS_seccomp & 0xff)) & (second == SYS_seccomp >> 8)) |
        (words_of_block)((first == SYS_prctl) & (second == 0));
    return (hits[0] | hits[1]) == 0;
}

static bool loads_number(const unsigned char *at, uint32_t value) {
    return loads(at, value, AX);
}

/* The first argument of a function of C, of Go, and of Go before 1.17. */
static bool loads_first(const unsigned char *at, uint32_t value) {
    const bool on_stack = at[-1] == 0x24 && at[-2] == 0x04 && at[-3] == 0xc7;
    return loads(at, value, DI) || loads(at, value, AX) || (on_stack && word_at(at) == value);
}

static bool loads_argument(const unsigned char *at, uint32_t value) {
    const bool on_stack = at[-1] == 0x08 && at[-2] == 0x24 && at[-3] == 0x44;
    return loads(at, value, DI) || loads(at, value, SI) || loads(at, value, BX) || (on_stack && word_at(at) == value);
}

static bool enters_kernel(const unsigned char *at) {
    return at[0] == 0x0f && at[1] == 0x05;
}

/* Followed by a return, or by the question whether the answer is an error. */
static bool is_function(const unsigned char *at) {
    return enters_kernel(at) && (at[2] == 0xc3 || (at[2] == 0x48 && at[3] == 0x3d && word_at(at + 4) == 0xfffff001));
}
#elif defined(__aarch64__)
#define STEP 4

static bool loads(const unsigned char *at, uint32_t value, uint32_t number) {
    return (*(const uint32_t *)at & ~(UINT32_C(1) << 31)) == (UINT32_C(0x52800000) | value << 5 | number);
}

#define BLOCK 16

static bool is_other_block(const unsigned char *at) {
    (void)at;
    return false; /* the instructions are four times fewer */
}

static bool loads_number(const unsigned char *at, uint32_t value) {
    return loads(at, value, 8);
}

static bool loads_first(const unsigned char *at, uint32_t value) {
    return loads(at, value, 0);
}

static bool loads_argument(const unsigned char *at, uint32_t value) {
    return loads(at, value, 0) || loads(at, value, 1);
}

static bool enters_kernel(const unsigned char *at) {
    return *(const uint32_t *)at == 0xd4000001;
}

/* Followed by a return, or by the question whether the answer is an error. */
static bool is_function(const unsigned char *at) {
    const uint32_t after = *(const uint32_t *)(at + STEP);
    return enters_kernel(at) && (after == 0xd65f03c0 || after == 0xb13ffc1f);
}
#endif

/* ---- what they do -------------------------------------------------------------------------------------- */

struct found {
    bool filter;   /* the system call that sets a filter */
    bool number;   /* its number is handed to a function ... */
    bool function; /* ... that makes any system call */
};

static bool is_near(const unsigned char *at, bool (*is)(const unsigned char *at, uint32_t value), uint32_t value) {
    for (const unsigned char *there = at - NEAR / 2; there <= at + NEAR / 2; there += STEP) {
        if (is(there, value))
            return true;
    }
    return false;
}

static bool is_followed_by_call(const unsigned char *at) {
    for (const unsigned char *there = at; there <= at + NEAR / 2; there += STEP) {
        if (enters_kernel(there))
            return true;
    }
    return false;
}

static void look_at(const unsigned char *at, struct found *found) {
    if (is_function(at))
        found->function = true;
    const bool filters = loads_number(at, SYS_seccomp) || loads_first(at, SYS_seccomp);
    const bool may_filter = loads_number(at, SYS_prctl) || loads_first(at, SYS_prctl);
    if (!filters && !(may_filter && is_near(at, loads_argument, SET_SECCOMP)))
        return;
    found->number |= loads_first(at, SYS_seccomp) || loads_first(at, SYS_prctl);
    found->filter |= (loads_number(at, SYS_seccomp) || loads_number(at, SYS_prctl)) && is_followed_by_call(at);
}

static void look_at_block(const unsigned char *at, struct found *found) {
    if (is_other_block(at))
        return;
    for (const unsigned char *end = at + BLOCK; at != end; at += STEP)
        look_at(at, found);
}

/* ---- the program's code -------------------------------------------------------------------------------- */

/* `room` has NEAR bytes before and behind a chunk. */
static void look_through(int fd, uint64_t offset, uint64_t bytes, unsigned char *room, struct found *found) {
    for (uint64_t done = 0; done < bytes && !found->filter; done += CHUNK) {
        long got = sys4(SYS_pread64, fd, room + NEAR, CHUNK + NEAR, offset + done);
        const uint64_t left = bytes - done < CHUNK ? bytes - done : CHUNK;
        for (uint64_t block = 0; block < left && (long)block < got; block += BLOCK)
            look_at_block(room + NEAR + block, found);
        __builtin_memcpy(room, room + CHUNK, NEAR);
    }
}

struct program {
    int fd;
    unsigned char *room;
    struct found found;
};

/* The first object is the program. */
static int look_through_program(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    struct program *program = argument;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X) != 0 && segment->p_filesz <= MOST_CODE)
            look_through(program->fd, segment->p_offset, segment->p_filesz, program->room, &program->found);
    }
    return 1;
}

/* libc's own function is wrapped: what goes through it is seen. */
static bool calls_through_libc(void) {
    const struct link_map *program = &_r_debug != NULL ? _r_debug.r_map : NULL;
    if (program == NULL)
        return false;
    struct loaded tables = loaded_read(program);
    for (uint32_t i = 0; i < loaded_references(&tables); i++) {
        if (text_equal(tables.strings + tables.symbols[i].st_name, "syscall"))
            return true;
    }
    return false;
}

bool raw_filter_is_likely(void) {
    if (libc_iterate == NULL || libc_getauxval == NULL || libc_getauxval(AT_BASE) == 0)
        return false; /* started by way of ld.so, /proc/self/exe is that */
    struct program program = {.fd = sys_open("/proc/self/exe", O_RDONLY | O_CLOEXEC, 0)};
    program.room = program.fd >= 0 ? sys_anonymous(CHUNK + 3 * NEAR) : NULL;
    if (program.room != NULL) {
        libc_iterate(look_through_program, &program);
        sys2(SYS_munmap, program.room, CHUNK + 3 * NEAR);
    }
    if (program.fd >= 0)
        sys_close(program.fd);
    return program.found.filter || (program.found.number && program.found.function && !calls_through_libc());
}
