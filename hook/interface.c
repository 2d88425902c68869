// SPDX-License-Identifier: Apache-2.0
#include "interface.h"

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#include "../abi/imas_interface.h"
#include "libc.h"
#include "loaded.h"
#include "text.h"

#ifdef IMAS_RECORDER
/* In glibc 2.31 and before, ld.so has a malloc for its own start. One that has __libc_memalign too would answer our call
 * of libc's. */
static bool is_loader(const struct loaded *tables) {
    return tables->soname != NULL && text_after(tables->soname, "ld-linux") != NULL && !loaded_defines(tables, "__libc_memalign");
}

/* The recorder serves no candidate. */
bool interface_other_malloc(void) {
    if (&_r_debug == NULL)
        return false;
    for (const struct link_map *object = _r_debug.r_map; object != NULL; object = object->l_next) {
        struct loaded tables = loaded_read(object);
        if (object->l_ld != _DYNAMIC && !is_loader(&tables) && loaded_defines(&tables, "malloc"))
            return tables.soname == NULL || !text_equal(tables.soname, "libc.so.6");
    }
    return false;
}
#else
/* Whether `name` is in a list of abi/imas_interface.h. */
static bool is_listed(const char *list, const char *name) {
    while (*list != '\0') {
        const char *at = name;
        while (*at == *list && *list != ' ')
            at++, list++;
        if (*list == '*' || (*list == ' ' && *at == '\0'))
            return true;
        while (*list++ != ' ')
            ;
    }
    return false;
}

/* Whether one of these relocations is for a function of the list. An object that calls a function or takes
 * its address has one. */
static bool refers_to(const struct loaded *tables, const ElfW(Rela) *relocations, size_t bytes, const char *list) {
    for (size_t i = 0; relocations != NULL && i < bytes / sizeof *relocations; i++) {
        uint64_t index = ELF64_R_SYM(relocations[i].r_info);
        const ElfW(Sym) *symbol = &tables->symbols[index];
        if (index != 0 && symbol->st_shndx == SHN_UNDEF && is_listed(list, tables->strings + symbol->st_name))
            return true;
    }
    return false;
}

static bool calls(const struct loaded *tables, const char *list) {
    return tables->symbols != NULL && tables->strings != NULL &&
           (refers_to(tables, tables->calls, tables->call_bytes, list) ||
            refers_to(tables, tables->data, tables->data_bytes, list));
}

/* What IMAS put into the process: this library and an allocator, which may be built around a library of the
 * distribution and call that by its own interface. */
static bool is_injected(const struct link_map *object, const struct loaded *tables) {
    return object->l_ld == _DYNAMIC || loaded_defines(tables, "imas_allocator_name") || loaded_is_candidate(object, tables);
}

static bool is_called(const char *list) {
    for (const struct link_map *object = _r_debug.r_map; object != NULL; object = object->l_next) {
        struct loaded tables = loaded_read(object);
        if (calls(&tables, list) && !is_injected(object, &tables))
            return true;
    }
    return false;
}

/* The interfaces, each with a function by which its allocator is known. */
static const struct {
    const char *known_by, *list;
} interfaces[] = {{"mallocx", IMAS_INTERFACE_JEMALLOC}, {"tc_malloc", IMAS_INTERFACE_TCMALLOC}, {"mi_malloc", IMAS_INTERFACE_MIMALLOC}};

static bool interface_of_is_called(const struct loaded *allocator) {
    for (size_t i = 0; i < sizeof interfaces / sizeof *interfaces; i++) {
        if (loaded_defines(allocator, interfaces[i].known_by) && is_called(interfaces[i].list))
            return true;
    }
    return false;
}

bool interface_is_called(void) {
    if (&_r_debug == NULL)
        return false;
    for (const struct link_map *object = _r_debug.r_map; object != NULL; object = object->l_next) {
        struct loaded tables = loaded_read(object);
        if (loaded_defines(&tables, "malloc") && !is_injected(object, &tables))
            return interface_of_is_called(&tables);
    }
    return false;
}
#endif
