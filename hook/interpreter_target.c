// SPDX-License-Identifier: Apache-2.0
#include "interpreter_target.h"

#include <sys/stat.h>

#include "fnv.h"
#include "sys.h"
#include "text.h"

/* Lists are words each ended by '\0', ended by an empty one: an array of pointers would have to be
 * relocated. */
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
    const char *bundled, *bundled_last; /* letters of options that may stand in one word before the one that takes code */
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
        *family = (struct family){"-c\0", "-m\0", "-W\0-X\0", "bBdEIOPqsSuvx", "c"};
    else if (in_list(name, length, "java\0"))
        *family = (struct family){"", "-jar\0-m\0--module\0",
                                  "-cp\0-classpath\0--class-path\0-p\0--module-path\0--add-modules\0", "", ""};
    else if (in_list(name, length, "dotnet\0"))
        *family = (struct family){"", "exec\0",
                                  "--additional-deps\0--additionalprobingpath\0--depsfile\0--fx-version\0--roll-forward\0--runtimeconfig\0",
                                  "", ""};
    else if (in_list(name, length, "sh\0bash\0dash\0zsh\0ksh\0"))
        *family = (struct family){"-c\0", "", "-o\0-O\0--rcfile\0--init-file\0", "abefhiklmnprtuvxBCEHPT", "c"};
    else if (in_list(name, length, "perl\0ruby\0lua\0luajit\0php\0node\0nodejs\0Rscript\0tclsh\0guile\0"))
        *family = (struct family){"-c\0-e\0-E\0-r\0--eval\0-p\0--print\0", "-f\0",
                                  "-I\0--require\0--import\0-d\0-o\0-O\0", "0123456789acilnpsw", "eE"};
    else
        return false;
    return true;
}

static void key_by_text(struct index_key *key, uint64_t hash, size_t length) {
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
    key_by_text(key, hash, text_length(option) + 1 + text_length(name));
}

static bool has_letter(const char *letters, char letter) {
    while (*letters != '\0' && *letters != letter)
        letters++;
    return *letters != '\0';
}

/* Several options of one letter, of which the last takes the code: "-lc". */
static bool ends_bundle(const char *word, const struct family *family) {
    size_t length = text_length(word);
    if (length < 2 || word[0] != '-' || !has_letter(family->bundled_last, word[length - 1]))
        return false;
    size_t i = 1;
    while (i < length - 1 && has_letter(family->bundled, word[i]))
        i++;
    return i == length - 1;
}

/* "option #hash", the hash of the code after it in hexadecimal. */
static void by_code(struct index_key *key, const char *option, const char *code) {
    char name[1 + 16 + 1] = "#";
    uint64_t hash = hash_on(IMAS_FNV64_START, code);
    for (int i = 16; i > 0; i--, hash >>= 4)
        name[i] = "0123456789abcdef"[hash & 15];
    by_option(key, option, name);
}

bool interpreter_target_find(struct index_key *key, const char *executable, int argc, char **argv, const char **word) {
    struct family family;
    if (!family_of(text_base_name(executable), &family))
        return false;
    for (int i = 1; i < argc; i++) {
        *word = argv[i];
        if (listed(argv[i], family.inline_code) || ends_bundle(argv[i], &family)) {
            if (i + 1 < argc)
                by_code(key, argv[i], argv[i + 1]);
            else
                key_by_text(key, hash_on(IMAS_FNV64_START, argv[i]), text_length(argv[i]));
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
                key_by_text(key, hash_on(IMAS_FNV64_START, argv[i]), text_length(argv[i]));
            return true;
        }
    }
    return false;
}
