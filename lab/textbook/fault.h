// SPDX-License-Identifier: Apache-2.0
/* What ends a program whose heap cannot be trusted: one fixed line on stderr, then abort. */
#ifndef IMAS_FIT_FAULT_H
#define IMAS_FIT_FAULT_H

enum fit_fault {
    FIT_DOUBLE_FREE,   /* the block is already free */
    FIT_FOREIGN,       /* the pointer was never handed out by this heap */
    FIT_OVERWRITTEN,   /* a header, or a link of the free list, contradicts its neighbours */
    FIT_INVARIANT,     /* debug build only: block.h's invariant does not hold */
};

/* Writes the fault's line with write(2) and aborts. Allocates nothing and takes no lock. */
_Noreturn void fit_fault(enum fit_fault fault);

#endif
