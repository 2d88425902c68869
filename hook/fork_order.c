// SPDX-License-Identifier: Apache-2.0
#include "fork_order.h"

#include "libc.h"
#include "object.h"
#include "sys.h"
#include "text.h"

#include "../allocators/glue/fork_order.h"

/* ---- a libc before 2.34 in a program without libdl: no dlsym, so its symbol table is read -------------- */

static const void *table(const ElfW(Dyn) *dynamic, ElfW(Sxword) tag) {
    while (dynamic->d_tag != DT_NULL && dynamic->d_tag != tag)
        dynamic++;
    return dynamic->d_tag == tag ? (const void *)dynamic->d_un.d_ptr : NULL;
}

static fork_order_call *find_in(const struct link_map *object) {
    const ElfW(Sym) *symbols = table(object->l_ld, DT_SYMTAB);
    const char *names = table(object->l_ld, DT_STRTAB);
    const uint32_t *hash = table(object->l_ld, DT_HASH); /* its second word is the number of symbols */
    if (symbols == NULL || names == NULL || hash == NULL)
        return NULL;
    for (uint32_t i = 0; i < hash[1]; i++) {
        if (symbols[i].st_shndx != SHN_UNDEF && text_equal(names + symbols[i].st_name, "__register_atfork"))
            return (fork_order_call *)(object->l_addr + symbols[i].st_value);
    }
    return NULL;
}

static fork_order_call *find_without_dlsym(void) {
    const struct link_map *object = &_r_debug != NULL ? _r_debug.r_map : NULL;
    while (object != NULL && text_after(text_base_name(object->l_name), "libc.so.6") == NULL)
        object = object->l_next;
    return object != NULL ? find_in(object) : NULL;
}

/* ---- what allocators/glue/fork_order.h asks for -------------------------------------------------------- */

static fork_order_call *fork_order_find(void) {
    return libc_dlsym != NULL ? (fork_order_call *)object_next("__register_atfork") : find_without_dlsym();
}

/* The object that serves malloc if it is an allocator of the user's, else NULL: our own libraries keep their
 * handlers themselves (they have a __register_atfork), libc needs none. */
static const void *find_foreign(void) {
    const void *serving = object_of(object_next("malloc"));
    return serving == object_libc() || object_is_ours(serving) ? NULL : serving;
}

/* Found once, in the constructor, as the next definition is (fork_order_next). */
static const void *foreign_allocator(void) {
    static const void *found;
    static int is_found;
    if (!__atomic_load_n(&is_found, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&found, find_foreign(), __ATOMIC_RELAXED);
        __atomic_store_n(&is_found, 1, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(&found, __ATOMIC_RELAXED);
}

static int fork_order_is_own(void *object) {
    const void *foreign = foreign_allocator();
    return foreign != NULL && object_of(object) == foreign;
}

/* What the handlers of a foreign allocator do besides to lock is not known, and ours always have something to
 * do. */
static int fork_order_rests(void) {
    return 0;
}

void fork_order_resolve(void) {
    fork_order_start();
    if (libc_dlsym != NULL)
        foreign_allocator();
}

void fork_order_add(void (*parent)(void), void (*child)(void)) {
    fork_order_call *next = fork_order_next();
    if (next != NULL && fork_order_begin(next) == 0)
        fork_order_keep(NULL, parent, child);
}
