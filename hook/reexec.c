// SPDX-License-Identifier: Apache-2.0
#include "reexec.h"

#include "../abi/imas_abi.h"
#include "environment.h"
#include "sys.h"
#include "text.h"

/* ---- the same file and arguments ----------------------------------------------------------------------- */

static bool same_file(const char *path, const struct stat *file) {
    struct stat other;
    return sys4(SYS_newfstatat, AT_FDCWD, path, &other, 0) == 0 && other.st_dev == file->st_dev && other.st_ino == file->st_ino;
}

/* Names of descriptors: which file they lead to may change with exec, as those marked close-on-exec go. */
static bool names_descriptor(const char *path) {
    return text_after(path, "/dev/fd/") != NULL || text_after(path, "/proc/") != NULL || text_after(path, "/dev/std") != NULL;
}

#define SCRIPT_LINE_BYTES 256 /* what the kernel reads of a file */

struct script {
    char line[SCRIPT_LINE_BYTES + 1];
    char *interpreter, *argument; /* into `line`; argument NULL without one */
};

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* As binfmt_script does: one argument, blanks inside it kept, blanks around it not. */
static bool split_line(struct script *script) {
    char *end = script->line + 2;
    while (*end != '\n' && *end != '\0')
        end++;
    while (end > script->line + 2 && is_blank(end[-1]))
        end--;
    *end = '\0';
    char *at = script->line + 2;
    while (is_blank(*at))
        at++;
    script->interpreter = at;
    while (*at != '\0' && !is_blank(*at))
        at++;
    if (*at != '\0')
        *at++ = '\0';
    while (is_blank(*at))
        at++;
    script->argument = *at != '\0' ? at : NULL;
    return *script->interpreter != '\0';
}

static bool read_script(struct script *script, const char *path) {
    int fd = sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return false;
    long got = sys4(SYS_pread64, fd, script->line, SCRIPT_LINE_BYTES, 0);
    sys_close(fd);
    script->line[got > 0 ? got : 0] = '\0';
    return text_after(script->line, "#!") != NULL && split_line(script);
}

/* The kernel turned (script, rest...) into (interpreter, its argument, script, rest...). When we call execve
 * it does so once more and drops the first argument, so we pass (script, rest...). */
static bool script_arguments(const struct start *start, const struct stat *executable, char ***arguments) {
    struct script script;
    if (!read_script(&script, start->execfn) || !same_file(script.interpreter, executable))
        return false;
    int at = script.argument != NULL ? 2 : 1;
    if (start->argc <= at || !text_equal(start->argv[0], script.interpreter) || !text_equal(start->argv[at], start->execfn) ||
        (script.argument != NULL && !text_equal(start->argv[1], script.argument)))
        return false;
    *arguments = start->argv + at;
    return true;
}

bool reexec_arguments(const struct start *start, const struct stat *executable, char ***arguments) {
    if (names_descriptor(start->execfn))
        return false;
    *arguments = start->argv;
    return same_file(start->execfn, executable) || script_arguments(start, executable, arguments);
}

/* ---- the environment ----------------------------------------------------------------------------------- */

static size_t name_length(const char *entry) {
    size_t length = 0;
    while (entry[length] != '=' && entry[length] != '\0')
        length++;
    return length;
}

static char **find(char **environment, const char *entry) {
    size_t length = name_length(entry);
    for (; *environment != NULL; environment++) {
        size_t i = 0;
        while (i < length && (*environment)[i] == entry[i])
            i++;
        if (i == length && (*environment)[i] == '=')
            return environment;
    }
    return NULL;
}

static const char *after_dashes(const char *text) {
    while (*text == '-')
        text++;
    return text;
}

/* Whether the argument may be the option that begins with `option`. Behind one dash stand letters, which may be joined. A long
 * option may have one dash and '_' for '-' in Node.js. To refuse once too often costs nothing. */
static bool may_be_option(const char *argument, const char *option) {
    if (*argument != '-')
        return false;
    if (option[1] != '-') {
        const char letter[] = {option[1], '\0'};
        return argument[1] != '-' && text_contains(argument, letter);
    }
    argument = after_dashes(argument);
    option = after_dashes(option);
    while (*option != '\0' && (*argument == *option || (*argument == '_' && *option == '-'))) {
        argument++;
        option++;
    }
    return *option == '\0';
}

/* The stub does not know where the options of a runtime end and those of its program begin: all count. */
static bool is_given(const struct start *start, const char *option) {
    for (int i = 1; i < start->argc; i++) {
        if (may_be_option(start->argv[i], option))
            return true;
    }
    return false;
}

