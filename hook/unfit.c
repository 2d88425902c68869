// SPDX-License-Identifier: Apache-2.0
#include "unfit.h"

#include <sys/auxv.h>
#include <sys/stat.h>

#include "../abi/imas_index.h"
#include "clean_environment.h"
#include "environment.h"
#include "libc.h"
#include "loaded.h"
#include "object.h"
#include "page.h"
#include "preloaded.h"
#include "sys.h"
#include "text.h"
#include "wrapped.h"

bool unfit_sanitizer(void) {
    static const char *const runtimes[] = {
        "libasan.so",          "libtsan.so",          "libmsan.so",          "liblsan.so",           "libhwasan.so",
        "libclang_rt.asan",    "libclang_rt.tsan",    "libclang_rt.msan",    "libclang_rt.lsan",     "libclang_rt.hwasan",
    };
    return object_loaded(runtimes, sizeof runtimes / sizeof *runtimes);
}

bool unfit_split_family(const void *serving) {
    static const char *const family[] = {"malloc",         "free",          "calloc",   "realloc", "posix_memalign",
                                         "aligned_alloc",  "memalign",      "valloc",   "pvalloc", "malloc_usable_size"};
    for (size_t i = 0; i < sizeof family / sizeof *family; i++) {
        const void *reached = object_reached(family[i]);
        if (reached == NULL || reached == serving)
            continue;
        /* `serving` may be ourselves, where the search for the next definition does not look */
        if (serving == object_of((const void *)unfit_split_family) || object_of(object_next(family[i])) == serving)
            return true;
    }
    return false;
}

