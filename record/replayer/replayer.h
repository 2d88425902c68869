// SPDX-License-Identifier: Apache-2.0
/*
 * replayer.h - imas-replayer: repeats the recorded calls of a process, in the same order and with as many
 * threads.
 *
 * It runs under a candidate as any program does. It allocates nothing itself. The calls come from a mapped
 * file (lab/imas-replay, trace/program.rs). Its table and its figures are in shared mappings, which are not
 * counted.
 */
#ifndef IMAS_REPLAYER_H
#define IMAS_REPLAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPLAYER_CLASSES 4
#define REPLAYER_WHOLE 1024u

/* ---- clock.c: the recorded time, for allocators that use the clock */

void clock_set(uint64_t ns_since_begin);
/* CPU time of this process, by the kernel's clock. */
uint64_t clock_cpu_ns(void);

/* ---- touch.c: writing blocks */

enum { TOUCH_NO_CLASS = -1 };
/* The class of a block: from 4 KiB, 64 KiB or 1 MiB on, or large and zeroed. TOUCH_NO_CLASS for small
 * ones. */
int touch_class(uint64_t size, bool is_zeroed);
/* Writes the bytes of a block from offset `from` on, up to the share of its class. */
void touch_block(unsigned char *block, uint64_t from, uint64_t size, int class);
/* For each class, the parts of REPLAYER_WHOLE that are written. */
extern uint32_t touch_shares[REPLAYER_CLASSES];

/* ---- looks.c: resident memory */

struct look_memory {
    uint64_t resident; /* Anonymous + Swap - LazyFree of smaps_rollup, the same figure as in `imas bench` */
    uint64_t huge;     /* of it in huge pages */
};
struct look_memory look_memory(void);
/* Page faults of this process so far, without those that read a file from the disk. */
uint64_t look_faults(void);

/* ---- turn.c: one thread at a time */

void turn_begin(uint32_t threads);
/* Gives the turn to thread `to`, and starts it if necessary. Waits until the turn is back at `self`. */
void turn_to(uint32_t self, uint32_t to);
/* The same for a thread `self` that ends. */
void turn_leave(uint32_t self, uint32_t to);

/* ---- main.c */

/* Makes the calls of thread `self` until the thread or the program ends. */
void play(uint32_t self);
void fail(const char *why);

#endif
