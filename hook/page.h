// SPDX-License-Identifier: Apache-2.0
/*
 * page.h - the file into which this process writes what happens to it (abi/imas_abi.h).
 *
 * There is always a header to write to: a private one, which nobody reads, until page_open succeeds and again
 * in a child. So no writer has to check whether there is a page.
 */
#ifndef IMAS_HOOK_PAGE_H
#define IMAS_HOOK_PAGE_H

#include <stdbool.h>

#include "../abi/imas_abi.h"
#include "sys.h"

/* Never NULL. */
HIDDEN extern struct imas_page_header *page_header;

/* Maps the page that the launcher made for this very process, or returns NULL: it must be a regular file of
 * our own with the exact size, magic, version and kind, armed, not used yet, and carry our pid. */
struct imas_page_header *page_open(const char *path, enum imas_page_kind kind);

/* As page_open, but read only and for any pid and state: the page whose identity a child repeats. */
const struct imas_page_header *page_look(const char *path);

/* From now on all notes go to `header`. */
void page_use(struct imas_page_header *header);

/* From now on notes go to the private header: for a forked child, which must not write into its parent's
 * page. */
void page_leave(void);

/* Makes the page ready for the image that replaces this one: it is armed again. Fails, and changes nothing, in a child and
 * where that image could not open it. page_note_state takes it back. */
bool page_await(const char *path, uint32_t *state);

/* Whether this process is the one that opened the page: false in a child that fork handlers did not see. */
bool page_is_ours(void);

/* Before and after system calls that the program would not make. */
static inline void page_begin_own_calls(void) {
    add_relaxed(page_header->own_calls, 1);
}

static inline void page_end_own_calls(void) {
    add_relaxed(page_header->own_calls, (uint64_t)-1);
}

/* The state never goes back to a lower one, but for page_await. */
void page_note_state(enum imas_state state);
void page_note_pass(enum imas_pass_reason reason);

#endif
