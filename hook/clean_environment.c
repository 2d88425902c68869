// SPDX-License-Identifier: Apache-2.0
#include "clean_environment.h"

#include <stdbool.h>

#include "../abi/imas_abi.h"
#include "environment.h"
#include "text.h"

#define PRELOAD "LD_PRELOAD="

static bool separates(char byte) {
    return byte == ':' || byte == ' ';
}

/* The end of the entry that begins here. */
static const char *entry_end(const char *entry) {
    while (*entry != '\0' && !separates(*entry))
        entry++;
    return entry;
}

static const char *base_name(const char *entry, const char *end) {
    const char *base = entry;
    for (const char *at = entry; at != end; at++) {
        if (*at == '/')
            base = at + 1;
    }
    return base;
}

/* Writes PRELOAD and the entries that are neither ours nor the candidate, which follows ours where there is one. Returns
 * false if there is no such entry, or no room. */
static bool write_others(char *to, const char *list, bool has_candidate) {
    char *at = text_append(to, PRELOAD);
    const char *const end = to + CLEAN_ENVIRONMENT_BYTES, *const first = at;
    bool was_ours = false;
    while (*list != '\0') {
        const char *entry = list;
        list = entry_end(entry);
        if (entry == list) {
            list++;
            continue;
        }
        const char *base = base_name(entry, list);
        bool ours = text_after(base, "libimas") != NULL, is_candidate = was_ours && has_candidate;
        was_ours = ours && text_after(base, "libimas-settings.so") == NULL; /* that is behind the candidate */
        if (!ours && !is_candidate) {
            if (end - at < list - entry + 2)
                return false;
            if (at != first)
                *at++ = ':';
            while (entry != list)
                *at++ = *entry++;
        }
    }
    *at = '\0';
    return at != first;
}

static bool ends_with(const char *text, const char *end) {
    size_t length = text_length(text), of_end = text_length(end);
    return length >= of_end && text_equal(text + length - of_end, end);
}

/* The entry, in its old place; else behind all others, where the variables have been that the launcher had added. */
static void put(char **environment, char *entry) {
    while (*environment != NULL && text_after(*environment, PRELOAD) == NULL)
        environment++;
    if (*environment == NULL)
        environment[1] = NULL;
    *environment = entry;
}

void clean_environment(char **environment, char *preload) {
    const char *list = environment_value(environment, "LD_PRELOAD");
    bool has_others = list != NULL && write_others(preload, list, !environment_flag(environment, IMAS_ENV_ALONE));
    environment_restore_all(environment);
    const char *was = environment_value(environment, "LD_PRELOAD");
    const char *values = preload + sizeof PRELOAD - 1;
    if (has_others && (was == NULL || !ends_with(was, values)))
        put(environment, preload);
}

size_t clean_environment_bytes(char **environment) {
    const char *list = environment_value(environment, "LD_PRELOAD");
    size_t bytes = sizeof PRELOAD + (list != NULL ? text_length(list) : 0);
    return bytes < CLEAN_ENVIRONMENT_BYTES ? bytes : CLEAN_ENVIRONMENT_BYTES;
}
