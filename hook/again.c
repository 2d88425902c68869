// SPDX-License-Identifier: Apache-2.0
#include "again.h"

#include <sys/stat.h>

#include "../abi/imas_abi.h"
#include "../abi/imas_index.h"
#include "environment.h"
#include "fitting.h"
#include "sys.h"
#include "text.h"

#define PRELOAD "LD_PRELOAD"

/* ---- what the launcher set ----------------------------------------------------------------------------- */

/* Entries one after the other, each ended by '\0': those that the launcher set, and its IMAS_WAS_ entries. A copy,
 * because programs that show a title write over the environment that they were started with. */
static char kept[8192];
static size_t kept_bytes, kept_count;
static const char *kept_preload; /* of them: our part of LD_PRELOAD */
static char kept_page[1024];
static bool has_runtime;
static long process;

static bool keep(const char *entry, size_t length) {
    if (sizeof kept - kept_bytes < length + 1)
        return false;
    for (size_t i = 0; i < length; i++)
        kept[kept_bytes++] = entry[i];
    kept[kept_bytes++] = '\0';
    kept_count++;
    return true;
}

/* What LD_PRELOAD was before follows our part and a colon. */
static bool keep_preload(const char *entry, const char *was) {
    size_t length = text_length(entry), of_was = was != NULL ? text_length(was) : 0;
    kept_preload = kept + kept_bytes;
    return keep(entry, of_was != 0 && of_was < length ? length - of_was - 1 : length);
}

static bool keep_all(char **environment) {
    const char *was = environment_value(environment, IMAS_ENV_WAS PRELOAD);
    for (char **at = environment; *at != NULL; at++) {
        bool fits = true;
        if (text_after(*at, PRELOAD "=") != NULL)
            fits = kept_preload != NULL || keep_preload(*at, was);
        else if (text_after(*at, IMAS_ENV_WAS) != NULL || environment_is_set(environment, *at))
            fits = keep(*at, text_length(*at));
        if (!fits)
            return false;
    }
    return kept_preload != NULL;
}

static void keep_page(const char *path) {
    if (path != NULL && text_length(path) + sizeof IMAS_ENV_PAGE < sizeof kept_page)
        text_append(text_append(kept_page, IMAS_ENV_PAGE "="), path);
}

void again_begin(char **environment) {
    bool is_launched = environment_value(environment, IMAS_ENV_UNSET) != NULL ||
                       environment_value(environment, IMAS_ENV_WAS PRELOAD) != NULL;
    bool is_placed = environment_value(environment, IMAS_ENV_PLACED) != NULL;
    if (!is_launched || is_placed || environment_flag(environment, IMAS_ENV_DISABLE))
        return;
    if (!keep_all(environment)) {
        kept_bytes = 0;
        return;
    }
    keep_page(environment_value(environment, IMAS_ENV_PAGE));
    has_runtime = environment_value(environment, IMAS_ENV_SETTINGS) != NULL;
    process = sys0(SYS_getpid);
}

bool again_is_possible(void) {
    return kept_bytes != 0;
}

const char *again_page(void) {
    return kept_page[0] != '\0' ? kept_page : NULL;
}

static const char *next_kept_entry(const char *entry) {
    entry += text_length(entry) + 1;
    return entry < kept + kept_bytes ? entry : NULL;
}

/* The entry with which the launcher set that name, or NULL. */
static const char *set_for(const char *entry) {
    for (const char *set = kept; set != NULL; set = next_kept_entry(set)) {
        if (text_after(set, IMAS_ENV_WAS) == NULL && environment_same_name(set, entry))
            return set;
    }
    return NULL;
}

/* Whether the entry is what the launcher found. */
static bool is_as_before(const char *entry) {
    for (const char *set = kept; set != NULL; set = next_kept_entry(set)) {
        const char *was = text_after(set, IMAS_ENV_WAS);
        if (was != NULL && text_equal(was, entry))
            return true;
    }
    return false;
}

/* ---- whether it is the own file ------------------------------------------------------------------------ */

#define SELF "/proc/self/exe"
#define DELETED " (deleted)"

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool look_at(int folder, const char *path, int flags, struct stat *about) {
    return sys4(SYS_newfstatat, folder, path, about, flags) == 0;
}

/* Whether `other` is at the path that this process's file had. */
static bool is_in_its_place(struct again_script *room, const struct stat *other) {
    struct stat there;
    long length = sys4(SYS_readlinkat, AT_FDCWD, SELF, room->program, sizeof room->program - 1);
    long end = length - (long)(sizeof DELETED - 1);
    if (end <= 0)
        return false;
    room->program[length] = '\0';
    if (!text_equal(room->program + end, DELETED))
        return false;
    room->program[end] = '\0';
    return look_at(AT_FDCWD, room->program, 0, &there) && same_file(&there, other);
}

