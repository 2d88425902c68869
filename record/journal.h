// SPDX-License-Identifier: Apache-2.0
/*
 * journal.h - records the calls of this process, as words of abi/imas_record.h in a buffer that is a mapped
 * file.
 *
 * A call only writes a word of 8 bytes. Every STAMP_WORDS words, the time is written as well, and sometimes
 * the resident memory. A full buffer is appended to the file. The file is opened anew each time, because the
 * program may close or reuse any descriptor. While the process has one thread there is no lock. With several
 * threads, a lock is held for the few instructions that write a word, and never during a call of the
 * allocator.
 */
#ifndef IMAS_RECORD_JOURNAL_H
#define IMAS_RECORD_JOURNAL_H

#include "../abi/imas_record.h"
#include "../hook/sys.h"

/* In a page that the kernel clears in a child (MADV_WIPEONFORK). So even a child without fork handlers
 * finds no room at its first call, and stops writing. */
struct journal {
    uint64_t *next;  /* the next word is written here */
    uint64_t *stop;  /* from here on the slow path is taken; JOURNAL_SLACK words are left */
    uint64_t phase;  /* IMAS_WORD_PHASE or 0 */
    uint32_t thread; /* number of the thread that wrote last */
    uint32_t lock;
    uint64_t *buffer;
    uint32_t stamps; /* written so far */
};
#define JOURNAL_SLACK 64

struct journal_thread {
    uint32_t number; /* 0: the thread has written nothing yet */
    uint32_t busy;   /* set during a write: a signal handler that interrupts it writes nothing */
};

HIDDEN extern struct journal *journal;
HIDDEN extern __thread struct journal_thread journal_self;
/* Not 0 while the process has one thread (libc's __libc_single_threaded). */
HIDDEN extern const char *journal_single;

/* Orders for a signal handler of this thread and for its child, which no other processor runs: the compiler alone is held. */
#define journal_barrier() __asm__ volatile("" ::: "memory")

static inline uint64_t journal_word(enum imas_word kind, const void *block, uint64_t size) {
    return (uint64_t)kind << IMAS_WORD_KIND_SHIFT | size << IMAS_WORD_SIZE_SHIFT |
           ((uintptr_t)block >> 4 & IMAS_WORD_BLOCK_MASK);
}

/* The slow path: new threads, large sizes, several threads, no room. `aligned` is the value of an ALIGNED
 * word to be written first, or 0. */
void journal_write(enum imas_word kind, const void *block, uint64_t size, uint64_t aligned);

/* Writes a call. Its address is in `block`. */
static inline void journal_note(enum imas_word kind, const void *block, uint64_t size) {
    struct journal *to = journal;
    struct journal_thread *self = &journal_self;
    if (likely(*journal_single != 0 && self->number == to->thread && self->busy == 0 && size < IMAS_WORD_SIZE_MOST)) {
        self->busy = 1;
        journal_barrier();
        uint64_t *next = to->next;
        bool has_room = next < to->stop;
        if (likely(has_room)) {
            *next = journal_word(kind, block, size) | to->phase;
            to->next = next + 1;
        }
        journal_barrier();
        self->busy = 0;
        if (likely(has_room))
            return;
    }
    journal_write(kind, block, size, 0);
}

/* Starts writing into a file beside `control_path`, beginning with the words so far. Uses raw system calls
 * only. Returns false if nothing is recorded. */
bool journal_open(const char *control_path);

/* Stops recording. */
void journal_stop(enum imas_record_stop why);

/* In a child: starts a file of its own. */
void journal_in_child(void);

/* Records that the current thread ends. */
void journal_thread_end(void);

/* At exit: writes time and memory once more. */
void journal_at_exit(void);

/* Called once in every new thread but the first. The constructor sets it. */
HIDDEN extern void (*journal_new_thread)(void);

#endif
