// SPDX-License-Identifier: Apache-2.0
#include "resident.h"

#include "../hook/sys.h"
#include "../hook/text.h"
#include "descriptor.h"

/* The time between two looks starts here. It doubles after every LOOKS_PER_GAP looks, up to the maximum. */
#define FIRST_GAP_NS UINT64_C(1000000)
#define LAST_GAP_NS UINT64_C(1000000000)
#define LOOKS_PER_GAP 256

static uint64_t next_look_ns, gap_ns = FIRST_GAP_NS;
static unsigned looks;

/* The number after that many spaces. */
static uint64_t field(const char *text, unsigned spaces) {
    for (; *text != '\0' && spaces > 0; text++)
        spaces -= *text == ' ';
    return text_number(&text);
}

/* Resident minus shared pages of a statm; false where it has none. */
static bool anonymous_pages_in(const char *path, uint64_t *pages) {
    char text[128];
    struct descriptor statm;
    if (!descriptor_open(&statm, path, O_RDONLY))
        return false;
    long got = descriptor_is_same(&statm) ? sys3(SYS_read, statm.number, text, sizeof text - 1) : 0;
    descriptor_close(&statm);
    if (got <= 0)
        return false;
    text[got] = '\0';
    uint64_t resident = field(text, 1), shared = field(text, 2);
    *pages = resident > shared ? resident - shared : 0;
    return resident > 0;
}

/* Once the first thread of the process has ended, only the files of another thread have the memory. */
static bool anonymous_pages(uint64_t *pages) {
    return anonymous_pages_in("/proc/self/statm", pages) || anonymous_pages_in("/proc/thread-self/statm", pages);
}

static void plan_next(uint64_t now_ns) {
    if (++looks >= LOOKS_PER_GAP && gap_ns < LAST_GAP_NS) {
        gap_ns *= 2;
        looks = 0;
    }
    next_look_ns = now_ns + gap_ns;
}

bool resident_look(struct resident_look *look, uint64_t now_ns, bool anyway) {
    if ((now_ns < next_look_ns && !anyway) || !anonymous_pages(&look->pages))
        return false;
    look->cpu_ns = sys_clock_ns(SYS_CLOCK_PROCESS_CPU);
    plan_next(now_ns);
    return true;
}

void resident_forget(void) {
    next_look_ns = 0;
    gap_ns = FIRST_GAP_NS;
    looks = 0;
}
