// SPDX-License-Identifier: Apache-2.0
/* text.h - the little text handling injected code needs, on buffers of the caller. */
#ifndef IMAS_HOOK_TEXT_H
#define IMAS_HOOK_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What follows `prefix` in `text`, or NULL when it does not start so. */
static inline const char *text_after(const char *text, const char *prefix) {
    while (*prefix != '\0') {
        if (*text++ != *prefix++)
            return NULL;
    }
    return text;
}

static inline bool text_equal(const char *a, const char *b) {
    const char *rest = text_after(a, b);
    return rest != NULL && *rest == '\0';
}

static inline size_t text_length(const char *text) {
    size_t length = 0;
    while (text[length] != '\0')
        length++;
    return length;
}

static inline bool text_contains(const char *text, const char *part) {
    for (; *text != '\0'; text++) {
        if (text_after(text, part) != NULL)
            return true;
    }
    return false;
}

/* The last component of a path. */
static inline const char *text_base_name(const char *path) {
    const char *base = path;
    for (; *path != '\0'; path++) {
        if (*path == '/')
            base = path + 1;
    }
    return base;
}

/* Copies as much as fits into `size` bytes, always ended by '\0'. Returns the length copied. */
static inline size_t text_copy(char *to, size_t size, const char *from) {
    size_t at = 0;
    for (; at + 1 < size && from[at] != '\0'; at++)
        to[at] = from[at];
    to[at] = '\0';
    return at;
}

/* Writes `value` in decimal at `to` (21 bytes of room) and returns the end. */
static inline char *text_decimal(char *to, uint64_t value) {
    char digits[20];
    int count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (count > 0)
        *to++ = digits[--count];
    *to = '\0';
    return to;
}

/* Copies `text` with its '\0' and returns where that is. The caller knows that there is room. */
static inline char *text_append(char *to, const char *text) {
    while (*text != '\0')
        *to++ = *text++;
    *to = '\0';
    return to;
}

/* Writes `value` as 16 hexadecimal digits at `to` (17 bytes of room) and returns the end. */
static inline char *text_hex(char *to, uint64_t value) {
    for (int shift = 60; shift >= 0; shift -= 4)
        *to++ = "0123456789abcdef"[value >> shift & 15];
    *to = '\0';
    return to;
}

/* Reads a decimal number at `*at` and moves `*at` past it; 0 when there is none. */
static inline uint64_t text_number(const char **at) {
    uint64_t value = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++)
        value = value * 10 + (uint64_t)(**at - '0');
    return value;
}

#endif
