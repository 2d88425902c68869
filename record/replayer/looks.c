// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "replayer.h"

static uint64_t kib_of(const char *text, const char *name) {
    const char *at = strstr(text, name);
    uint64_t value = 0;
    if (at == NULL)
        return 0;
    for (at += strlen(name); *at == ' '; at++) {
    }
    for (; *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    return value;
}

struct look_memory look_memory(void) {
    static char text[4096];
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail("smaps_rollup cannot be opened");
    size_t length = 0;
    for (ssize_t got = 1; got > 0 && length < sizeof text - 1; length += (size_t)(got > 0 ? got : 0))
        got = read(fd, text + length, sizeof text - 1 - length);
    close(fd);
    text[length] = '\0';
    uint64_t held = kib_of(text, "\nAnonymous:") + kib_of(text, "\nSwap:"), lazy = kib_of(text, "\nLazyFree:");
    return (struct look_memory){
        .resident = (held > lazy ? held - lazy : 0) << 10,
        .huge = kib_of(text, "\nAnonHugePages:") << 10,
    };
}

uint64_t look_faults(void) {
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_minflt;
}