/* The program that env is asked for in a script's first line. The kernel gives it all that follows as one word: options and
 * assignments are left to env. */
static bool is_asked_of_env(struct again_script *room) {
    if (!text_equal(text_base_name(room->program), "env"))
        return false;
    const char *at = room->line;
    while (text_after(at, room->program) == NULL)
        at++;
    at = text_after(at, room->program);
    while (*at == ' ' || *at == '\t')
        at++;
    size_t length = 0;
    while (at[length] > ' ' && at[length] != '=')
        length++;
    const char *end = at + length;
    while (*end == ' ' || *end == '\t')
        end++;
    if (length == 0 || *at == '-' || *end != '\n')
        return false;
    text_copy(room->name, length + 1, at);
    return true;
}

static bool is_found_by_env(struct again_script *room, char **environment) {
    if (!is_asked_of_env(room))
        return false;
    if (!text_contains(room->name, "/"))
        return fitting_find(environment_value(environment, "PATH"), room->name, room->program);
    text_copy(room->program, sizeof room->program, room->name);
    return true;
}

static bool is_own_program(const struct again_script *room, const struct stat *own) {
    struct stat program;
    return look_at(AT_FDCWD, room->program, 0, &program) && same_file(&program, own);
}

static enum again script_of(struct again_script *room, int fd, const struct stat *own, char **environment) {
    long got = sys4(SYS_pread64, fd, room->line, sizeof room->line - 1, 0);
    room->line[got > 0 ? got : 0] = '\0';
    if (!fitting_interpreter(room->line, room->program))
        return AGAIN_OTHER;
    if (is_own_program(room, own))
        return AGAIN_SAME;
    return is_found_by_env(room, environment) && is_own_program(room, own) ? AGAIN_BY_ENV : AGAIN_OTHER;
}

static void drop(struct again_script *script) {
    sys2(SYS_munmap, script, sizeof *script);
}

/* What is started, by which file, and in what environment. */
struct start {
    int folder;
    const char *path;
    int flags;
    char **environment;
};

static enum again look_closer(const struct start *start, int fd, const struct stat *own, const struct stat *other,
                              struct again_script **script) {
    struct again_script *room = sys_anonymous(sizeof *room);
    if (room == NULL)
        return AGAIN_OTHER;
    bool is_replaced = own->st_nlink == 0 && is_in_its_place(room, other);
    enum again found = is_replaced ? AGAIN_REPLACED : script_of(room, fd, own, start->environment);
    if (found != AGAIN_BY_ENV) {
        drop(room);
        return found;
    }
    text_copy(room->path, sizeof room->path, start->path);
    *script = room;
    return found;
}

/* Most programs are neither a script, nor is this process's file gone: they are to cost little. */
static enum again other_file(const struct start *start, const struct stat *own, const struct stat *other,
                             struct again_script **script) {
    char begin[2] = {0};
    int fd = S_ISREG(other->st_mode) ? sys_open(start->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0) : -1;
    if (fd < 0)
        return AGAIN_OTHER;
    bool is_script = sys4(SYS_pread64, fd, begin, sizeof begin, 0) == sizeof begin && begin[0] == '#' && begin[1] == '!';
    enum again found = is_script || own->st_nlink == 0 ? look_closer(start, fd, own, other, script) : AGAIN_OTHER;
    sys_close(fd);
    return found;
}

static enum again own_file(const struct start *start, struct again_script **script) {
    struct stat own, other;
    if (!look_at(AT_FDCWD, SELF, 0, &own) || !look_at(start->folder, start->path, start->flags, &other))
        return AGAIN_OTHER;
    if (same_file(&own, &other))
        return AGAIN_SAME;
    return *start->path != '\0' ? other_file(start, &own, &other, script) : AGAIN_OTHER;
}

/* ---- whether it may have the candidate ----------------------------------------------------------------- */

#define MOST_VARIABLES 4096
#define MOST_TEXT 16384 /* it is on the caller's stack */

static bool has_ours(char **environment) {
    const char *preload = environment_value(environment, PRELOAD), *audit = environment_value(environment, "LD_AUDIT");
    return (preload != NULL && text_contains(preload, "/libimas")) || (audit != NULL && *audit != '\0') ||
           environment_value(environment, IMAS_ENV_UNSET) != NULL || environment_flag(environment, IMAS_ENV_DISABLE);
}

static size_t count_of(char *const *environment) {
    size_t count = 0;
    while (environment[count] != NULL)
        count++;
    return count;
}

static bool can_be_opened(const char *path) {
    int fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd >= 0)
        sys_close(fd);
    return fd >= 0;
}

/* Whether the libraries are still there for this process: in a chroot, or for another user, ld.so would print a line for
 * each. Without room it is taken for granted. */
