// SPDX-License-Identifier: Apache-2.0
/*
 * loaded.h - the dynamic section of a loaded object: its symbols, and what it defines. Read from ld.so's own list
 * (link.h), without a call of libc, so that it works before any constructor.
 */
#ifndef IMAS_HOOK_LOADED_H
#define IMAS_HOOK_LOADED_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* Our own dynamic section. Hidden: otherwise its address would take a relocation. */
extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

/* What is looked up in a loaded object, as ld.so has it. */
struct loaded {
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *hash; /* the older table, for objects that have only that */
    const uint16_t *versions; /* of the symbols */
    const ElfW(Rela) *calls, *data;
    size_t call_bytes, data_bytes;
    const char *soname; /* or NULL */
};

/* A place that the dynamic section names. ld.so has turned some of its addresses into absolute ones, and others not. */
const void *loaded_address(const struct link_map *object, uintptr_t value);

struct loaded loaded_read(const struct link_map *object);

/* The hash of a name in the tables of today's linkers. */
uint32_t loaded_hash(const char *name);

/* The object's definition of `name`, or NULL. `hash` is the name's loaded_hash. */
const ElfW(Sym) *loaded_definition(const struct loaded *tables, const char *name, uint32_t hash);

bool loaded_defines(const struct loaded *tables, const char *name);

/* How many symbols at the beginning of the table may be undefined ones. */
uint32_t loaded_references(const struct loaded *tables);

/* Whether `object`, of these tables, has that library in its list. */
bool loaded_needs(const struct link_map *object, const struct loaded *tables, const struct link_map *library);

/* Whether any object has it in its list. A library that none has was preloaded, or opened by dlopen. */
bool loaded_is_needed(const struct link_map *library);

/* Whether it is the candidate's library: that follows ours in LD_PRELOAD and so in ld.so's list, and defines malloc. A
 * library of the user's has no imas_allocator_name; but what no object needs was preloaded. */
bool loaded_is_candidate(const struct link_map *object, const struct loaded *tables);

#endif
