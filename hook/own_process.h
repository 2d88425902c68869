// SPDX-License-Identifier: Apache-2.0
/* own_process.h - what the pacer asks /proc about this process. Each is one question and keeps nothing open. */
#ifndef IMAS_HOOK_OWN_PROCESS_H
#define IMAS_HOOK_OWN_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Threads that the kernel counts, also a main thread that has ended; 0 if /proc does not say. Opens no file. */
unsigned own_process_threads(void);

/* Resident pages of no file and no shared memory, or BUDGET_UNKNOWN. Opens a file: only where no other thread shares the table of files. */
uint64_t own_process_resident(void);

struct own_process_bounds {
    bool filtered;        /* a filter of system calls is in force */
    bool nothing_to_lose; /* no capability, and no exec can gain one */
};

/* What the process was started under; the worst if /proc does not say. Opens a file, likewise. */
struct own_process_bounds own_process_bounds(void);

#endif
