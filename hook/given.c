// SPDX-License-Identifier: Apache-2.0
#include "given.h"

#include <sys/stat.h>

#include "fnv.h"
#include "sys.h"
#include "text.h"

/* ---- what an interpreter is given ------------------------------------------------------------------------ */

/* Lists are words each ended by '\0', ended by an empty one: an array of pointers would have to be relocated. */
static bool listed(const char *word, const char *list) {
    for (; *list != '\0'; list += text_length(list) + 1) {
        if (text_equal(word, list))
            return true;
    }
    return false;
}

/* How a family of interpreters reads its options. */
struct family {
    const char *inline_code, *names_program, *takes_value;
};

static bool in_list(const char *name, size_t length, const char *list) {
    for (; *list != '\0'; list += text_length(list) + 1) {
        const char *rest = list;
        size_t i = 0;
        for (; i < length && *rest != '\0' && *rest == name[i]; i++)
            rest++;
        if (i == length && *rest == '\0')
            return true;
    }
    return false;
}

/* Version numbers at the end of a name do not count. */
static size_t stem_length(const char *name) {
    size_t length = text_length(name);
    while (length > 0 && ((name[length - 1] >= '0' && name[length - 1] <= '9') || name[length - 1] == '.' || name[length - 1] == '-'))
        length--;
    return length;
}

static bool family_of(const char *name, struct family *family) {
    size_t length = stem_length(name);
    if (in_list(name, length, "python\0pypy\0"))
        *family = (struct family){"-c\0", "-m\0", "-W\0-X\0"};
    else if (in_list(name, length, "java\0"))
        *family = (struct family){"", "-jar\0-m\0--module\0",
                                  "-cp\0-classpath\0--class-path\0-p\0--module-path\0--add-modules\0"};
    else if (in_list(name, length, "sh\0bash\0dash\0zsh\0ksh\0"))
        *family = (struct family){"-c\0", "", "-o\0-O\0--rcfile\0--init-file\0"};
    else if (in_list(name, length, "perl\0ruby\0lua\0luajit\0php\0node\0nodejs\0Rscript\0tclsh\0guile\0"))
        *family = (struct family){"-c\0-e\0-E\0-r\0--eval\0-p\0--print\0", "-f\0",
                                  "-I\0--require\0--import\0-d\0-o\0-O\0"};
    else
        return false;
    return true;
}

static void by_text(struct index_key *key, uint64_t hash, size_t length) {
    key->detail_kind = IMAS_DETAIL_TEXT;
    key->detail[0] = hash;
    key->detail[1] = length;
}

static bool by_file(struct index_key *key, const char *word) {
    struct stat file;
    if (*word == '\0' || sys4(SYS_newfstatat, AT_FDCWD, word, &file, 0) != 0 || !S_ISREG(file.st_mode))
        return false;
    key->detail_kind = IMAS_DETAIL_FILE;
    key->detail[0] = file.st_dev;
    key->detail[1] = file.st_ino;
    return true;
}

static uint64_t hash_on(uint64_t hash, const char *text) {
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * IMAS_FNV64_PRIME;
    return hash;
}

/* "option name", as one text. */
static void by_option(struct index_key *key, const char *option, const char *name) {
    uint64_t hash = hash_on(hash_on(hash_on(IMAS_FNV64_START, option), " "), name);
    by_text(key, hash, text_length(option) + 1 + text_length(name));
}

bool given_argument(struct index_key *key, const char *executable, int argc, char **argv, const char **word) {
    struct family family;
    if (!family_of(text_base_name(executable), &family))
        return false;
    for (int i = 1; i < argc; i++) {
        *word = argv[i];
        if (listed(argv[i], family.inline_code)) {
            by_text(key, hash_on(IMAS_FNV64_START, argv[i]), text_length(argv[i]));
            return true;
        }
        if (listed(argv[i], family.names_program)) {
            const char *name = i + 1 < argc ? argv[i + 1] : "";
            *word = name;
            if (!by_file(key, name))
                by_option(key, argv[i], name);
            return true;
        }
        if (listed(argv[i], family.takes_value)) {
            i++;
        } else if (argv[i][0] != '-') {
            if (!by_file(key, argv[i]))
                by_text(key, hash_on(IMAS_FNV64_START, argv[i]), text_length(argv[i]));
            return true;
        }
    }
    return false;
}

/* ---- the unit -------------------------------------------------------------------------------------------- */

#define SERVICE ".service"

static bool ends_service(const char *start, size_t length) {
    const size_t suffix = sizeof SERVICE - 1;
    return length > suffix && text_after(start + length - suffix, SERVICE) != NULL;
}

/* The last component of the path up to the line's end that names a service. */
static const char *last_service(const char *path, size_t *length) {
    const char *found = NULL;
    for (const char *at = path; *at != '\n' && *at != '\0';) {
        const char *start = at;
        while (*at != '/' && *at != '\n' && *at != '\0')
            at++;
        if (ends_service(start, (size_t)(at - start))) {
            found = start;
            *length = (size_t)(at - start);
        }
        if (*at == '/')
            at++;
    }
    return found;
}

static const char *next_line(const char *line) {
    while (*line != '\n' && *line != '\0')
        line++;
    return *line == '\n' ? line + 1 : line;
}

const char *given_unit_of(const char *cgroup, size_t *length) {
    const char *found = NULL;
    for (const char *line = cgroup; *line != '\0'; line = next_line(line)) {
        const char *unified = text_after(line, "0::");
        const char *service = unified != NULL ? last_service(unified, length) : NULL;
        if (service != NULL)
            return service;
    }
    for (const char *line = cgroup; found == NULL && *line != '\0'; line = next_line(line)) {
        const char *at = line;
        while (*at != ':' && *at != '\n' && *at != '\0')
            at++;
        const char *path = text_after(at, ":name=systemd:");
        found = path != NULL ? last_service(path, length) : NULL;
    }
    return found;
}

bool given_unit(struct index_key *key, char unit[UNIT_BYTES]) {
    char text[4096];
    int fd = sys_open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    long got = sys3(SYS_read, fd, text, sizeof text - 1);
    sys_close(fd);
    text[got > 0 ? got : 0] = '\0';
    size_t length = 0;
    const char *found = given_unit_of(text, &length);
    if (found == NULL || length >= UNIT_BYTES)
        return false;
    for (size_t i = 0; i < length; i++)
        unit[i] = found[i];
    unit[length] = '\0';
    key->detail_kind = IMAS_DETAIL_UNIT;
    key->detail[0] = fnv64(unit, length);
    key->detail[1] = length;
    return true;
}
