// SPDX-License-Identifier: Apache-2.0
#include "next.h"

#include <sys/mman.h>

#include "boot.h"
#include "libc.h"
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

_Alignas(NEXT_PAGE) union next_table next_table = {.family = {.ask = next_ask_whose}};
static bool found;

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