static bool same_file(const char *a, const char *b) {
    struct stat first, second;
    return sys4(SYS_newfstatat, AT_FDCWD, a, &first, 0) == 0 && sys4(SYS_newfstatat, AT_FDCWD, b, &second, 0) == 0 &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

#define SELF "/proc/self/exe"

/* The name the executable was started by, if that is still it (for a script it is the script), else the path
 * the kernel knows, else the link itself, which works for a deleted file too. */
static const char *own_path(char *buffer, size_t size) {
    const char *started_as = (const char *)libc_getauxval(AT_EXECFN);
    if (started_as != NULL && same_file(started_as, SELF))
        return started_as;
    long length = sys4(SYS_readlinkat, AT_FDCWD, SELF, buffer, size - 1);
    if (length <= 0)
        return SELF;
    buffer[length] = '\0';
    return same_file(buffer, SELF) ? buffer : SELF;
}

#define STRINGS_BYTES ((size_t)8 << 20) /* Linux allows 6 MiB of arguments and environment together */

/* A file of strings, each ended by '\0', as an array ended by NULL; NULL if it cannot be read. */
static char **read_strings(const char *path) {
    char *text = sys_anonymous(STRINGS_BYTES);
    char **strings = sys_anonymous(STRINGS_BYTES);
    int fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (text == NULL || strings == NULL || fd < 0)
        return NULL;
    size_t length = 0;
    for (long got = 1; got > 0 && length < STRINGS_BYTES - 1; length += (size_t)(got > 0 ? got : 0))
        got = sys3(SYS_read, fd, text + length, STRINGS_BYTES - 1 - length);
    sys_close(fd);
    size_t count = 0;
    for (size_t at = 0; at < length && count < STRINGS_BYTES / sizeof *strings - 1; at += text_length(text + at) + 1)
        strings[count++] = text + at;
    return strings;
}

/* The whole entry of `name`, or NULL. */
static char *entry_of(char **environment, const char *name) {
    const char *value = environment_value(environment, name);
    return value != NULL ? (char *)value - text_length(name) - 1 : NULL;
}

/* Without this mark libimas-preload.so would start the program under an allocator again; with it, it only
 * removes the mark. There is room in the array: the variables that came with the mark are gone. */
static void keep_mark(char **environment, char *mark) {
    if (mark == NULL)
        return;
    static char pad[] = IMAS_ENV_PAD "="; /* goes with the mark */
    while (*environment != NULL)
        environment++;
    environment[0] = mark;
    environment[1] = pad;
    environment[2] = NULL;
}

static bool preloads_us(const char *preloads) {
    return preloads != NULL && (text_contains(preloads, "libimas.so") || text_contains(preloads, "libimas-guard.so") ||
                                text_contains(preloads, "libimas-record.so"));
}

void unfit_start_clean(char **arguments, char **environment) {
    static char path[4096];
    char *mark = entry_of(environment, IMAS_ENV_PLACED);
    static char preload[CLEAN_ENVIRONMENT_BYTES];
    clean_environment(environment, preload);
    keep_mark(environment, mark);
    if (preloads_us(environment_value(environment, "LD_PRELOAD")))
        return; /* we would be started again and again */
    bool by_loader = libc_getauxval(AT_BASE) == 0; /* the executable is ld.so, our program its argument */
    if (by_loader)
        arguments = read_strings("/proc/self/cmdline"); /* ld.so hides its own when it is called as a program */
    if (arguments != NULL)
        sys3(SYS_execve, by_loader ? SELF : own_path(path, sizeof path), arguments, environment);
}

/* ---- before all constructors --------------------------------------------------------------------------- */

static void note_in_page(char **environment, enum imas_pass_reason reason) {
    const char *path = environment_value(environment, IMAS_ENV_PAGE);
    struct imas_page_header *header = path != NULL ? page_open(path, IMAS_PAGE_TRIAL) : NULL;
    if (path != NULL && header == NULL)
        header = page_open(path, IMAS_PAGE_FLIGHT);
    if (header == NULL)
        return;
    page_use(header);
    page_note_pass(reason);
    page_leave();
}

#ifdef IMAS_RECORDER
/* The recorder says so in its file first (record/enter.c). */
static bool has_malloc_of_the_user(void) {
    return false;
}
#else
/* The library that follows ours, if it may be the candidate's; else NULL. */
static const struct link_map *find_candidate(void) {
    for (const struct link_map *object = _r_debug.r_map; object != NULL; object = object->l_next) {
        struct loaded tables = loaded_read(object);
        if (loaded_is_candidate(object, &tables))
            return object;
    }
    return NULL;
}

static bool is_of_ours(const struct link_map *library) {
    struct loaded tables = loaded_read(library);
    return loaded_defines(&tables, "imas_allocator_name");
}

static void drop_strings(char **strings) {
    if (strings == NULL)
        return;
    if (strings[0] != NULL)
        sys2(SYS_munmap, strings[0], STRINGS_BYTES);
    sys2(SYS_munmap, strings, STRINGS_BYTES);
}

static bool started_alone(void) {
    char **environment = read_strings("/proc/self/environ");
    bool alone = environment != NULL && environment_flag(environment, IMAS_ENV_ALONE);
    drop_strings(environment);
    return alone;
}

/* A library that follows ours may be the user's: where the candidate is libc's malloc there is no other. */
static bool has_malloc_of_the_user(void) {
    if (&_r_debug == NULL || _r_debug.r_map == NULL)
        return false;
    const struct link_map *candidate = find_candidate();
    bool alone = candidate != NULL && !is_of_ours(candidate) && started_alone();
    return preloaded_defines_malloc(_r_debug.r_map, alone ? NULL : candidate);
}
#endif

static enum imas_pass_reason why_at_relocation(void) {
    if (unfit_sanitizer())
        return IMAS_PASS_SANITIZER;
    if (has_malloc_of_the_user())
        return IMAS_PASS_OWN_MALLOC;
    return wrapped_function() != NULL || wrapped_hidden() ? IMAS_PASS_WRAPPED : IMAS_PASS_NONE;
}

static void leave_alone(void) {
    enum imas_pass_reason reason = why_at_relocation();
    if (reason == IMAS_PASS_NONE || libc_getauxval == NULL || libc_getauxval(AT_SECURE) != 0)
        return;
    char **arguments = read_strings("/proc/self/cmdline");
    char **environment = read_strings("/proc/self/environ");
    if (arguments == NULL || environment == NULL || environment_flag(environment, IMAS_ENV_DISABLE))
        return;
    note_in_page(environment, reason);
    unfit_start_clean(arguments, environment);
}

static void nothing(void) {
}

/* The resolver of an indirect function runs while ld.so relocates us: later than libc, which is relocated
 * before, and earlier than any constructor and any malloc. That is the one moment to leave a sanitizer alone: its
 * runtime's constructor ends the program when another library stands before it. And a candidate that calls a function of
 * the program may hang in its first malloc. libc has no environment yet, so it is read from the kernel. */
static void (*resolve_nothing(void))(void) {
    leave_alone();
    return nothing;
}
static void at_relocation(void) __attribute__((ifunc("resolve_nothing")));
__attribute__((used)) static void (*const volatile run_at_relocation)(void) = at_relocation;
