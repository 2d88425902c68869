// SPDX-License-Identifier: Apache-2.0
#include "proc.h"

#include "page_size.h"
#include "sys.h"
#include "text.h"
#include "thread.h"

/* ---- a file, line by line ------------------------------------------------------------------------------ */

static struct {
    int fd;
    unsigned at, filled;
    char buffer[4096];
} file;

#define LINE_BYTES 192 /* longer lines end in paths that are not needed */
static char line[LINE_BYTES];

static bool open_file(const char *path) {
    file.fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    file.at = file.filled = 0;
    return file.fd >= 0;
}

static bool refill(void) {
    long got = sys3(SYS_read, file.fd, file.buffer, sizeof file.buffer);
    file.at = 0;
    file.filled = got > 0 ? (unsigned)got : 0;
    return got > 0;
}

/* Appends what the buffer holds of the current line; true when that was its end. */
static bool take_rest_of_line(unsigned *length) {
    const char *from = file.buffer + file.at, *end = file.buffer + file.filled;
    char *to = line + *length, *last = line + sizeof line - 1;
    while (from < end && *from != '\n') {
        if (to < last)
            *to++ = *from;
        from++;
    }
    *length = (unsigned)(to - line);
    file.at = (unsigned)(from - file.buffer) + (from < end);
    return from < end;
}

/* The next line, cut to what fits; false at the end. */
static bool next_line(void) {
    unsigned length = 0;
    bool whole = false;
    while (!whole && (file.at < file.filled || refill()))
        whole = take_rest_of_line(&length);
    line[length] = '\0';
    return whole || length > 0;
}

static const char *skip_blanks(const char *at) {
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

/* ---- "Name:   number" ---------------------------------------------------------------------------------- */

struct field {
    const char *name;
    uint64_t value;
    bool seen;
};

static void match_line(struct field *fields, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        const char *rest = text_after(line, fields[i].name);
        if (rest == NULL)
            continue;
        rest = skip_blanks(rest);
        fields[i].value = text_number(&rest);
        fields[i].seen = true;
    }
}

static void read_fields(const char *path, struct field *fields, unsigned count) {
    if (!open_file(path))
        return;
    while (next_line())
        match_line(fields, count);
    sys_close(file.fd);
}

/* The files that describe the memory of this process are empty or missing under /proc/self once its first thread has
 * ended. /proc/thread-self has them always. It comes second: a profile that confines the program may name the first. */
static void read_own_fields(const char *first, const char *second, struct field *fields, unsigned count) {
    read_fields(first, fields, count);
    for (unsigned i = 0; i < count; i++)
        if (fields[i].seen)
            return;
    read_fields(second, fields, count);
}

/* ---- ourselves ----------------------------------------------------------------------------------------- */

/* Set by the linker: our zero-initialised tables, which the kernel shows as one more anonymous mapping. */
extern char __bss_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));

static uintptr_t tables_start(void) {
    return ((uintptr_t)__bss_start + page_bytes() - 1) & -page_bytes();
}

static uintptr_t tables_end(void) {
    return ((uintptr_t)_end + page_bytes() - 1) & -page_bytes();
}

static uint64_t tables_resident(void) {
    static unsigned char resident[1024];
    uintptr_t start = tables_start();
    uintptr_t pages = (tables_end() - start) / page_bytes();
    if (pages > sizeof resident || sys3(SYS_mincore, start, pages * page_bytes(), resident) < 0)
        return 0;
    uint64_t bytes = 0;
    for (uintptr_t i = 0; i < pages; i++)
        bytes += (resident[i] & 1) * page_bytes();
    return bytes;
}

static uint64_t less(uint64_t from, uint64_t part) {
    return from > part ? from - part : 0;
}

/* ---- /proc/self/maps ----------------------------------------------------------------------------------- */

struct mapping {
    uintptr_t start, end;
    char permissions[5];
    const char *name;
};

static uintptr_t read_hex(const char **at) {
    uintptr_t value = 0;
    for (;; (*at)++) {
        char c = **at;
        if (c >= '0' && c <= '9')
            value = value << 4 | (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uintptr_t)(c - 'a' + 10);
        else
            return value;
    }
}

