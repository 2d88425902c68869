// SPDX-License-Identifier: Apache-2.0
#include "preloaded.h"

#include "loaded.h"
#include "text.h"

/* No array of pointers: the stub has no relocation. crates/imas-linux/src/preloads.rs has the same names. */
#define FAMILY                                                                                                            \
    "malloc\0free\0calloc\0realloc\0reallocarray\0posix_memalign\0aligned_alloc\0memalign\0valloc\0pvalloc\0"

static bool defines_one_of(const struct loaded *tables, const char *names) {
    for (; *names != '\0'; names += text_length(names) + 1) {
        if (loaded_defines(tables, names))
            return true;
    }
    return false;
}

bool preloaded_defines_malloc(const struct link_map *program, const struct link_map *candidate) {
    for (const struct link_map *object = program->l_next; object != NULL; object = object->l_next) {
        if (object == candidate || object->l_ld == _DYNAMIC)
            continue;
        struct loaded tables = loaded_read(object);
        if (defines_one_of(&tables, FAMILY) && !loaded_is_needed(object))
            return true;
    }
    return false;
}