static bool libraries_are_there(void) {
    char *path = sys_anonymous(sizeof kept);
    if (path == NULL)
        return true;
    bool all = true;
    for (const char *at = kept_preload + sizeof PRELOAD; all && *at != '\0'; at += *at == ':') {
        size_t length = 0;
        while (*at != ':' && *at != '\0')
            path[length++] = *at++;
        path[length] = '\0';
        all = length == 0 || can_be_opened(path);
    }
    sys2(SYS_munmap, path, sizeof kept);
    return all;
}

enum again again_look(int folder, const char *path, int flags, char *const *environment, enum again_place place,
                      struct again_script **script) {
    if (!again_is_possible() || path == NULL || environment == NULL || has_ours((char **)environment))
        return AGAIN_OTHER;
    if (has_runtime && (place == AGAIN_AS_CHILD || sys0(SYS_getpid) != process))
        return AGAIN_OTHER;
    if (count_of(environment) > MOST_VARIABLES || again_bytes(environment) > MOST_TEXT)
        return AGAIN_OTHER;
    enum again found = own_file(&(struct start){folder, path, flags, (char **)environment}, script);
    if (found == AGAIN_OTHER || libraries_are_there())
        return found;
    if (found == AGAIN_BY_ENV)
        drop(*script);
    return AGAIN_OTHER;
}

/* ---- a script by way of env ---------------------------------------------------------------------------- */

size_t again_script_bytes(const struct again_script *script) {
    return text_length(script->program) + text_length(script->name) + text_length(script->path) + 3;
}

static char *copied(char **text, const char *from) {
    char *start = *text;
    *text = text_append(start, from) + 1;
    return start;
}

const char *again_script_words(struct again_script *script, char *text, char **words, char *const *arguments) {
    const char *program = copied(&text, script->program);
    *words++ = copied(&text, script->name);
    *words++ = copied(&text, script->path);
    drop(script);
    while (*arguments != NULL && *++arguments != NULL)
        *words++ = *arguments;
    *words = NULL;
    return program;
}

/* ---- the environment ----------------------------------------------------------------------------------- */

size_t again_entries(char *const *environment) {
    size_t entries = kept_count + 3; /* IMAS_UNSET, the page, IMAS_PAD */
    for (; *environment != NULL; environment++)
        entries += set_for(*environment) != NULL;
    return entries;
}

size_t again_bytes(char *const *environment) {
    size_t bytes = kept_bytes + sizeof IMAS_ENV_UNSET + 1;
    for (; *environment != NULL; environment++) {
        if (set_for(*environment) != NULL)
            bytes += text_length(kept_preload) + 2 * text_length(*environment) + sizeof IMAS_ENV_WAS + 2;
    }
    return bytes;
}

struct making {
    char **variables;
    size_t count;
    char *text; /* free room */
};

static char *joined(struct making *making, const char *a, const char *b, const char *c) {
    char *start = making->text;
    making->text = text_append(text_append(text_append(start, a), b), c) + 1;
    return start;
}

static void change(struct making *making, size_t at, const char *set) {
    char *entry = making->variables[at];
    const char *value = entry + sizeof PRELOAD;
    making->variables[making->count++] = joined(making, IMAS_ENV_WAS, entry, "");
    making->variables[at] = set != kept_preload ? (char *)set : joined(making, set, *value != '\0' ? ":" : "", value);
}

static bool is_there(const struct making *making, size_t count, const char *entry) {
    for (size_t at = 0; at < count; at++) {
        if (environment_same_name(making->variables[at], entry))
            return true;
    }
    return false;
}

/* Adds what the program does not pass, and the list of its names. */
static void add_missing(struct making *making, size_t before) {
    char *start = making->text, *end = text_append(start, IMAS_ENV_UNSET "=");
    const char *sign = "";
    for (const char *set = kept; set != NULL; set = next_kept_entry(set)) {
        if (text_after(set, IMAS_ENV_WAS) != NULL || is_there(making, before, set))
            continue;
        making->variables[making->count++] = (char *)set;
        end = text_append(end, sign);
        for (const char *name = set; *name != '='; name++)
            *end++ = *name;
        sign = ":";
    }
    *end = '\0';
    if (*sign != '\0')
        making->variables[making->count++] = start;
    making->text = end + 1;
}

void again_environment(char **own, char *text, const char *page) {
    static char pad[] = IMAS_ENV_PAD "=";
    const size_t before = count_of(own);
    struct making making = {own, before, text};
    for (size_t at = 0; at < before; at++) {
        const char *set = set_for(own[at]);
        if (set != NULL && (set == kept_preload || is_as_before(own[at])))
            change(&making, at, set);
    }
    add_missing(&making, before);
    if (page != NULL)
        own[making.count++] = (char *)page;
    if ((making.count - before) % 2 != 0)
        own[making.count++] = pad;
    own[making.count] = NULL;
}
