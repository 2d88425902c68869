// SPDX-License-Identifier: Apache-2.0
/*
 * trial.c - libimas.so's constructor: finds the real family, decides whether to count, gives the environment
 * back.
 */
#include <signal.h>
#include <sys/auxv.h>
#include <sys/resource.h>

#include "allocator_stats.h"
#include "call.h"
#include "children.h"
#include "deepbind.h"
#include "disposition.h"
#include "environment.h"
#include "exit_note.h"
#include "fatal.h"
#include "fork_order.h"
#include "full.h"
#include "interface.h"
#include "libc.h"
#include "lineage.h"
#include "next.h"
#include "object.h"
#include "page.h"
#include "proc.h"
#include "raw_filter.h"
#include "snapshot.h"
#include "sys.h"
#include "text.h"
#include "thread.h"
#include "unfit.h"

extern char **environ;

/* ---- reasons to count nothing -------------------------------------------------------------------------- */

static uint64_t soft_limit(int resource) {
    struct rlimit limit;
    return sys4(SYS_prlimit64, 0, resource, NULL, &limit) == 0 ? (uint64_t)limit.rlim_cur : (uint64_t)RLIM_INFINITY;
}

static bool under_valgrind(char **environment) {
    const char *preloads = environment_value(environment, "LD_PRELOAD");
    return preloads != NULL && text_contains(preloads, "/vgpreload_");
}

static bool switched_off(char **environment) {
    return environment_flag(environment, IMAS_ENV_DISABLE) ||
           sys3(SYS_faccessat, AT_FDCWD, "/run/imas/disabled", 0) == 0;
}

static bool audited(char **environment) {
    const char *audit = environment_value(environment, "LD_AUDIT");
    return audit != NULL && *audit != '\0';
}

static enum imas_pass_reason why_pass(char **environment, bool whole_family) {
    if (sys0(SYS_getpid) == 1)
        return IMAS_PASS_PID1;
    if (switched_off(environment))
        return IMAS_PASS_DISABLED;
    if (under_valgrind(environment))
        return IMAS_PASS_VALGRIND;
    if (audited(environment))
        return IMAS_PASS_LD_AUDIT;
    if (unfit_sanitizer())
        return IMAS_PASS_SANITIZER;
    if (unfit_split_family(object_of((const void *)why_pass)))
        return IMAS_PASS_OWN_MALLOC;
    if (interface_is_called())
        return IMAS_PASS_INTERFACE;
    if (!whole_family)
        return IMAS_PASS_NO_ALLOCATOR;
    if (next_was_called_in_relocation() && object_of((const void *)next.malloc) != object_libc())
        return IMAS_PASS_TOO_EARLY;
    if (proc_seccomp() != 0)
        return IMAS_PASS_SECCOMP;
    if (raw_filter_is_likely())
        return IMAS_PASS_OWN_FILTER;
    return soft_limit(RLIMIT_AS) != (uint64_t)RLIM_INFINITY ? IMAS_PASS_RLIMIT_AS : IMAS_PASS_NONE;
}

/* ---- the page ------------------------------------------------------------------------------------------ */

/* The launcher's page if it is ours; in a counted tree, one of our own beside it. */
static struct imas_page *find_page(const char *path, bool tree) {
    if (path == NULL)
        return NULL;
    struct imas_page *page = (struct imas_page *)page_open(path, IMAS_PAGE_TRIAL);
    return page == NULL && tree ? lineage_page_for_us(path) : page;
}

/* ---- starting ------------------------------------------------------------------------------------------ */

#define CALIBRATIONS 101

static uint64_t middle_of(uint64_t *values, int count) {
    for (int i = 1; i < count; i++) {
        uint64_t value = values[i];
        int at = i;
        for (; at > 0 && values[at - 1] > value; at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
    return values[count / 2];
}

/* The median of many: some are interrupted, and the first are cold. */
static uint64_t calibrate_empty_pair(void) {
    uint64_t ticks[CALIBRATIONS];
    for (int i = 0; i < CALIBRATIONS; i++) {
        uint64_t start = ticks_now();
        ticks[i] = ticks_now() - start;
    }
    return middle_of(ticks, CALIBRATIONS);
}

/* Allocators read their settings from the environment at their first call; afterwards those may go. */
static void let_allocator_read_settings(void) {
    void *volatile block = next.malloc(1);
    next.free(block);
}

static void start_trial(struct imas_page *page, const char *page_path, bool tree) {
    let_allocator_read_settings();
    object_allocator_name((const void *)next.malloc, page->header.served, sizeof page->header.served);
    call_empty_pair = calibrate_empty_pair();
    page->header.empty_pair_ticks_256 = call_empty_pair * 256;
    uint64_t stack = soft_limit(RLIMIT_STACK);
    proc_note_stack_size(stack != (uint64_t)RLIM_INFINITY ? stack : UINT64_C(2) << 20);
    allocator_stats_find();
    fatal_install();
    exit_note_install(snapshot_at_exit);
    lineage_install(page_path, tree);
    lineage_begin(page);
}

static void decide(char **arguments, char **environment, bool whole_family) {
    const char *path = environment_value(environment, IMAS_ENV_PAGE);
    bool tree = environment_flag(environment, IMAS_ENV_TREE);
    struct imas_page *page = find_page(path, tree);
    if (page != NULL)
        page_use(&page->header);
    enum imas_pass_reason reason = why_pass(environment, whole_family);
    if (reason == IMAS_PASS_NONE && page != NULL) {
        full_begin(environment);
        start_trial(page, path, tree);
        return;
    }
    page_note_pass(reason);
    if (reason == IMAS_PASS_OWN_MALLOC || reason == IMAS_PASS_SANITIZER || reason == IMAS_PASS_INTERFACE)
        unfit_start_clean(arguments, environment);
}

__attribute__((constructor)) static void enter(int argc, char **arguments, char **at_start) {
    (void)argc;
    disposition_prepare();
    exit_note_prepare();
    fork_order_resolve();
    bool whole_family = next_find();
    next_seal();
    bool candidate_serves = next_found() && object_of((const void *)next.malloc) != object_libc();
    bool secure = libc_getauxval == NULL || libc_getauxval(AT_SECURE) != 0;
    deepbind_strip(candidate_serves && !secure);
    if (secure)
        return;
    char **environment = environ != NULL ? environ : at_start;
    decide(arguments, environment, whole_family);
    children_begin(environment);
    environment_restore(environment);
    if (at_start != environment)
        environment_restore(at_start); /* a library's constructor called setenv: both arrays may be read */
}
