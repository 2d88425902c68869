// SPDX-License-Identifier: Apache-2.0
#include "next.h"

#include <sys/mman.h>

#include "boot.h"
#include "libc.h"
#include "loaded.h"
#include "object.h"
#include "sys.h"

/* The size of a block of the bootstrap arena, or of its mappings, comes from the arena. */
size_t next_ask_whose(void *block) {
    if (block == NULL)
        return 0;
    if (boot_owns(block))
        return boot_size(block);
    size_t (*usable_size)(void *) = get_relaxed(next.usable_size);
    return likely(usable_size != NULL) ? usable_size(block) : 0;
}

_Alignas(PAGE_MOST) union next_table next_table = {.family = {.ask = next_ask_whose}};
static bool found;
extern char **environ;

bool next_found(void) {
    return __atomic_load_n(&found, __ATOMIC_ACQUIRE);
}

/* The functions that make or take blocks: they must be of one allocator. */
static const char *const core_names[] = {"malloc",         "calloc",        "realloc", "free",    "memalign",
                                         "posix_memalign", "aligned_alloc", "valloc",  "pvalloc", "malloc_usable_size"};
#define CORE (sizeof core_names / sizeof *core_names)
#define PVALLOC 8 /* not every allocator has it; then it is made from memalign */

_Static_assert(offsetof(struct family, mallopt) == CORE * sizeof(void *), "core_names follows struct family");

static void *find_core(void *from, const char *name, const void *object) {
    void *function = libc_dlsym(from, name);
    if (function == NULL) {
        libc_dlerror();
        libc_dlerror();
    }
    return function != NULL && object_of(function) == object ? function : NULL;
}

/* Fills `core` from the object that defines the first malloc after `from`. */
static bool fill_core(void *from, void **core) {
    core[0] = libc_dlsym(from, core_names[0]);
    const void *object = object_of(core[0]);
    if (object == NULL)
        return false;
    bool whole = true;
    for (size_t i = 1; i < CORE; i++) {
        core[i] = find_core(from, core_names[i], object);
        whole = whole && (core[i] != NULL || i == PVALLOC);
    }
    return whole;
}

static bool found_early;

bool next_found_early(void) {
    return __atomic_load_n(&found_early, __ATOMIC_ACQUIRE);
}

static bool called_in_relocation;

/* libc sets its environment in its constructor, the first of all. */
bool next_serves_early(void) {
    if (!next_found_early())
        return false;
    if (environ == NULL)
        set_relaxed(called_in_relocation, true);
    return environ != NULL;
}

void next_note_call_in_relocation(void) {
    set_relaxed(called_in_relocation, true);
}

bool next_was_called_in_relocation(void) {
    return get_relaxed(called_in_relocation);
}

/* Fills `core` from one object, whose functions are as they are in its table of symbols. */
static bool fill_core_of(const struct link_map *object, const struct loaded *tables, void **core) {
    for (size_t i = 0; i < CORE; i++) {
        const ElfW(Sym) *symbol = loaded_definition(tables, core_names[i], loaded_hash(core_names[i]));
        if (symbol == NULL ? i != PVALLOC : ELF64_ST_TYPE(symbol->st_info) != STT_FUNC)
            return false;
        core[i] = symbol != NULL ? (void *)(object->l_addr + symbol->st_value) : NULL;
    }
    return true;
}

static const struct link_map *first_behind_us(void) {
    const struct link_map *object = &_r_debug != NULL ? _r_debug.r_map : NULL;
    while (object != NULL && object->l_ld != _DYNAMIC)
        object = object->l_next;
    return object != NULL ? object->l_next : NULL;
}

static void find_early(void) {
    for (const struct link_map *object = first_behind_us(); object != NULL; object = object->l_next) {
        struct loaded tables = loaded_read(object);
        if (!loaded_defines(&tables, core_names[0]))
            continue;
        if (fill_core_of(object, &tables, (void **)(void *)&next.malloc))
            __atomic_store_n(&found_early, true, __ATOMIC_RELEASE);
        return;
    }
}

static void nothing(void) {
}

/* Runs while ld.so relocates us, as the resolver in unfit.c does: the candidate, which comes later in the list, is
 * relocated already, and nobody has called malloc yet. */
static void (*resolve_nothing(void))(void) {
    find_early();
    return nothing;
}
static void at_relocation(void) __attribute__((ifunc("resolve_nothing")));
__attribute__((used)) static void (*const volatile run_at_relocation)(void) = at_relocation;

/* Libc's own family, whatever is loaded before it. */
static bool fill_core_of_libc(void **core) {
    const int lazy_if_loaded = 0x1 | 0x4; /* RTLD_LAZY | RTLD_NOLOAD */
    void *(*open)(const char *, int) = (void *(*)(const char *, int))libc_dlsym(LIBC_RTLD_NEXT, "dlopen");
    void *libc = open != NULL ? open("libc.so.6", lazy_if_loaded) : NULL;
    return libc != NULL && fill_core(libc, core);
}

/* Some programs ask about each block. The arena alone has blocks, and no other thread can stand in a call
 * that found us unready and is about to add a mapping to it. */
static bool arena_is_all(void) {
    const char *single = (const char *)object_next("__libc_single_threaded"); /* since 2.32 */
    return boot_is_arena() && single != NULL && *single != 0;
}

static void publish(void) {
    if (arena_is_all())
        next.ask = next.usable_size;
    next.minus_arena = (uintptr_t)0 - boot_arena();
    next.mallopt = (int (*)(int, int))object_next("mallopt");
    next.mallinfo = (struct mallinfo(*)(void))object_next("mallinfo");
    next.trim = (int (*)(size_t))object_next("malloc_trim");
    next.mallinfo2 = (struct mallinfo2(*)(void))object_next("mallinfo2"); /* since 2.33 */
    __atomic_store_n(&found, true, __ATOMIC_RELEASE);
}

bool next_find(void) {
    if (libc_dlsym == NULL || libc_dladdr1 == NULL)
        return false;
    void **core = (void **)(void *)&next.malloc;
    bool whole = fill_core(LIBC_RTLD_NEXT, core);
    if (whole || fill_core_of_libc(core))
        publish();
    return whole;
}

void next_seal(void) {
    sys3(SYS_mprotect, &next_table, sizeof next_table, PROT_READ);
}
