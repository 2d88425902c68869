// SPDX-License-Identifier: Apache-2.0
#include "service_unit.h"

#include "fnv.h"
#include "sys.h"
#include "text.h"

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

const char *service_unit_in(const char *cgroup, size_t *length) {
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
