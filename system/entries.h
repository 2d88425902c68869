// SPDX-License-Identifier: Apache-2.0
/*
 * entries.h - the text of ld.so.preload as the dynamic linker reads it: names separated by blank, tab, newline or colon;
 * `#` begins a comment that goes to the end of its line, but glibc (seen in 2.36) overlooks later comments, and takes their
 * words for entries. What it takes for an entry is one here. Pure: text in, text out.
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

/* Says whether an entry is meant. `length` bytes at `name`, not ended by NUL. */
typedef bool entries_wanted(const char *name, size_t length, const void *what);

/* An entry that is exactly the string `what`. */
bool entries_is(const char *name, size_t length, const void *what);
/* An entry whose file name is libimas*.so, wherever it stands. */
bool entries_is_ours(const char *name, size_t length, const void *nothing);

/* The text can be read as ld.so reads it: no NUL byte, which would end the file for it. */
bool entries_readable(const struct text *text);
/* A name that can stand in the file: absolute, no separator, comment sign or control character. */
bool entries_nameable(const char *name);
/* The line, from 1, of the first wanted entry; 0: there is none. */
size_t entries_find(const struct text *text, entries_wanted *wanted, const void *what);
/* How many entries there are. */
size_t entries_count(const struct text *text);
/* Nothing but blanks, tabs, newlines and colons. */
bool entries_blank(const struct text *text);

/* Puts the entry behind everything, on a line of its own. In front it would move others' comments, and make glibc overlook
 * one that it had seen; for the same reason no comment of ours goes with it. False: it does not fit. */
bool entries_add(struct text *text, const char *name);
/* Takes every wanted entry out, with its line if nothing else stands there. Answers how many. */
size_t entries_remove(struct text *text, entries_wanted *wanted, const void *what);

#endif
