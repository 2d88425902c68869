// SPDX-License-Identifier: Apache-2.0
/* next_found.h - a function of libc's name in the objects after ours, looked up once. */
#ifndef IMAS_HOOK_NEXT_FOUND_H
#define IMAS_HOOK_NEXT_FOUND_H

#include "libc.h"
#include "object.h"
#include "sys.h"

static inline void *next_kept(void **kept, const char *name, void *(*search)(const char *)) {
    void *found = get_relaxed(*kept);
    if (unlikely(found == NULL)) {
        found = search(name);
        set_relaxed(*kept, found);
    }
    return found;
}

/* `kept` is a pointer to such a function; NULL where the running libc has none. */
#define NEXT_FOUND(kept, name) ((__typeof__(kept))next_kept((void **)&(kept), name, object_next_found))
/* The same without dlsym, which may take ld.so's locks and allocate. */
#define NEXT_LISTED(kept, name) ((__typeof__(kept))next_kept((void **)&(kept), name, object_next_listed))

#endif
