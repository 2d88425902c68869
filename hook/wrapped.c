// SPDX-License-Identifier: Apache-2.0
#include "wrapped.h"

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#include "libc.h"
#include "loaded.h"
#include "text.h"

/* ---- what the candidate calls -------------------------------------------------------------------------- */

#define MOST_CALLS 320 /* Google's tcmalloc, the largest, has 150 */
#define MOST_SERVING 8

struct calls {
    struct {
        const char *name;
        uint32_t hash;
    } call[MOST_CALLS];
    uint32_t count;
    const struct link_map *serving[MOST_SERVING]; /* the candidate, and libraries that it brings */
    uint32_t serving_count;
};

/* Names that the compiler's start files refer to; a program may define them. */
static bool is_of_compiler(const char *name) {
    return text_equal(name, "__gmon_start__") || text_equal(name, "__cxa_finalize") || text_after(name, "_ITM_") != NULL;
}

/* What the candidate defines itself is not among them. */
static void add_calls(struct calls *calls, const struct loaded *tables, const struct loaded *candidate) {
    uint32_t end = loaded_references(tables);
    for (uint32_t i = 1; i < end && calls->count < MOST_CALLS; i++) {
        const ElfW(Sym) *symbol = &tables->symbols[i];
        const char *name = tables->strings + symbol->st_name;
        if (symbol->st_shndx != SHN_UNDEF || *name == '\0' || is_of_compiler(name) || loaded_defines(candidate, name))
            continue;
        calls->call[calls->count].name = name;
        calls->call[calls->count++].hash = loaded_hash(name);
    }
}

/* gperftools defines these and calls them by their names: a definition that comes before its own is reached. */
static void add_interposed(struct calls *calls, const struct loaded *tables) {
    static const char *const interposed[] = {"sbrk", "mmap", "mmap64", "munmap", "mremap"};
    for (size_t i = 0; i < sizeof interposed / sizeof *interposed && calls->count < MOST_CALLS; i++) {
        if (!loaded_defines(tables, interposed[i]))
            continue;
        calls->call[calls->count].name = interposed[i];
        calls->call[calls->count++].hash = loaded_hash(interposed[i]);
    }
}

static void add_serving(struct calls *calls, const struct link_map *object, const struct loaded *tables,
                        const struct loaded *candidate) {
    if (calls->serving_count == MOST_SERVING)
        return;
    calls->serving[calls->serving_count++] = object;
    add_calls(calls, tables, candidate);
}

static bool is_serving(const struct calls *calls, const struct link_map *object) {
    for (uint32_t i = 0; i < calls->serving_count; i++) {
        if (calls->serving[i] == object)
            return true;
    }
    return false;
}

/* ---- who defines it ------------------------------------------------------------------------------------ */

static bool is_libc(const struct loaded *tables) {
    return tables->soname != NULL && text_equal(tables->soname, "libc.so.6");
}

static bool is_one_of(const struct loaded *tables, const char *names) {
    if (tables->soname == NULL)
        return false;
    for (const char *name = names; *name != '\0'; name += text_length(name) + 1) {
        if (text_after(tables->soname, name) != NULL)
            return true;
    }
    return false;
}

/* Parts of glibc and of the compiler's runtime, and the kernel's object. */
static bool is_runtime(const struct loaded *tables) {
    return is_one_of(tables, "libpthread.so\0libdl.so\0libm.so\0librt.so\0ld-linux\0libgcc_s.so\0libstdc++.so\0linux-vdso\0");
}

/* The library that answers for settings hands each call on. */
static bool hands_on(const struct loaded *tables) {
    return is_one_of(tables, "libimas-settings.so\0");
}

/* Allocators whose place the candidate takes: gperftools' mmap, munmap and sbrk, and operators new, call no other
 * malloc. */
static bool is_allocator(const struct loaded *tables) {
    return is_one_of(tables, "libtcmalloc\0libjemalloc\0libmimalloc\0libtbbmalloc\0");
}

/* Whether the definition is one that a call of another object reaches. */
static bool is_function(const ElfW(Sym) *symbol) {
    unsigned type = ELF64_ST_TYPE(symbol->st_info), visibility = ELF64_ST_VISIBILITY(symbol->st_other);
    return ELF64_ST_BIND(symbol->st_info) != STB_LOCAL && visibility != STV_HIDDEN && visibility != STV_INTERNAL &&
           (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE);
}

/* imas-replayer sets the allocator's clock, on purpose (record/replayer/clock.c). */
static bool is_replayer(const struct loaded *tables) {
    return loaded_defines(tables, "imas_replay_clock");
}

static const char *defined_of(const struct calls *calls, const struct loaded *tables) {
    if (is_replayer(tables))
        return NULL;
    for (uint32_t i = 0; i < calls->count; i++) {
        const ElfW(Sym) *symbol = loaded_definition(tables, calls->call[i].name, calls->call[i].hash);
        if (symbol != NULL && is_function(symbol))
            return calls->call[i].name;
    }
    return NULL;
}

