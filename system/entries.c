// SPDX-License-Identifier: Apache-2.0
#include "entries.h"

#include <string.h>

static bool separates(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == ':';
}

/* The text with blanks for what glibc takes for comments. After each comment, glibc searches for the next one
 * from the beginning of the file, but only over as many bytes as follow the comment. If few follow, it misses
 * later comments, or blanks a part of one. */
static const char *without_comments(const struct text *text) {
    static char seen[ENTRIES_MOST];
    memcpy(seen, text->bytes, text->length);
    size_t rest = text->length;
    char *comment;
    while (rest > 0 && (comment = memchr(seen, '#', rest)) != NULL) {
        rest -= (size_t)(comment - seen);
        do {
            *comment = ' ';
        } while (--rest > 0 && *++comment != '\n');
    }
    return seen;
}

/* The next entry at or after `*at`: its start, and its length in `*length`; `*at` moves past it. False: no
 * more. */
static bool next_entry(const char *seen, size_t end, size_t *at, size_t *start, size_t *length) {
    size_t i = *at;
    while (i < end && separates(seen[i])) {
        i++;
    }
    *start = i;
    while (i < end && !separates(seen[i])) {
        i++;
    }
    *length = i - *start;
    *at = i;
    return *length > 0;
}

/* The first wanted entry; `*length` 0: there is none. */
static size_t first_wanted(const struct text *text, entries_wanted *wanted, const void *what, size_t *length) {
    const char *seen = without_comments(text);
    size_t at = 0, start;
    while (next_entry(seen, text->length, &at, &start, length)) {
        if (wanted(text->bytes + start, *length, what)) {
            return start;
        }
    }
    return 0;
}

bool entries_is(const char *name, size_t length, const void *what) {
    const char *wanted = what;
    return strlen(wanted) == length && memcmp(name, wanted, length) == 0;
}

bool entries_is_ours(const char *name, size_t length, const void *nothing) {
    (void)nothing;
    const char *slash = memrchr(name, '/', length);
    const char *file = slash ? slash + 1 : name;
    size_t left = length - (size_t)(file - name);
    return left >= strlen("libimas.so") && memcmp(file, "libimas", 7) == 0 && memcmp(file + left - 3, ".so", 3) == 0;
}

bool entries_readable(const struct text *text) {
    return memchr(text->bytes, 0, text->length) == NULL;
}

bool entries_nameable(const char *name) {
    if (name[0] != '/') {
        return false;
    }
    for (const char *c = name; *c; c++) {
        if (separates(*c) || *c == '#' || (unsigned char)*c < ' ' || *c == 0x7f) {
            return false;
        }
    }
    return true;
}

size_t entries_find(const struct text *text, entries_wanted *wanted, const void *what) {
    size_t length, line = 1, start = first_wanted(text, wanted, what, &length);
    for (size_t i = 0; i < start; i++) {
        line += text->bytes[i] == '\n';
    }
    return length ? line : 0;
}

size_t entries_count(const struct text *text) {
    const char *seen = without_comments(text);
    size_t at = 0, start, length, count = 0;
    while (next_entry(seen, text->length, &at, &start, &length)) {
        count++;
    }
    return count;
}

bool entries_blank(const struct text *text) {
    for (size_t i = 0; i < text->length; i++) {
        if (!separates(text->bytes[i])) {
            return false;
        }
    }
    return true;
}

static void append(struct text *text, const char *what, size_t length) {
    memcpy(text->bytes + text->length, what, length);
    text->length += length;
}

bool entries_add(struct text *text, const char *name) {
    size_t length = strlen(name);
    if (text->length + length + 2 > sizeof text->bytes) {
        return false;
    }
    if (text->length > 0 && text->bytes[text->length - 1] != '\n') {
        append(text, "\n", 1);
    }
    append(text, name, length);
    append(text, "\n", 1);
    return true;
}

/* Cuts the entry at [start, end): the whole line if nothing else is on it, else itself and one separator
 * beside it. */
static void cut_entry(struct text *text, size_t start, size_t end) {
    bool begins_line = start == 0 || text->bytes[start - 1] == '\n';
    bool ends_line = end == text->length || text->bytes[end] == '\n';
    bool comment_follows = end < text->length && text->bytes[end] == '#';
    if (begins_line && ends_line) {
        end += end < text->length;
    } else if (!ends_line && !comment_follows) {
        end++;
    } else if (!begins_line) {
        start--;
    }
    memmove(text->bytes + start, text->bytes + end, text->length - end);
    text->length -= end - start;
}

size_t entries_remove(struct text *text, entries_wanted *wanted, const void *what) {
    size_t removed = 0, start, length;
    /* From the beginning each time: what counts as a comment depends on the length of the text. */
    while (start = first_wanted(text, wanted, what, &length), length > 0) {
        cut_entry(text, start, start + length);
        removed++;
    }
    return removed;
}
