// SPDX-License-Identifier: Apache-2.0
//
// What the programs of the conformance kit share. A program checks facts, each by its name, and prints
// one line for every fact: NAME, "pass" or "fail", and for a failure what was seen, parted by tabs.
// A fact that is checked many times fails once, with the first detail.
//
//   PROGRAM short|full
//
// Exit status 0 when all facts hold, 1 when one does not. A crash leaves the facts not yet printed
// out: the runner counts that as a failure.
#ifndef CONFORMANCE_FACT_H
#define CONFORMANCE_FACT_H

#include <stdbool.h>
#include <stddef.h>

// Prints the lines of all facts that were checked and returns the exit status. Call it last.
int facts_end(void);

// Reads "short" or "full", and turns huge pages off: memory is judged as the allocator asks for it. Every main
// begins with it. Allocates nothing.
void facts_begin(int argc, char **argv);

// True under "full".
bool facts_are_full(void);

// How many times as long a deadline is: IMAS_TEST_SLOWNESS, of an emulated machine.
unsigned facts_slowness(void);

// Notes that NAME was checked; a false `holds` makes it fail, with the detail in printf's form.
void fact(const char *name, bool holds, const char *detail, ...) __attribute__((format(printf, 3, 4)));

// Keeps the compiler from knowing that p is a fresh block or what a size is.
static inline void *opaque(void *p)
{
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

static inline size_t opaque_size(size_t size)
{
    __asm__ volatile("" : "+r"(size));
    return size;
}

static inline bool is_aligned(const void *p, size_t alignment)
{
    return ((size_t)p & (alignment - 1)) == 0;
}

#endif
