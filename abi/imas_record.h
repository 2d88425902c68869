// SPDX-License-Identifier: Apache-2.0
/*
 * imas_record.h - what libimas-record.so and `imas-lab record` share: the control file of a recording, and the raw file
 * that each recorded process writes.
 *
 * lab/imas-replay reads both. All integers are in the machine's byte order: raw files have addresses of the program
 * and never leave the machine; `imas-lab record` makes a trace of them (docs/trace-format.md) and removes them.
 */
#ifndef IMAS_RECORD_H
#define IMAS_RECORD_H

#include <stdint.h>

#define IMAS_RECORD_CONTROL_MAGIC UINT64_C(0x314C544352414D49) /* "IMARCTL1" */
#define IMAS_RECORD_RAW_MAGIC UINT64_C(0x3157415252414D49)     /* "IMARRAW1" */
#define IMAS_RECORD_VERSION 2u
#define IMAS_RECORD_CONTROL_BYTES 4096u

/* A raw file: the header, the buffer, then the buffers that were full, in the order in which they were filled. */
#define IMAS_RECORD_HEADER_BYTES 4096u
#define IMAS_RECORD_BUFFER_BYTES 65536u

/*
 * Made by `imas-lab record`, at the path in IMAS_PAGE; raw files lie beside it.
 */
struct imas_record_control {
    uint64_t magic;
    uint32_t version;
    uint32_t next_number;   /* of the next raw file; atomic */
    uint64_t limit_bytes;   /* of all raw files together */
    uint64_t used_bytes;    /* atomic */
    uint64_t end_ns;        /* CLOCK_MONOTONIC_RAW after which nothing is recorded; 0: no end; atomic */
    uint32_t refused_files; /* processes that made no raw file: the limit was reached, the disk full; atomic */
    uint32_t reserved;
    uint64_t window_ns;     /* where end_ns is 0, the first process sets it to this time from its start; 0: no end */
};

/* Why a process stopped recording before its end. */
enum imas_record_stop {
    IMAS_RECORD_RUNS = 0,
    IMAS_RECORD_LIMIT = 1,   /* limit_bytes */
    IMAS_RECORD_TIME = 2,    /* end_ns */
    IMAS_RECORD_FILE = 3,    /* the raw file could not be written: disk full, or no longer there */
    IMAS_RECORD_SANDBOX = 4, /* the process put itself under seccomp */
    IMAS_RECORD_UNFIT = 5,   /* it has a malloc of its own, or a sanitizer's */
};

struct imas_record_header {
    uint64_t magic;
    uint32_t version;
    uint32_t number;
    uint32_t parent; /* number of the raw file of the process that forked this one; its own number if none did */
    uint32_t pid;
    uint64_t made_ns;       /* CLOCK_MONOTONIC_RAW */
    uint64_t turns;         /* full buffers after the first one */
    uint32_t stop;          /* enum imas_record_stop */
    uint32_t threads;       /* that made a call; atomic */
    uint64_t lost;          /* calls that were not recorded: from a signal handler inside of a call; atomic */
    uint32_t ended;         /* 1: the process came to its exit handlers */
    uint32_t page_bytes;    /* of the machine, in which RESIDENT counts */
};

/*
 * A word of the buffer: bit 63 is the phase, 1 in the first turn through the buffer and then alternating, so that the
 * first word of the other phase is the end of what was written, whatever ended the process. Bits 59 to 62 are the
 * kind. Blocks are addresses / 16 in bits 0 to 43, sizes below 32767 in bits 44 to 58; 32767: the size is in the
 * LARGE word before.
 */
#define IMAS_WORD_PHASE (UINT64_C(1) << 63)
#define IMAS_WORD_KIND_SHIFT 59
#define IMAS_WORD_SIZE_SHIFT 44
#define IMAS_WORD_SIZE_MOST UINT64_C(0x7FFF)
#define IMAS_WORD_BLOCK_MASK ((UINT64_C(1) << 44) - 1)
#define IMAS_WORD_VALUE_MASK ((UINT64_C(1) << 59) - 1)

enum imas_word {
    IMAS_WORD_NONE = 0,       /* fills the rest of a buffer */
    IMAS_WORD_MALLOC = 1,     /* block 0: refused */
    IMAS_WORD_CALLOC = 2,     /* the same */
    IMAS_WORD_FREE = 3,       /* written before the block is freed */
    IMAS_WORD_REALLOC_OF = 4, /* written before the call: the old block. None before realloc(NULL) */
    IMAS_WORD_REALLOC = 5,    /* written after the call: the new block; 0: refused if the size is not 0 */
    IMAS_WORD_LARGE = 6,      /* value: the size of the next word */
    IMAS_WORD_ALIGNED = 7,    /* value: alignment, and the function in bits 56 to 58; the next word is a MALLOC */
    IMAS_WORD_THREAD = 8,     /* value: number of the thread that makes the next calls, from 1 */
    IMAS_WORD_THREAD_END = 9, /* the present thread ends */
    IMAS_WORD_TIME = 10,      /* value: ns since made_ns */
    IMAS_WORD_RESIDENT = 11,  /* value: resident anonymous pages */
    IMAS_WORD_CPU = 12,       /* value: CPU time of the process in ns */
};

#define IMAS_ALIGNED_SHIFT 56
enum imas_aligned {
    IMAS_ALIGNED_MEMALIGN = 0,
    IMAS_ALIGNED_POSIX_MEMALIGN = 1,
    IMAS_ALIGNED_ALIGNED_ALLOC = 2,
    IMAS_ALIGNED_VALLOC = 3,
    IMAS_ALIGNED_PVALLOC = 4,
};

#endif
