// SPDX-License-Identifier: Apache-2.0
#include "ineligible.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include "../abi/imas_abi.h"
#include "environment.h"
#include "sys.h"
#include "text.h"

#define STUB "libimas-preload.so"
#define LONGEST_PRELOAD 2048

/* Whether each entry of an LD_PRELOAD is the stub itself. */
static bool holds_stub_only(const char *list) {
    if (text_length(list) > LONGEST_PRELOAD)
        return false;
    while (*list != '\0') {
        while (*list == ':' || *list == ' ')
            list++;
        const char *base = list;
        for (; *list != '\0' && *list != ':' && *list != ' '; list++) {
            if (*list == '/')
                base = list + 1;
        }
        if (base == list && *list == '\0')
            return true;
        const char *rest = text_after(base, STUB);
        if (rest != list)
            return false;
    }
    return true;
}

static bool starts_with_any(const char *entry, const char *list) {
    for (; *list != '\0'; list += text_length(list) + 1) {
        if (text_after(entry, list) != NULL)
            return true;
    }
    return false;
}

bool ineligible_by_environment(char **environment) {
    int preloads = 0;
    for (; *environment != NULL; environment++) {
        const char *entry = *environment;
        if (entry[0] != 'L' && entry[0] != 'I')
            continue;
        const char *preload = text_after(entry, "LD_PRELOAD=");
        if (preload != NULL && (++preloads > 1 || !holds_stub_only(preload)))
            return true;
        if (starts_with_any(entry, IMAS_ENV_PAGE "=\0" IMAS_ENV_FOLLOW "=\0" IMAS_ENV_TREE "=\0" IMAS_ENV_UNSET "=\0" IMAS_ENV_WAS "\0"
                                   "LD_AUDIT=\0LD_DEBUG=\0LD_SHOW_AUXV=\0LD_PROFILE=\0"))
            return true;
    }
    return false;
}

/* The number after `name` in a /proc/PID/status, or -1. */
static long status_number(const char *status, const char *name) {
    for (; *status != '\0'; status++) {
        const char *value = text_after(status, name);
        if (value != NULL) {
            while (*value == '\t' || *value == ' ')
                value++;
            return *value >= '0' && *value <= '9' ? (long)text_number(&value) : -1;
        }
    }
    return -1;
}

static bool watched_or_filtered(void) {
    char status[4096];
    if (sys_read_text("/proc/self/status", status, sizeof status) < 0)
        return true;
    return status_number(status, "\nTracerPid:") != 0 || status_number(status, "\nSeccomp:") != 0;
}

/* Room for what we write into files: under a smaller limit a write would raise SIGXFSZ. */
#define LEAST_FILE_BYTES ((uint64_t)1 << 20)

static bool limited(int what, uint64_t least) {
    struct {
        uint64_t now, most;
    } limit;
    return sys4(SYS_prlimit64, 0, what, 0, &limit) != 0 || limit.now < least;
}

bool ineligible_by_state(bool may_be_first) {
    if (watched_or_filtered())
        return true;
    return (!may_be_first && sys0(SYS_getpid) == 1) || sys1(SYS_prctl, PR_GET_DUMPABLE) != 1 || limited(RLIMIT_AS, UINT64_MAX) ||
           limited(RLIMIT_DATA, UINT64_MAX) || limited(RLIMIT_FSIZE, LEAST_FILE_BYTES);
}
