// SPDX-License-Identifier: Apache-2.0
#include "statistics.h"

#include <string.h>
#include <unistd.h>

enum { VALUE_COLUMN = 14, LINE_BYTES = VALUE_COLUMN + 21, LINES = 9 };

static const char title[] = "\nheap management statistics\n";

struct text {
    char bytes[sizeof title + LINES * LINE_BYTES];
    size_t length;
};

static void put_word(struct text *text, const char *word)
{
    size_t length = strlen(word);
    memcpy(text->bytes + text->length, word, length);
    text->length += length;
}

static void put_number(struct text *text, size_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    memcpy(text->bytes + text->length, digits + at, sizeof digits - at);
    text->length += sizeof digits - at;
}

/* snprintf is not used: it may allocate, and the heap is not to change while it is described. */
static void put_line(struct text *text, const char *label, size_t value)
{
    static const char blanks[] = "              ";
    put_word(text, label);
    put_word(text, blanks + strlen(label));
    put_number(text, value);
    put_word(text, "\n");
}

void statistics_print(const struct statistics *s, int fd)
{
    struct text text = {.length = 0};
    put_word(&text, title);
    put_line(&text, "mallocs:", s->mallocs);
    put_line(&text, "frees:", s->frees);
    put_line(&text, "reuses:", s->reuses);
    put_line(&text, "grows:", s->grows);
    put_line(&text, "splits:", s->splits);
    put_line(&text, "coalesces:", s->coalesces);
    put_line(&text, "blocks:", s->blocks);
    put_line(&text, "requested:", s->requested_bytes);
    put_line(&text, "max heap:", s->max_heap_bytes);
    ssize_t written = write(fd, text.bytes, text.length);
    (void)written; /* the program is ending; a closed stderr is its choice */
}
