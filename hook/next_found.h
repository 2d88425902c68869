// SPDX-License-Identifier: Apache-2.0
/* next_found.h - a function of libc's name in the objects after ours, looked up once. */
#ifndef IMAS_HOOK_NEXT_FOUND_H
#define IMAS_HOOK_NEXT_FOUND_H

#include "libc.h"
#include "object.h"
#include "sys.h"

static inline void *next_found_at(void **kept, const char *name) {
    void *found = get_relaxed(*kept);
    if (unlikely(found == NULL)) {
        found = libc_dlsym != NULL ? object_next(name) : object_next_listed(name);
        set_relaxed(*kept, found);
    }
    return found;
}

/* `kept` is a pointer to such a function; NULL where the running libc has none. */
#define NEXT_FOUND(kept, name) ((__typeof__(kept))next_found_at((void **)&(kept), name))

#endif
