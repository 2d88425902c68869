// SPDX-License-Identifier: Apache-2.0
#include "started_name.h"

#include <stddef.h>

#include "fnv.h"
#include "text.h"

/* The length of a name without the version behind it, as crates/imas-linux/src/interpreter_target.rs takes it. */
static size_t stem(const char *name) {
    size_t length = text_length(name);
    while (length > 0) {
        char last = name[length - 1];
        if ((last < '0' || last > '9') && last != '.' && last != '-' && last != '_')
            break;
        length--;
    }
    return length;
}

static bool ends_with(const char *text, size_t length, const char *end, size_t of_end) {
    if (length < of_end)
        return false;
    for (size_t i = 0; i < of_end; i++) {
        if (text[length - of_end + i] != end[i])
            return false;
    }
    return true;
}

static bool is_variant(const char *name, const char *file) {
    size_t of_name = stem(name), of_file = stem(file);
    if (!ends_with(file, of_file, name, of_name))
        return false;
    return of_name == of_file || file[of_file - of_name - 1] == '-';
}

bool started_name_find(struct index_key *key, const char *program, const char *execfn, const char **name) {
    const char *started = text_base_name(execfn);
    if (is_variant(started, text_base_name(program)))
        return false;
    size_t length = text_length(started);
    key->detail_kind = IMAS_DETAIL_NAME;
    key->detail[0] = fnv64(started, length);
    key->detail[1] = length;
    *name = started;
    return true;
}
