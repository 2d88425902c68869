// SPDX-License-Identifier: Apache-2.0
#include "service_unit.h"

#include "fnv.h"
#include "sys.h"
#include "text.h"

#define SERVICE ".service"

#define SLICE ".slice"
#define MANAGER "user@"

static bool ends(const char *start, size_t length, const char *suffix, size_t suffix_length) {
    return length > suffix_length && text_after(start + length - suffix_length, suffix) != NULL;
}

/* Whether it is the service in which a user's own manager runs: user@UID.service. */
static bool is_manager(const char *start, size_t length) {
    const char *at = text_after(start, MANAGER);
    const char *end = start + length - (sizeof SERVICE - 1);
    if (at == NULL || at >= end)
        return false;
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at == end;
}

static bool ends_line(char c) {
    return c == '\n' || c == '\0';
}

/* The system's service of a control group: the first component behind the slices. Whoever was given its group names what is below; in that
 * of a user's manager these are the user's services, which are no programs of their own. */
static const char *service_of(const char *path, size_t *length) {
    for (const char *at = path; !ends_line(*at);) {
        const char *start = at;
        while (*at != '/' && !ends_line(*at))
            at++;
        *length = (size_t)(at - start);
        if (*length == 0 || ends(start, *length, SLICE, sizeof SLICE - 1)) {
            at += *at == '/';
            continue;
        }
        if (!ends(start, *length, SERVICE, sizeof SERVICE - 1) || is_manager(start, *length))
            return NULL;
        size_t escape = *start == '_'; /* systemd's, before a name that could be a file of the kernel's */
        *length -= escape;
        return *length > sizeof SERVICE - 1 ? start + escape : NULL;
    }
    return NULL;
}

static const char *next_line(const char *line) {
    while (!ends_line(*line))
        line++;
    return *line == '\n' ? line + 1 : line;
}

const char *service_unit_in(const char *cgroup, size_t *length) {
    for (const char *line = cgroup; *line != '\0'; line = next_line(line)) {
        const char *unified = text_after(line, "0::");
        if (unified != NULL && !(unified[0] == '/' && ends_line(unified[1])))
            return service_of(unified, length);
    }
    for (const char *line = cgroup; *line != '\0'; line = next_line(line)) {
        const char *at = line;
        while (*at != ':' && !ends_line(*at))
            at++;
        const char *path = text_after(at, ":name=systemd:");
        if (path != NULL)
            return service_of(path, length);
    }
    return NULL;
}

size_t service_unit_program(const char *service, size_t length, char unit[UNIT_BYTES]) {
    size_t at = 0;
    for (; at < length && (service[at] != '@' || service[0] == '@'); at++)
        unit[at] = service[at];
    unit[at] = '\0';
    return at < length ? at + text_copy(unit + at, UNIT_BYTES - at, "@" SERVICE) : at;
}

bool service_unit_find(struct index_key *key, char unit[UNIT_BYTES]) {
    char text[4096];
    if (sys_read_text("/proc/self/cgroup", text, sizeof text) < 0)
        return false;
    size_t length = 0;
    const char *found = service_unit_in(text, &length);
    if (found == NULL || length >= UNIT_BYTES)
        return false;
    length = service_unit_program(found, length, unit);
    key->detail_kind = IMAS_DETAIL_UNIT;
    key->detail[0] = fnv64(unit, length);
    key->detail[1] = length;
    return true;
}
