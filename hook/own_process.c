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

/* Whether what stands behind `name` begins with `digit` and, if it is 0, has no other digit. */
static bool is_number(const char *text, const char *name, char digit) {
    for (; *text != '\0'; text++) {
        const char *value = text_after(text, name);
        if (value == NULL)
            continue;
        while (digit == '0' && *value == '0' && value[1] != '\n')
            value++;
        return *value == digit;
    }
    return false;
}

struct own_process_bounds own_process_bounds(void) {
    char text[8192];
    if (sys_read_text("/proc/self/status", text, sizeof text) <= 0)
        return (struct own_process_bounds){.filtered = true};
    return (struct own_process_bounds){
        /* a kernel without filters has no such line */
        .filtered = text_contains(text, "\nSeccomp:") && !is_number(text, "\nSeccomp:\t", '0'),
        .nothing_to_lose = is_number(text, "\nCapInh:\t", '0') && is_number(text, "\nCapPrm:\t", '0') &&
                           is_number(text, "\nNoNewPrivs:\t", '1'),
    };
}
