// SPDX-License-Identifier: Apache-2.0
#include "jvm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../abi/imas_abi.h"
#include "environment.h"
#include "libc.h"
#include "loaded.h"
#include "sys.h"
#include "text.h"

/* ---- what is to be set --------------------------------------------------------------------------------- */

static const char *wanted; /* NULL: nothing, or it has been set */
static const char *yields; /* NULL: what the user set was compared before the start */
static char **words;

void jvm_keep(char **arguments, char **environment) {
    words = arguments;
    bool is_handed_on = environment_flag(environment, IMAS_ENV_FOLLOW);
    yields = is_handed_on ? environment_value(environment, IMAS_ENV_JVM_YIELDS) : NULL;
    wanted = environment_value(environment, IMAS_ENV_JVM_FLAGS);
}

static bool is_space(char byte) {
    return byte == ' ' || (byte >= '\t' && byte <= '\r') || byte == '"' || byte == '\'';
}

static size_t word_length(const char *text) {
    size_t length = 0;
    while (text[length] != '\0' && !is_space(text[length]))
        length++;
    return length;
}

/* The word at or after `text`; NULL behind the last. */
static const char *word_from(const char *text) {
    while (is_space(*text))
        text++;
    return *text != '\0' ? text : NULL;
}

#define EACH_WORD(word, list)                                                                                                            \
    for (const char *word = (list) != NULL ? word_from(list) : NULL; word != NULL; word = word_from(word + word_length(word)))

/* Whether the text begins with the `length` bytes of a word. */
static bool begins_with(const char *text, const char *word, size_t length) {
    size_t at = 0;
    while (at < length && text[at] == word[at])
        at++;
    return at == length;
}

static bool is_ours(const char *option) {
    const char *flag = text_after(option, "-XX:");
    size_t length = flag != NULL ? word_length(flag) : 0;
    EACH_WORD(one, wanted) {
        if (length != 0 && word_length(one) == length && begins_with(one, flag, length))
            return true;
    }
    return false;
}

/* Whether an option of the text, which the user gave, contradicts ours. Then nothing is set: with two collectors no JVM starts. */
static bool contradicts(const char *text) {
    EACH_WORD(word, text) {
        const char *handed_on = text_after(word, "-J"), *option = handed_on != NULL ? handed_on : word;
        EACH_WORD(one, yields) {
            if (begins_with(option, one, word_length(one)) && !is_ours(option))
                return true;
        }
    }
    return false;
}

static bool is_contradicted(char **environment) {
    static const char *const VARIABLES[] = {"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"};
    for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++) {
        const char *value = environment != NULL ? environment_value(environment, VARIABLES[i]) : NULL;
        if (value != NULL && contradicts(value))
            return true;
    }
    for (char **word = words; word != NULL && *word != NULL; word++) {
        if (contradicts(*word))
            return true;
    }
    return false;
}

/* ---- the JVM's tables for debuggers -------------------------------------------------------------------- */

struct field { /* an entry of gHotSpotVMStructs */
    const char *type, *name, *of_type;
    int32_t is_static;
    uint64_t offset;
    void *address;
};

struct type { /* of gHotSpotVMTypes */
    const char *name, *super;
    int32_t is_oop, is_integer, is_unsigned;
    uint64_t size;
};

/* What the JVM says of the layouts of its tables: those above, or nothing is set. */
static const struct layout {
    const char *name;
    uint64_t value;
} LAYOUTS[] = {
    {"gHotSpotVMStructEntryTypeNameOffset", offsetof(struct field, type)},
    {"gHotSpotVMStructEntryFieldNameOffset", offsetof(struct field, name)},
    {"gHotSpotVMStructEntryTypeStringOffset", offsetof(struct field, of_type)},
    {"gHotSpotVMStructEntryOffsetOffset", offsetof(struct field, offset)},
    {"gHotSpotVMStructEntryAddressOffset", offsetof(struct field, address)},
    {"gHotSpotVMStructEntryArrayStride", sizeof(struct field)},
    {"gHotSpotVMTypeEntryTypeNameOffset", offsetof(struct type, name)},
    {"gHotSpotVMTypeEntrySizeOffset", offsetof(struct type, size)},
    {"gHotSpotVMTypeEntryArrayStride", sizeof(struct type)},
};

struct jvm {
    struct link_map object;
    struct loaded tables;
    char *flags; /* the first */
    size_t count, size;
    size_t name, address, origin, type; /* offsets in a flag */
};

static int finds_tables(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    struct jvm *jvm = argument;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_DYNAMIC)
            continue;
        jvm->object.l_addr = info->dlpi_addr;
        jvm->object.l_ld = (ElfW(Dyn) *)(info->dlpi_addr + part->p_vaddr);
        jvm->tables = loaded_read(&jvm->object);
        return loaded_defines(&jvm->tables, "gHotSpotVMStructs");
    }
    return 0;
}