static const struct link_map *find_candidate(struct calls *calls) {
    for (const struct link_map *object = _r_debug.r_map; object != NULL; object = object->l_next) {
        if (object->l_ld != _DYNAMIC || object->l_next == NULL)
            continue;
        struct loaded tables = loaded_read(object->l_next);
        if (!loaded_is_candidate(object->l_next, &tables))
            return NULL;
        add_serving(calls, object->l_next, &tables, &tables);
        return object->l_next;
    }
    return NULL;
}

/* A library of the distribution around which a candidate is built is called and calls as the candidate does. */
static void find_brought(struct calls *calls, const struct link_map *candidate) {
    struct loaded of_candidate = loaded_read(candidate);
    for (const struct link_map *object = candidate->l_next; object != NULL; object = object->l_next) {
        struct loaded tables = loaded_read(object);
        if (!is_libc(&tables) && !is_runtime(&tables) && loaded_needs(candidate, &of_candidate, object)) {
            add_serving(calls, object, &tables, &of_candidate);
            add_interposed(calls, &tables);
        }
    }
}

const char *wrapped_function(void) {
    struct calls calls;
    calls.count = calls.serving_count = 0;
    const struct link_map *candidate = &_r_debug != NULL ? find_candidate(&calls) : NULL;
    if (candidate == NULL)
        return NULL;
    find_brought(&calls, candidate);
    for (const struct link_map *object = _r_debug.r_map; object != NULL; object = object->l_next) {
        struct loaded tables = loaded_read(object);
        bool has_own_malloc = object == _r_debug.r_map && loaded_defines(&tables, "malloc");
        if (is_libc(&tables) || has_own_malloc)
            return NULL; /* what comes behind libc is not reached; behind a malloc of the executable, the candidate */
        bool may_define = object->l_ld != _DYNAMIC && !is_serving(&calls, object) && !is_runtime(&tables) && !is_allocator(&tables) &&
                          !hands_on(&tables);
        const char *found = may_define ? defined_of(&calls, &tables) : NULL;
        if (found != NULL)
            return found;
    }
    return NULL;
}

/* ---- what we hide -------------------------------------------------------------------------------------- */

static bool is_data(const ElfW(Sym) *symbol) {
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    return type == STT_OBJECT || type == STT_COMMON || type == STT_TLS;
}

/* Of malloc's family: unfit.c and interface.c judge who serves that. */
static bool is_of_family(const char *name) {
    return text_contains(name, "alloc") || text_contains(name, "memalign") || text_contains(name, "mallinfo") ||
           text_contains(name, "mallopt") || text_contains(name, "free");
}

/* Whether it looks functions up itself: then its own by the name of one of libc's hands on to libc's, as ours does. */
static bool looks_up(const struct loaded *tables) {
    uint32_t end = loaded_references(tables);
    for (uint32_t i = 1; i < end; i++) {
        const char *name = tables->strings + tables->symbols[i].st_name;
        if (text_equal(name, "dlsym") || text_equal(name, "dlvsym"))
            return true;
    }
    return false;
}

static bool hides_name(const char *name, const struct loaded *object) {
    const ElfW(Sym) *symbol = loaded_definition(object, name, loaded_hash(name));
    if (symbol == NULL)
        return false;
    return is_data(symbol) || (is_function(symbol) && !is_of_family(name) && !looks_up(object));
}

/* Whether `object` has something of its own by the name of one of our definitions. */
static bool hides(const struct loaded *ours, const struct loaded *object) {
    const uint32_t *table = ours->gnu_hash, buckets = table[0], first = table[1];
    const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)(table + 4) + table[2]), *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++) {
        for (uint32_t index = bucket[i]; index >= first && index != 0; index++) {
            if (hides_name(ours->strings + ours->symbols[index].st_name, object))
                return true;
            if ((chain[index - first] & 1) != 0)
                break;
        }
    }
    return false;
}

static bool hides_any(const struct link_map *ours) {
    struct loaded own = loaded_read(ours);
    for (const struct link_map *object = ours->l_next; object != NULL && own.gnu_hash != NULL; object = object->l_next) {
        struct loaded tables = loaded_read(object);
        if (is_libc(&tables))
            return false;
        bool is_users = !hands_on(&tables) && !is_runtime(&tables) && !is_allocator(&tables) && object->l_ld != _DYNAMIC &&
                        !loaded_is_candidate(object, &tables);
        if (is_users && hides(&own, &tables))
            return true;
    }
    return false;
}

bool wrapped_hidden(void) {
    for (const struct link_map *object = &_r_debug != NULL ? _r_debug.r_map : NULL; object != NULL; object = object->l_next) {
        struct loaded tables = loaded_read(object);
        if (is_libc(&tables))
            return false;
        if ((object->l_ld == _DYNAMIC || hands_on(&tables)) && hides_any(object))
            return true;
    }
    return false;
}
