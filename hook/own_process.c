// SPDX-License-Identifier: Apache-2.0
#include "own_process.h"

#include <sys/stat.h>

#include "budget.h"
#include "sys.h"
#include "text.h"

#define LINKS_OF_A_FOLDER 2

unsigned own_process_threads(void) {
    struct stat threads;
    if (sys4(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &threads, 0) != 0 || threads.st_nlink <= LINKS_OF_A_FOLDER)
        return 0;
    return (unsigned)threads.st_nlink - LINKS_OF_A_FOLDER;
}

static uint64_t resident_in(const char *statm) {
    char text[128];
    if (sys_read_text(statm, text, sizeof text) <= 0)
        return BUDGET_UNKNOWN;
    const char *at = text;
    text_number(&at); /* the size */
    if (*at++ != ' ')
        return BUDGET_UNKNOWN;
    uint64_t resident = text_number(&at);
    if (*at++ != ' ')
        return BUDGET_UNKNOWN;
    uint64_t shared = text_number(&at);
    if (resident == 0)
        return BUDGET_UNKNOWN; /* the first thread has ended */
    return resident > shared ? resident - shared : 0;
}

uint64_t own_process_resident(void) {
    uint64_t resident = resident_in("/proc/self/statm");
    return resident == BUDGET_UNKNOWN ? resident_in("/proc/thread-self/statm") : resident;
}

bool own_process_is_filtered(void) {
    char text[4096];
    if (sys_read_text("/proc/self/status", text, sizeof text) <= 0)
        return true;
    for (const char *at = text; *at != '\0'; at++) {
        const char *value = text_after(at, "\nSeccomp:\t");
        if (value != NULL)
            return *value != '0';
    }
    return false; /* a kernel without filters */
}
