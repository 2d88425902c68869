// SPDX-License-Identifier: Apache-2.0
#include "libc.h"

#include <stdbool.h>

#include "loaded.h"
#include "sys.h"
#include "text.h"

/* As struct libc has them. */
static const char names[] = "dlsym\0dladdr1\0dlerror\0dl_iterate_phdr\0getauxval\0on_exit\0__cxa_at_quick_exit\0"
                            "gnu_get_libc_version\0__sigaction\0ssignal\0";

static union {
    struct libc functions;
    void *function[sizeof(struct libc) / sizeof(void *)];
} own;

void *const volatile libc_relocated = (void *)&libc_relocated;

static bool is_of_libc(const struct loaded *tables) {
    static const char sonames[] = "libc.so.6\0libdl.so.2\0libpthread.so.0\0";
    for (const char *name = sonames; tables->soname != NULL && *name != '\0'; name += text_length(name) + 1) {
        if (text_equal(tables->soname, name))
            return true;
    }
    return false;
}

/* The first definition in the order of the list counts, as in ld.so's search. */
static void take_from(const struct link_map *object, const struct loaded *tables) {
    void **place = own.function;
    for (const char *name = names; *name != '\0'; name += text_length(name) + 1, place++) {
        const ElfW(Sym) *symbol = get_relaxed(*place) == NULL ? loaded_definition(tables, name, loaded_hash(name)) : NULL;
        if (symbol != NULL && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC)
            set_relaxed(*place, (void *)(object->l_addr + symbol->st_value));
    }
}

/* Two threads may both search: they find the same. The list is empty while ld.so relocates a program that has a copy of
 * it. */
static NOINLINE bool find(void) {
    for (const struct link_map *object = &_r_debug != NULL ? _r_debug.r_map : NULL; object != NULL; object = object->l_next) {
        struct loaded tables = loaded_read(object);
        if (is_of_libc(&tables))
            take_from(object, &tables);
    }
    return get_relaxed(own.functions.version) != NULL;
}

const struct libc *libc_own(void) {
    static bool is_found;
    if (unlikely(!__atomic_load_n(&is_found, __ATOMIC_ACQUIRE)))
        __atomic_store_n(&is_found, find(), __ATOMIC_RELEASE);
    return &own.functions;
}
