// SPDX-License-Identifier: Apache-2.0
#include "entries.h"

#include <string.h>

const char entries_mark[] = "# made by imas-ldpreload; deleted with its last entry\n";

static bool separates(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == ':';
}

/* The next entry at or after `*at`: its start, and its length in `*length`; `*at` moves behind it. False: no more. */
static bool next_entry(const struct text *text, size_t *at, size_t *start, size_t *length) {
    const char *bytes = text->bytes;
    size_t i = *at, end = text->length;
    while (i < end && (separates(bytes[i]) || bytes[i] == '#')) {
        if (bytes[i] == '#') {
            while (i < end && bytes[i] != '\n') {
                i++;
            }
        } else {
            i++;
        }
    }
    *start = i;
    while (i < end && !separates(bytes[i]) && bytes[i] != '#') {
        i++;
    }
    *length = i - *start;
    *at = i;
    return *length > 0;
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
    size_t at = 0, start, length;
    while (next_entry(text, &at, &start, &length)) {
        if (wanted(text->bytes + start, length, what)) {
            size_t line = 1;
            for (size_t i = 0; i < start; i++) {
                line += text->bytes[i] == '\n';
            }
            return line;
        }
    }
    return 0;
}

size_t entries_count(const struct text *text) {
    size_t at = 0, start, length, count = 0;
    while (next_entry(text, &at, &start, &length)) {
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

static void insert(struct text *text, const char *what, size_t length) {
    memmove(text->bytes + length, text->bytes, text->length);
    memcpy(text->bytes, what, length);
    text->length += length;
}

static void cut(struct text *text, size_t from, size_t to) {
    memmove(text->bytes + from, text->bytes + to, text->length - to);
    text->length -= to - from;
}

bool entries_add(struct text *text, const char *name, bool marked) {
    size_t length = strlen(name), mark = marked ? strlen(entries_mark) : 0;
    if (text->length + length + 1 + mark > sizeof text->bytes) {
        return false;
    }
    insert(text, "\n", 1);
    insert(text, name, length);
    insert(text, entries_mark, mark);
    return true;
}

/* Cuts the entry at [start, end): the whole line if it stands there alone, else itself and one separator beside it. */
static void cut_entry(struct text *text, size_t start, size_t end) {
    bool begins_line = start == 0 || text->bytes[start - 1] == '\n';
    bool ends_line = end == text->length || text->bytes[end] == '\n';
    bool comment_follows = end < text->length && text->bytes[end] == '#';
    if (begins_line && ends_line) {
        end += end < text->length;
    } else if (!ends_line && !comment_follows) {
        end++;
    } else if (!begins_line && text->bytes[start - 1] != '\n') {
        start--;
    }
    cut(text, start, end);
}

static bool cut_mark(struct text *text) {
    size_t length = strlen(entries_mark);
    for (size_t at = 0; at + length <= text->length;) {
        if (memcmp(text->bytes + at, entries_mark, length) == 0) {
            cut(text, at, at + length);
            return true;
        }
        const char *newline = memchr(text->bytes + at, '\n', text->length - at);
        if (!newline) {
            break;
        }
        at = (size_t)(newline - text->bytes) + 1;
    }
    return false;
}

size_t entries_remove(struct text *text, entries_wanted *wanted, const void *what, bool *was_marked) {
    size_t removed = 0, at = 0, start, length;
    while (next_entry(text, &at, &start, &length)) {
        if (wanted(text->bytes + start, length, what)) {
            cut_entry(text, start, start + length);
            removed++;
            at = start > 0 ? start - 1 : 0; /* what was cut may have been before `start` as well */
            while (at > 0 && text->bytes[at - 1] != '\n') {
                at--; /* from the line's begin, so that a comment is seen as one */
            }
        }
    }
    *was_marked = removed > 0 && cut_mark(text);
    return removed;
}
