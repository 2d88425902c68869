// SPDX-License-Identifier: Apache-2.0
#include "exit_note.h"

#include "libc.h"
#include "next_found.h"
#include "page.h"
#include "sandbox.h"
#include "sys.h"

extern void *__dso_handle;

static bool (*before_note)(void);
static bool installed, exec_failed;

static void note_exit(int status) {
    if (!installed || !page_is_ours() || (before_note != NULL && !before_note()))
        return;
    set_relaxed(page_header->exit_status, status);
    set_relaxed(page_header->clean_exit, 1);
}

void exit_note_exec_failed(void) {
    exec_failed = true;
}

/* Whether this may be such a child: it has its parent's memory. */
static bool is_of_vfork(void) {
    return unlikely(exec_failed) && !sandbox_entered() && (long)page_header->pid != sys0(SYS_getpid);
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

typedef void exit_call(int status);

static exit_call *next_exit, *next_big_exit;

void exit_note_prepare(void) {
    NEXT_LISTED(next_exit, "_exit"), NEXT_LISTED(next_big_exit, "_Exit");
}

/* Handed on: a library that watches the process may have its own. */
static _Noreturn void leave(exit_call *next, int status) {
    if (!is_of_vfork())
        note_exit(status & 0xff);
    if (likely(next != NULL))
        next(status);
    for (;;)
        sys1(SYS_exit_group, status);
}

EXPORT _Noreturn void _exit(int status) {
    leave(NEXT_LISTED(next_exit, "_exit"), status);
}

EXPORT _Noreturn void _Exit(int status) {
    leave(NEXT_LISTED(next_big_exit, "_Exit"), status);
}
