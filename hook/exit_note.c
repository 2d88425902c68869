// SPDX-License-Identifier: Apache-2.0
#include "exit_note.h"

#include "libc.h"
#include "page.h"
#include "sys.h"

extern void *__dso_handle;

static bool (*before_note)(void);
static bool installed;

static void note_exit(int status) {
    if (!installed || !page_is_ours() || (before_note != NULL && !before_note()))
        return;
    set_relaxed(page_header->exit_status, status);
    set_relaxed(page_header->clean_exit, 1);
}

static void on_exit_call(int status, void *argument) {
    (void)argument;
    note_exit(status);
}

static void on_quick_exit_call(void *object) {
    (void)object;
    note_exit(-1); /* quick_exit passes no status to its handlers */
}

/* Registered before those of main and ld.so, our handler runs last: all that the program does in exit
 * handlers and destructors is counted. Both functions have room for 32 handlers without allocating. */
void exit_note_install(bool (*before)(void)) {
    before_note = before;
    installed = true;
    if (libc_on_exit != NULL)
        libc_on_exit(on_exit_call, NULL);
    if (libc_at_quick_exit != NULL)
        libc_at_quick_exit(on_quick_exit_call, &__dso_handle);
}

EXPORT _Noreturn void _exit(int status) {
    note_exit(status & 0xff);
    for (;;)
        sys1(SYS_exit_group, status);
}

EXPORT _Noreturn void _Exit(int status) {
    _exit(status);
}
