// SPDX-License-Identifier: Apache-2.0
//
// Put before the glue with -include where an allocator is compiled for musl (lib/musl.sh): what is different there. family.h
// needs these two structures of glibc, which musl does not declare. Programs of musl call neither function that answers with
// them.
#ifndef IMAS_MUSL_TYPES_H
#define IMAS_MUSL_TYPES_H

#include <stddef.h>

struct mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

struct mallinfo2 {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

#ifdef __aarch64__
// libgcc asks by glibc's name whether the processor has atomic instructions: after the link-time optimiser, which must keep it.
extern unsigned long getauxval(unsigned long type);
__attribute__((used, visibility("hidden"))) unsigned long __getauxval(unsigned long type)
{
    return getauxval(type);
}
#endif

// realloc(p, 0) of musl answers with a block, as malloc(0) does: its programs may take NULL for a refusal, and free p again.
#define FAMILY_KEEPS_EMPTY 1

// musl runs the fork handlers that are registered first last before a fork and first after it. An allocator registers in a
// constructor, before the program: what fork_order.h does for glibc is not needed.
#define IMAS_FAMILY_FORK_H

#endif
