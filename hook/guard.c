// SPDX-License-Identifier: Apache-2.0
/*
 * guard.c - libimas-guard.so: the library that is preloaded before the allocator in production.
 *
 * It defines no malloc, so a call costs what it costs with the allocator preloaded by hand. At start it
 * restores the environment, so that children start without us. After that it acts only when the program calls
 * dlopen, starts a program, registers fork handlers or sets signal handlers, and, in a process with a page, at
 * a fatal signal and at the end.
 */
#include <sys/auxv.h>

#include "children.h"
#include "deepbind.h"
#include "disposition.h"
#include "environment.h"
#include "exit_note.h"
#include "fatal.h"
#include "fork_order.h"
#include "interface.h"
#include "libc.h"
#include "object.h"
#include "page.h"
#include "sys.h"
#include "unfit.h"

extern char **environ;
extern void *malloc(size_t size);
extern void free(void *block);

/* Allocators read their settings from the environment at their first call; afterwards those may go. Where
 * nothing was set for the allocator, a program that never allocates is spared that call. */
static void let_allocator_read_settings(char **environment) {
    if (!environment_has_settings(environment))
        return;
    void *volatile block = malloc(1);
    free(block);
}

static bool open_flight_page(char **environment) {
    const char *path = environment_value(environment, IMAS_ENV_PAGE);
    struct imas_page_header *header = path != NULL ? page_open(path, IMAS_PAGE_FLIGHT) : NULL;
    if (header != NULL)
        page_use(header);
    return header != NULL;
}

static enum imas_pass_reason why_unfit(const void *serving) {
    if (unfit_sanitizer())
        return IMAS_PASS_SANITIZER;
    if (serving != object_libc() && unfit_split_family(serving))
        return IMAS_PASS_OWN_MALLOC;
    return interface_is_called() ? IMAS_PASS_INTERFACE : IMAS_PASS_NONE;
}

static void take_notes(const void *serving_malloc) {
    object_allocator_name(serving_malloc, page_header->served, sizeof page_header->served);
    if (page_header->ns_start == 0) { /* not the page of an image before (again.h) */
        page_header->ticks_start = ticks_now();
        page_header->ns_start = sys_monotonic_ns();
    }
    fatal_install();
    exit_note_install(NULL);
    page_note_state(IMAS_STATE_ACTIVE);
}

static void watch_over(char **arguments, char **environment) {
    const void *serving_malloc = object_next("malloc");
    const void *serving = object_of(serving_malloc);
    deepbind_strip(serving != object_libc());
    bool noted = open_flight_page(environment);
    enum imas_pass_reason reason = why_unfit(serving);
    if (reason == IMAS_PASS_NONE) {
        let_allocator_read_settings(environment);
        if (noted)
            take_notes(serving_malloc);
    } else {
        page_note_pass(reason);
        unfit_start_clean(arguments, environment);
    }
}

__attribute__((constructor)) static void enter(int argc, char **arguments, char **at_start) {
    (void)argc;
    disposition_prepare();
    exit_note_prepare();
    fork_order_resolve();
    if (libc_getauxval == NULL || libc_getauxval(AT_SECURE) != 0) {
        deepbind_strip(false);
        return;
    }
    char **environment = environ != NULL ? environ : at_start;
    if (environment_flag(environment, IMAS_ENV_DISABLE))
        deepbind_strip(false);
    else
        watch_over(arguments, environment);
    children_begin(environment);
    environment_restore(environment);
    if (at_start != environment)
        environment_restore(at_start); /* a library's constructor called setenv: both arrays may be read */
}