static const void *exported(const struct jvm *jvm, const char *name) {
    const ElfW(Sym) *found = loaded_definition(&jvm->tables, name, loaded_hash(name));
    return found != NULL ? (const void *)(jvm->object.l_addr + found->st_value) : NULL;
}

static bool has_layouts(const struct jvm *jvm) {
    for (size_t i = 0; i < sizeof LAYOUTS / sizeof *LAYOUTS; i++) {
        const uint64_t *value = exported(jvm, LAYOUTS[i].name);
        if (value == NULL || *value != LAYOUTS[i].value)
            return false;
    }
    return true;
}

static const struct field *flag_field(const struct field *first, const char *name, const char *of_type) {
    for (const struct field *one = first; one->type != NULL; one++) {
        if (text_equal(one->type, "JVMFlag") && text_equal(one->name, name))
            return of_type == NULL || (one->of_type != NULL && text_equal(one->of_type, of_type)) ? one : NULL;
    }
    return NULL;
}

/* Before JDK 17 the type of a flag was a text. */
static bool read_tables(struct jvm *jvm) {
    if (libc_iterate == NULL || libc_iterate(finds_tables, jvm) == 0 || !has_layouts(jvm))
        return false;
    const struct field *const *structs = exported(jvm, "gHotSpotVMStructs");
    const struct type *const *types = exported(jvm, "gHotSpotVMTypes");
    if (structs == NULL || types == NULL || *structs == NULL || *types == NULL)
        return false;
    const struct field *flags = flag_field(*structs, "flags", "JVMFlag*"), *count = flag_field(*structs, "numFlags", "size_t");
    const struct field *name = flag_field(*structs, "_name", "const char*"), *address = flag_field(*structs, "_addr", NULL);
    const struct field *origin = flag_field(*structs, "_flags", NULL), *type = flag_field(*structs, "_type", "int");
    if (flags == NULL || count == NULL || name == NULL || address == NULL || origin == NULL || type == NULL)
        return false;
    for (const struct type *one = *types; one->name != NULL; one++) {
        if (text_equal(one->name, "JVMFlag"))
            jvm->size = one->size;
    }
    jvm->flags = *(char **)flags->address;
    jvm->count = *(size_t *)count->address;
    jvm->name = name->offset;
    jvm->address = address->offset;
    jvm->origin = origin->offset;
    jvm->type = type->offset;
    return jvm->size != 0 && jvm->flags != NULL;
}

/* ---- flags --------------------------------------------------------------------------------------------- */

enum flag_type { IS_BOOL, IS_INT, IS_UNSIGNED, IS_WIDE, LAST_WIDE = IS_WIDE + 3 }; /* JVMFlag::TYPE_bool and so on */
enum flag_origin { OF_COMMAND_LINE = 1, ORIGINS = 15, WAS_ON_COMMAND_LINE = 1 << 17 };

static char *flag_of(const struct jvm *jvm, const char *name, size_t length) {
    for (size_t i = 0; i < jvm->count; i++) {
        char *flag = jvm->flags + i * jvm->size;
        const char *one = *(const char **)(flag + jvm->name);
        if (one != NULL && begins_with(one, name, length) && one[length] == '\0')
            return flag;
    }
    return NULL;
}

/* Sets the flag of a word, `+Name`, `-Name` or `Name=number`; with `dry` only says whether that is possible. */
static bool set(const struct jvm *jvm, const char *word, bool dry) {
    bool is_bool = *word == '+' || *word == '-';
    const char *name = word + is_bool, *end = word + word_length(word), *sign = name;
    while (sign != end && *sign != '=')
        sign++;
    char *flag = flag_of(jvm, name, (size_t)(sign - name));
    if (flag == NULL || is_bool != (sign == end))
        return false;
    const char *digits = sign + (sign != end);
    uint64_t number = is_bool ? *word == '+' : text_number(&digits);
    int32_t type = *(int32_t *)(flag + jvm->type);
    bool is_known = is_bool ? type == IS_BOOL : type > IS_BOOL && type <= LAST_WIDE && digits == end;
    if (dry || !is_known)
        return is_known;
    void *value = *(void **)(flag + jvm->address);
    if (type == IS_BOOL)
        *(bool *)value = number != 0;
    else if (type < IS_WIDE)
        *(uint32_t *)value = (uint32_t)number;
    else
        *(uint64_t *)value = number;
    uint32_t *origin = (uint32_t *)(flag + jvm->origin);
    *origin = (*origin & ~(uint32_t)ORIGINS) | OF_COMMAND_LINE | WAS_ON_COMMAND_LINE;
    return true;
}

static bool set_all(const struct jvm *jvm, bool dry) {
    EACH_WORD(word, wanted) {
        if (!set(jvm, word, dry))
            return false;
    }
    return true;
}

void jvm_set(char **environment) {
    struct jvm jvm = {0};
    /* Without its library loaded it was the program that asked. */
    if (wanted == NULL || !read_tables(&jvm))
        return;
    if (!is_contradicted(environment) && set_all(&jvm, true))
        set_all(&jvm, false);
    wanted = NULL;
}