static const char *skip_word(const char *at) {
    while (*at != ' ' && *at != '\0')
        at++;
    return skip_blanks(at);
}

/* start-end permissions offset device inode name */
static struct mapping parse_mapping(void) {
    const char *at = line;
    struct mapping mapping;
    mapping.start = read_hex(&at);
    at += *at == '-';
    mapping.end = read_hex(&at);
    at = skip_blanks(at);
    text_copy(mapping.permissions, sizeof mapping.permissions, at);
    mapping.name = skip_word(skip_word(skip_word(skip_word(at))));
    return mapping;
}

static bool is_heap(const struct mapping *mapping) {
    return text_equal(mapping->permissions, "rw-p") &&
           (*mapping->name == '\0' || text_equal(mapping->name, "[heap]") || text_after(mapping->name, "[anon:") != NULL);
}

static uint64_t overlap(const struct mapping *mapping, uintptr_t start, uintptr_t end) {
    uintptr_t low = mapping->start > start ? mapping->start : start;
    uintptr_t high = mapping->end < end ? mapping->end : end;
    return high > low ? high - low : 0;
}

#define LARGEST_GUARD ((uintptr_t)1 << 20)
static uint64_t default_stack_bytes;

void proc_note_stack_size(uint64_t bytes) {
    default_stack_bytes = bytes;
}

/* Bytes of `mapping` that are a thread's stack: a guard lies right below, and above it either the control
 * block of a thread that has called us, or just the size that libc gives to stacks. */
static uint64_t stack_bytes(const struct mapping *mapping, const struct mapping *below) {
    uintptr_t guard = below->end - below->start;
    uintptr_t top;
    if (below->end != mapping->start || guard > LARGEST_GUARD || !text_equal(below->permissions, "---p"))
        return 0;
    if (thread_stack_end(mapping->start, mapping->end, &top))
        return top - mapping->start;
    return mapping->end - below->start == default_stack_bytes ? mapping->end - mapping->start : 0;
}

static uint64_t heap_bytes_in(const char *maps) {
    uint64_t bytes = 0;
    struct mapping below = {.permissions = ""};
    if (!open_file(maps))
        return 0;
    while (next_line()) {
        struct mapping mapping = parse_mapping();
        if (is_heap(&mapping)) {
            bytes += mapping.end - mapping.start;
            bytes = less(bytes, overlap(&mapping, tables_start(), tables_end()) + stack_bytes(&mapping, &below));
        }
        below = mapping;
    }
    sys_close(file.fd);
    return bytes;
}

uint64_t proc_heap_bytes(void) {
    uint64_t bytes = heap_bytes_in("/proc/self/maps");
    return bytes > 0 ? bytes : heap_bytes_in("/proc/thread-self/maps");
}

uint64_t proc_resident_bytes(void) {
    struct field fields[] = {{.name = "Pss_Anon:"}, {.name = "LazyFree:"}, {.name = "SwapPss:"}, {.name = "Anonymous:"}};
    read_own_fields("/proc/self/smaps_rollup", "/proc/thread-self/smaps_rollup", fields, 4);
    uint64_t anonymous = fields[0].seen ? fields[0].value : fields[3].value; /* Pss_Anon since Linux 5.3 */
    return less((less(anonymous, fields[1].value) + fields[2].value) * 1024, tables_resident());
}

uint64_t proc_peak_resident_bytes(void) {
    struct field peak = {.name = "VmHWM:"};
    read_own_fields("/proc/self/status", "/proc/thread-self/status", &peak, 1);
    return peak.value * 1024;
}

uint64_t proc_seccomp(void) {
    struct field seccomp = {.name = "Seccomp:"};
    read_fields("/proc/self/status", &seccomp, 1);
    return seccomp.value;
}

/* pid (name) state ppid ...: the name may hold anything, so count from the last parenthesis. */
uint64_t proc_start_ticks(void) {
    if (!open_file("/proc/self/stat"))
        return 0;
    bool got = next_line();
    sys_close(file.fd);
    if (!got)
        return 0;
    const char *at = line;
    for (const char *c = line; *c != '\0'; c++)
        at = *c == ')' ? c + 1 : at;
    at = skip_blanks(at);
    for (int field = 3; field < 22; field++)
        at = skip_word(at);
    return text_number(&at);
}
