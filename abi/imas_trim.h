// SPDX-License-Identifier: Apache-2.0
/*
 * imas_trim.h - the word by which a running process is asked to give its free pages back now.
 *
 * It is a variable of libimas-giveback.so in that process. Whoever asks finds it by its two first words, writes a new
 * number into `asked` through /proc/PID/mem, and reads the answer there. So the kernel says who may ask: the one who may
 * also write the process's memory, its owner and root (root alone where kernel.yama.ptrace_scope is 1 or more). The
 * mirror in Rust is crates/imas-abi.
 */
#ifndef IMAS_TRIM_H
#define IMAS_TRIM_H

#include <stdint.h>

#define IMAS_TRIM_MAGIC UINT64_C(0x4D4952545341A9C5)
#define IMAS_TRIM_MAGIC_2 UINT64_C(0xF2B19C6A03D87E54)
#define IMAS_TRIM_VERSION 1u
#define IMAS_TRIM_UNKNOWN UINT64_MAX

/* Who answers. */
enum imas_trim_answers {
    IMAS_TRIM_NOBODY = 0,  /* not any more, or the allocator cannot */
    IMAS_TRIM_PROCESS = 1, /* its thread for that; a process of one thread, when it is about to wait */
    IMAS_TRIM_THREAD = 2,  /* only the thread: it was started under a filter of system calls */
};

struct imas_trim_word {
    uint64_t magic, magic_2;
    uint32_t version;
    uint32_t answers; /* enum imas_trim_answers */
    uint64_t asked;   /* the number of a request; written from outside, all else by the process */
    uint64_t answered; /* the last request that was answered; written after the next two */
    uint64_t returned_pages; /* IMAS_TRIM_UNKNOWN: the process cannot look */
    uint64_t took_ns;
    uint64_t reserved;
};

_Static_assert(sizeof(struct imas_trim_word) == 64, "the word is one cache line");

#endif
