// SPDX-License-Identifier: Apache-2.0
/*
 * enter.c - the constructor of libimas-record.so. It decides whether to record, starts recording, and sets
 * handlers for ends of threads, forks and exit. With IMAS_TREE=1 it leaves the environment as it is, so that children
 * are recorded, too; else it restores it.
 */
#include <sys/auxv.h>

#include "../abi/imas_abi.h"
#include "../hook/deepbind.h"
#include "../hook/environment.h"
#include "../hook/fork_order.h"
#include "../hook/interface.h"
#include "../hook/libc.h"
#include "../hook/object.h"
#include "../hook/raw_filter.h"
#include "../hook/sys.h"
#include "../hook/unfit.h"
#include "family.h"
#include "journal.h"

extern char **environ;

typedef int key_create(unsigned *key, void (*at_end)(void *value));
typedef int set_specific(unsigned key, const void *value);

static set_specific *set_key;
static unsigned key;

static void thread_ends(void *value) {
    (void)value;
    journal_thread_end();
}

/* libc keeps the values of the first 32 keys in the thread's own structure, so setting one allocates
 * nothing. */
static void watch_thread(void) {
    set_key(key, &key);
}

static void watch_threads(void) {
    key_create *make_key = (key_create *)object_next("pthread_key_create");
    set_key = (set_specific *)object_next("pthread_setspecific");
    if (make_key != NULL && set_key != NULL && make_key(&key, thread_ends) == 0)
        __atomic_store_n(&journal_new_thread, &watch_thread, __ATOMIC_RELEASE); /* threads of other constructors may run */
}

static void at_exit(int status, void *argument) {
    (void)status;
    (void)argument;
    journal_at_exit();
}

static void in_parent(void) {
}

static void find_functions(void) {
    const char *single = (const char *)object_next("__libc_single_threaded"); /* since 2.32 */
    if (single != NULL)
        journal_single = single;
    family_posix_memalign = (int (*)(void **, size_t, size_t))object_next("posix_memalign");
    family_usable_size = (size_t(*)(void *))object_next("malloc_usable_size");
    family_aligned_alloc = (void *(*)(size_t, size_t))object_next("aligned_alloc");
}

/* Whether the process uses another allocator, or would use one if this library did not come first. */
static bool is_unfit(void) {
    return unfit_sanitizer() || unfit_split_family(object_of((const void *)is_unfit)) || interface_other_malloc();
}

/* The format holds addresses of 48 bits. Where the kernel gives programs more, stacks lie at the upper end. */
static bool addresses_fit(void) {
    uintptr_t address = (uintptr_t)__builtin_frame_address(0) >> 4;
    return (address & ~IMAS_WORD_BLOCK_MASK) == 0;
}

static void refuse_addresses(void) {
    static const char why[] = "imas: cannot record: the addresses of this machine have more than 48 bits\n";
    sys3(SYS_write, 2, why, sizeof why - 1);
    journal_stop(IMAS_RECORD_UNFIT);
}

static void record(char **arguments, char **environment) {
    const char *control = environment_value(environment, IMAS_ENV_PAGE);
    if (control == NULL || environment_flag(environment, IMAS_ENV_DISABLE)) {
        journal_stop(IMAS_RECORD_UNFIT);
        return;
    }
    if (!addresses_fit()) {
        refuse_addresses();
        return;
    }
    if (!journal_open(control))
        return;
    if (is_unfit()) {
        journal_stop(IMAS_RECORD_UNFIT);
        unfit_start_clean(arguments, environment);
        return;
    }
    if (raw_filter_is_likely()) {
        journal_stop(IMAS_RECORD_SANDBOX);
        return;
    }
    fork_order_add(in_parent, journal_in_child);
    watch_threads();
    if (libc_on_exit != NULL)
        libc_on_exit(at_exit, NULL);
}

static void record_and_restore(char **arguments, char **at_start) {
    char **environment = environ != NULL ? environ : at_start;
    record(arguments, environment);
    environment_restore(environment);
    if (at_start != environment)
        environment_restore(at_start); /* a library's constructor called setenv: both arrays may be read */
}

__attribute__((constructor)) static void enter(int argc, char **arguments, char **at_start) {
    (void)argc;
    fork_order_resolve();
    find_functions();
    bool secure = libc_getauxval == NULL || libc_getauxval(AT_SECURE) != 0;
    deepbind_strip(!secure);
    if (secure)
        journal_stop(IMAS_RECORD_UNFIT);
    else
        record_and_restore(arguments, at_start);
}
