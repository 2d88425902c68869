// SPDX-License-Identifier: Apache-2.0
/*
 * entries.h - the text of ld.so.preload as the dynamic linker reads it: names separated by blank, tab,
 * newline or colon; `#` begins a comment that goes to the end of its line, but glibc (seen in 2.36) misses
 * later comments and takes their words for entries. What glibc takes for an entry is one here. No input or
 * output: text in, text out.
 */
#ifndef IMAS_ENTRIES_H
#define IMAS_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>

/* More than any real one has; a longer file is refused. */
#define ENTRIES_MOST 65536u

struct text {
    size_t length;
    char bytes[ENTRIES_MOST];
};

/* Whether an entry is wanted. `length` bytes at `name`, not ended by NUL. */
typedef bool entries_wanted(const char *name, size_t length, const void *what);

/* An entry that is exactly the string `what`. */
bool entries_is(const char *name, size_t length, const void *what);
/* An entry whose file name is libimas*.so, in whatever folder. */
bool entries_is_ours(const char *name, size_t length, const void *nothing);

/* The text can be read as ld.so reads it: no NUL byte, which would end the file for it. */
bool entries_readable(const struct text *text);
/* A name that can be in the file: absolute, no separator, comment sign or control character. */
bool entries_nameable(const char *name);
/* The line, from 1, of the first wanted entry; 0: there is none. */
size_t entries_find(const struct text *text, entries_wanted *wanted, const void *what);
/* How many entries there are. */
size_t entries_count(const struct text *text);
/* Nothing but blanks, tabs, newlines and colons. */
bool entries_blank(const struct text *text);

/* Appends the entry, on a line of its own. At the beginning it would move comments, and glibc might miss one
 * that it had seen; for the same reason we add no comment. False: it does not fit. */
bool entries_add(struct text *text, const char *name);
/* Removes every wanted entry, with its line if nothing else is on it. Returns how many. */
size_t entries_remove(struct text *text, entries_wanted *wanted, const void *what);

#endif
