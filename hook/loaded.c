// SPDX-License-Identifier: Apache-2.0
#include "loaded.h"

#include <elf.h>
#include <stddef.h>

#include "text.h"

#define NO_NAME SIZE_MAX

static uintptr_t distance(uintptr_t one, uintptr_t other) {
    return one < other ? other - one : one - other;
}

/* The tables lie beside the list that names them. The smaller number is no sign: the vDSO of gVisor is linked for the
 * last addresses there are, so that l_addr wraps around. */
const void *loaded_address(const struct link_map *object, uintptr_t value) {
    uintptr_t list = (uintptr_t)object->l_ld, moved = value + object->l_addr;
    return (const void *)(distance(moved, list) < distance(value, list) ? moved : value);
}

struct loaded loaded_read(const struct link_map *object) {
    struct loaded tables = {0};
    size_t soname = NO_NAME;
    for (const ElfW(Dyn) *entry = object->l_ld; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        const void *at = loaded_address(object, entry->d_un.d_ptr);
        switch (entry->d_tag) {
        case DT_SYMTAB: tables.symbols = at; break;
        case DT_STRTAB: tables.strings = at; break;
        case DT_GNU_HASH: tables.gnu_hash = at; break;
        case DT_HASH: tables.hash = at; break;
        case DT_JMPREL: tables.calls = at; break;
        case DT_PLTRELSZ: tables.call_bytes = entry->d_un.d_val; break;
        case DT_RELA: tables.data = at; break;
        case DT_VERSYM: tables.versions = at; break;
        case DT_RELASZ: tables.data_bytes = entry->d_un.d_val; break;
        case DT_SONAME: soname = entry->d_un.d_val; break;
        }
    }
    if (soname != NO_NAME && tables.strings != NULL)
        tables.soname = tables.strings + soname;
    return tables;
}

/* ---- definitions --------------------------------------------------------------------------------------- */

static const ElfW(Sym) *definition_at(const struct loaded *tables, uint32_t index, const char *name) {
    const ElfW(Sym) *symbol = &tables->symbols[index];
    bool is_it = symbol->st_shndx != SHN_UNDEF && text_equal(tables->strings + symbol->st_name, name);
    return is_it ? symbol : NULL;
}

uint32_t loaded_hash(const char *name) {
    uint32_t hash = 5381;
    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

/* The table's filter settles nearly every search at its first word. */
static const ElfW(Sym) *find_by_gnu_hash(const struct loaded *tables, const char *name, uint32_t hash) {
    const uint32_t *table = tables->gnu_hash, buckets = table[0], first = table[1], words = table[2], shift = table[3];
    const ElfW(Addr) *filter = (const ElfW(Addr) *)(table + 4);
    const uint32_t *bucket = (const uint32_t *)(filter + words), *chain = bucket + buckets;
    const uint32_t bits = 8 * sizeof *filter;
    const ElfW(Addr) both = (ElfW(Addr))1 << hash % bits | (ElfW(Addr))1 << (hash >> shift) % bits;
    if (words == 0 || buckets == 0 || (filter[hash / bits % words] & both) != both)
        return NULL;
    for (uint32_t index = bucket[hash % buckets]; index >= first && index != 0; index++) {
        uint32_t here = chain[index - first];
        const ElfW(Sym) *found = (here | 1) == (hash | 1) ? definition_at(tables, index, name) : NULL;
        if (found != NULL)
            return found;
        if ((here & 1) != 0)
            break;
    }
    return NULL;
}

/* The older table (System V ABI, "Hash Table"): buckets, and for each symbol the next one of its bucket. */
static const ElfW(Sym) *find_by_hash(const struct loaded *tables, const char *name) {
    const uint32_t *bucket = tables->hash + 2, *chain = bucket + tables->hash[0];
    uint32_t hash = 0;
    for (const char *at = name; *at != '\0'; at++) {
        hash = (hash << 4) + (unsigned char)*at;
        hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
    }
    if (tables->hash[0] == 0)
        return NULL;
    for (uint32_t index = bucket[hash % tables->hash[0]]; index != 0; index = chain[index]) {
        const ElfW(Sym) *found = definition_at(tables, index, name);
        if (found != NULL)
            return found;
    }
    return NULL;
}

const ElfW(Sym) *loaded_definition(const struct loaded *tables, const char *name, uint32_t hash) {
    if (tables->symbols == NULL || tables->strings == NULL)
        return NULL;
    if (tables->gnu_hash != NULL)
        return find_by_gnu_hash(tables, name, hash);
    return tables->hash != NULL ? find_by_hash(tables, name) : NULL;
}

bool loaded_defines(const struct loaded *tables, const char *name) {
    return loaded_definition(tables, name, loaded_hash(name)) != NULL;
}

uint32_t loaded_references(const struct loaded *tables) {
    if (tables->symbols == NULL || tables->strings == NULL)
        return 0;
    /* The newer table lists definitions only, and they are the end of the table of symbols. */
    if (tables->gnu_hash != NULL)
        return tables->gnu_hash[1];
    return tables->hash != NULL ? tables->hash[1] : 0;
}

/* ---- libraries ----------------------------------------------------------------------------------------- */

static bool needs(const struct link_map *object, const struct loaded *tables, const char *name, const char *soname) {
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

bool loaded_needs(const struct link_map *object, const struct loaded *tables, const struct link_map *library) {
    struct loaded of_library = loaded_read(library);
    return needs(object, tables, library->l_name, of_library.soname);
}

bool loaded_is_needed(const struct link_map *library) {
    struct loaded own = loaded_read(library);
    const struct link_map *first = library;
    while (first->l_prev != NULL)
        first = first->l_prev;
    for (const struct link_map *object = first; object != NULL; object = object->l_next) {
        struct loaded tables = loaded_read(object);
        if (needs(object, &tables, library->l_name, own.soname))
            return true;
    }
    return false;
}

bool loaded_is_candidate(const struct link_map *object, const struct loaded *tables) {
    return object->l_prev != NULL && object->l_prev->l_ld == _DYNAMIC && loaded_defines(tables, "malloc") && !loaded_is_needed(object);
}