bool reexec_overrides(const struct imas_catalogue_entry *candidate, const struct start *start) {
    for (const char *entry = candidate->environment; *entry != '\0'; entry += text_length(entry) + 1) {
        if (find(start->envp, entry) != NULL)
            return true;
    }
    for (const char *word = candidate->yields_to; *word != '\0'; word += text_length(word) + 1) {
        if (*word == '-' ? is_given(start, word) : find(start->envp, word) != NULL)
            return true;
    }
    return false;
}

#define TEXT_BYTES ((size_t)16 << 10) /* ineligible.c makes sure that LD_PRELOAD is short */
#define MOST_ADDED ((size_t)IMAS_CATALOGUE_ENVIRONMENT_BYTES / 2 + 9)

/* The environment that is being made; one mapping holds its array and its text. */
struct making {
    void *memory;
    size_t bytes;
    char **variables;
    size_t count;
    char *text; /* free room */
    char *unset;
};

static size_t count_of(char **list) {
    size_t count = 0;
    while (list[count] != NULL)
        count++;
    return count;
}

static bool begin(struct making *making, char **environment) {
    making->count = count_of(environment);
    size_t slots = making->count + MOST_ADDED;
    making->bytes = slots * sizeof *making->variables + TEXT_BYTES;
    making->memory = sys_anonymous(making->bytes);
    if (making->memory == NULL)
        return false;
    making->variables = making->memory;
    making->text = (char *)(making->variables + slots);
    for (size_t i = 0; i < making->count; i++)
        making->variables[i] = environment[i];
    return true;
}

static void put(struct making *making, const char *text) {
    while (*text != '\0')
        *making->text++ = *text++;
}

/* Ends the text that began at `start` and takes it as a new variable. */
static void add(struct making *making, char *start) {
    *making->text++ = '\0';
    making->variables[making->count++] = start;
}

static void put_library(struct making *making, const char *library) {
    put(making, *library != '\0' ? ":" : "");
    put(making, library);
}

static void set_preload(struct making *making, const struct beside *beside, const char *library) {
    char *start = making->text;
    put(making, "LD_PRELOAD=");
    put(making, beside->ours);
    put_library(making, library);
    put_library(making, beside->settings);
    char **old = find(making->variables, "LD_PRELOAD=");
    if (old == NULL) {
        add(making, start);
        return;
    }
    const char *value = *old + sizeof "LD_PRELOAD=" - 1;
    if (*value != '\0') {
        put(making, ":");
        put(making, value);
    }
    *making->text++ = '\0';
    char *was = making->text;
    put(making, IMAS_ENV_WAS);
    put(making, *old);
    *old = start;
    add(making, was);
}

/* The names that guard and hook remove again. */
static void set_unset(struct making *making, const struct imas_catalogue_entry *candidate, bool preload_is_new) {
    char *start = making->text;
    put(making, IMAS_ENV_UNSET "=" IMAS_ENV_PLACED);
    if (preload_is_new)
        put(making, ":LD_PRELOAD");
    for (const char *entry = candidate->environment; *entry != '\0'; entry += text_length(entry) + 1) {
        put(making, ":");
        for (size_t i = 0; i < name_length(entry); i++)
            *making->text++ = entry[i];
    }
    add(making, start);
}

static void set_value(struct making *making, const char *name, const char *value) {
    char *start = making->text;
    put(making, name);
    put(making, "=");
    put(making, value);
    add(making, start);
}

static void fill(struct making *making, const struct imas_catalogue_entry *candidate, const struct beside *beside, const char *page) {
    size_t count = making->count;
    bool preload_is_new = find(making->variables, "LD_PRELOAD=") == NULL;
    set_preload(making, beside, candidate->library);
    for (const char *entry = candidate->environment; *entry != '\0'; entry += text_length(entry) + 1)
        making->variables[making->count++] = (char *)entry;
    set_value(making, IMAS_ENV_PLACED, candidate->name);
    set_unset(making, candidate, preload_is_new);
    if (page != NULL)
        set_value(making, IMAS_ENV_PAGE, page);
    if ((making->count - count) % 2 != 0)
        set_value(making, IMAS_ENV_PAD, "");
    making->variables[making->count] = NULL;
}

void reexec_start(const struct start *start, char **arguments, const struct imas_catalogue_entry *candidate,
                  const struct beside *beside, const char *page) {
    struct making making;
    if (!begin(&making, start->envp))
        return;
    fill(&making, candidate, beside, page);
    sys3(SYS_execve, start->execfn, arguments, making.variables);
    sys2(SYS_munmap, making.memory, making.bytes);
}
