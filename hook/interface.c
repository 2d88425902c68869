// SPDX-License-Identifier: Apache-2.0
#include "interface.h"

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#include "../abi/imas_interface.h"
#include "libc.h"
#include "text.h"

/* What is looked up in a loaded object, as ld.so has it. */
struct tables {
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *hash; /* the older table, for objects that have only that */
    const ElfW(Rela) *calls, *data;
    size_t call_bytes, data_bytes;
    const char *soname; /* or NULL */
};

#define NO_NAME SIZE_MAX

/* ld.so has turned the addresses into absolute ones, but not those of the kernel's own object (vDSO). */
static const void *address(const struct link_map *object, uintptr_t value) {
    return (const void *)(value < object->l_addr ? value + object->l_addr : value);
}

static struct tables tables_of(const struct link_map *object) {
    struct tables tables = {0};
    size_t soname = NO_NAME;
    for (const ElfW(Dyn) *entry = object->l_ld; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        const void *at = address(object, entry->d_un.d_ptr);
        switch (entry->d_tag) {
        case DT_SYMTAB: tables.symbols = at; break;
        case DT_STRTAB: tables.strings = at; break;
        case DT_GNU_HASH: tables.gnu_hash = at; break;
        case DT_HASH: tables.hash = at; break;
        case DT_JMPREL: tables.calls = at; break;
        case DT_PLTRELSZ: tables.call_bytes = entry->d_un.d_val; break;
        case DT_RELA: tables.data = at; break;
        case DT_RELASZ: tables.data_bytes = entry->d_un.d_val; break;
        case DT_SONAME: soname = entry->d_un.d_val; break;
        }
    }
    if (soname != NO_NAME && tables.strings != NULL)
        tables.soname = tables.strings + soname;
    return tables;
}

static bool is_definition(const struct tables *tables, uint32_t index, const char *name) {
    const ElfW(Sym) *symbol = &tables->symbols[index];
    return symbol->st_shndx != SHN_UNDEF && text_equal(tables->strings + symbol->st_name, name);
}

static uint32_t gnu_hash(const char *name) {
    uint32_t hash = 5381;
    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

/* The table's filter settles nearly every search at its first word. */
static bool defines_by_gnu_hash(const struct tables *tables, const char *name) {
    const uint32_t *table = tables->gnu_hash, buckets = table[0], first = table[1], words = table[2], shift = table[3];
    const ElfW(Addr) *filter = (const ElfW(Addr) *)(table + 4);
    const uint32_t *bucket = (const uint32_t *)(filter + words), *chain = bucket + buckets;
    const uint32_t hash = gnu_hash(name), bits = 8 * sizeof *filter;
    const ElfW(Addr) both = (ElfW(Addr))1 << hash % bits | (ElfW(Addr))1 << (hash >> shift) % bits;
    if (words == 0 || buckets == 0 || (filter[hash / bits % words] & both) != both)
        return false;
    for (uint32_t index = bucket[hash % buckets]; index >= first && index != 0; index++) {
        uint32_t here = chain[index - first];
        if ((here | 1) == (hash | 1) && is_definition(tables, index, name))
            return true;
        if ((here & 1) != 0)
            break;
    }
    return false;
}

static bool defines(const struct tables *tables, const char *name) {
    if (tables->symbols == NULL || tables->strings == NULL)
        return false;
    if (tables->gnu_hash != NULL)
        return defines_by_gnu_hash(tables, name);
    uint32_t count = tables->hash != NULL ? tables->hash[1] : 0;
    for (uint32_t index = 1; index < count; index++) {
        if (is_definition(tables, index, name))
            return true;
    }
    return false;
}

#ifdef IMAS_RECORDER
/* The recorder serves no candidate. */
bool interface_other_malloc(void) {
    if (&_r_debug == NULL)
        return false;
    for (const struct link_map *object = _r_debug.r_map; object != NULL; object = object->l_next) {
        struct tables tables = tables_of(object);
        if (object->l_ld != _DYNAMIC && defines(&tables, "malloc"))
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
static bool refers_to(const struct tables *tables, const ElfW(Rela) *relocations, size_t bytes, const char *list) {
    for (size_t i = 0; relocations != NULL && i < bytes / sizeof *relocations; i++) {
        uint64_t index = ELF64_R_SYM(relocations[i].r_info);
        const ElfW(Sym) *symbol = &tables->symbols[index];
        if (index != 0 && symbol->st_shndx == SHN_UNDEF && is_listed(list, tables->strings + symbol->st_name))
            return true;
    }
    return false;
}

static bool calls(const struct tables *tables, const char *list) {
    return tables->symbols != NULL && tables->strings != NULL &&
           (refers_to(tables, tables->calls, tables->call_bytes, list) ||
            refers_to(tables, tables->data, tables->data_bytes, list));
}

static bool needs(const struct link_map *object, const struct tables *tables, const char *name, const char *soname) {
    for (const ElfW(Dyn) *entry = object->l_ld; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag != DT_NEEDED || tables->strings == NULL)
            continue;
        const char *needed = tables->strings + entry->d_un.d_val;
        if (text_equal(needed, name) || text_equal(text_base_name(needed), text_base_name(name)) ||
            (soname != NULL && text_equal(needed, soname)))
            return true;
    }
    return false;
}

static bool is_needed(const struct link_map *library) {
    struct tables own = tables_of(library);
    for (const struct link_map *object = _r_debug.r_map; object != NULL; object = object->l_next) {
        struct tables tables = tables_of(object);
        if (needs(object, &tables, library->l_name, own.soname))
            return true;
    }
    return false;
}

/* The candidate's library follows ours in LD_PRELOAD and so in ld.so's list. A library of the user's has no
 * imas_allocator_name; but what no object needs (DT_NEEDED) was preloaded. */
static bool is_candidate(const struct link_map *object) {
    return object->l_prev != NULL && object->l_prev->l_ld == _DYNAMIC && !is_needed(object);
}

/* What IMAS put into the process: this library and an allocator, which may be built around a library of the
 * distribution and call that by its own interface. */
static bool is_injected(const struct link_map *object, const struct tables *tables) {
    return object->l_ld == _DYNAMIC || defines(tables, "imas_allocator_name") || is_candidate(object);
}

static bool is_called(const char *list) {
    for (const struct link_map *object = _r_debug.r_map; object != NULL; object = object->l_next) {
        struct tables tables = tables_of(object);
        if (calls(&tables, list) && !is_injected(object, &tables))
            return true;
    }
    return false;
}

/* The interfaces, each with a function by which its allocator is known. */
static const struct {
    const char *known_by, *list;
} interfaces[] = {{"mallocx", IMAS_INTERFACE_JEMALLOC}, {"tc_malloc", IMAS_INTERFACE_TCMALLOC}, {"mi_malloc", IMAS_INTERFACE_MIMALLOC}};

static bool interface_of_is_called(const struct tables *allocator) {
    for (size_t i = 0; i < sizeof interfaces / sizeof *interfaces; i++) {
        if (defines(allocator, interfaces[i].known_by) && is_called(interfaces[i].list))
            return true;
    }
    return false;
}

bool interface_is_called(void) {
    if (&_r_debug == NULL)
        return false;
    for (const struct link_map *object = _r_debug.r_map; object != NULL; object = object->l_next) {
        struct tables tables = tables_of(object);
        if (defines(&tables, "malloc") && !is_injected(object, &tables))
            return interface_of_is_called(&tables);
    }
    return false;
}
#endif
