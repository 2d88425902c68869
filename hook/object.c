// SPDX-License-Identifier: Apache-2.0
#include "object.h"

#include "libc.h"
#include "text.h"

struct found {
    struct libc_symbol_info info;
    const ElfW(Sym) *symbol;
};

static bool find_address(const void *address, struct found *found) {
    found->symbol = NULL;
    return address != NULL && libc_dladdr1 != NULL &&
           libc_dladdr1(address, &found->info, (void **)&found->symbol, LIBC_RTLD_DL_SYMENT) != 0;
}

const void *object_of(const void *address) {
    struct found found;
    return find_address(address, &found) ? found.info.base : NULL;
}

const void *object_libc(void) {
    /* a function that no program has a reason to define or to take the address of */
    return object_of((const void *)libc_version);
}

const void *object_reached(const char *name) {
    struct found found;
    if (libc_dlsym == NULL || !find_address(libc_dlsym(LIBC_RTLD_DEFAULT, name), &found))
        return NULL;
    bool only_a_stub = found.symbol != NULL && found.symbol->st_shndx == SHN_UNDEF;
    return only_a_stub ? NULL : found.info.base;
}

void *object_next(const char *name) {
    if (libc_dlsym == NULL)
        return NULL;
    void *found = libc_dlsym(LIBC_RTLD_NEXT, name);
    /* A failed search leaves a message behind that the program's first dlerror would show as its own; the first
     * call takes it, the second frees it. */
    if (found == NULL) {
        libc_dlerror();
        libc_dlerror();
    }
    return found;
}

void object_allocator_name(const void *function, char *name, size_t size) {
    struct found found;
    if (!find_address(function, &found))
        return;
    const char *own = object_of(function) == object_libc() ? NULL : object_next("imas_allocator_name");
    if (own != NULL && object_of(own) == found.info.base)
        text_copy(name, size, own);
    else
        text_copy(name, size, text_base_name(found.info.file));
}

static bool starts_with_one_of(const char *text, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (text_after(text, names[i]) != NULL)
            return true;
    }
    return false;
}

/* ld.so's own list, as a debugger reads it: dl_iterate_phdr would be the sanitizer's, which is not set up yet. */
bool object_loaded(const char *const *names, size_t count) {
    if (&_r_debug == NULL)
        return false;
    for (const struct link_map *object = _r_debug.r_map; object != NULL; object = object->l_next) {
        if (starts_with_one_of(text_base_name(object->l_name), names, count))
            return true;
    }
    return false;
}
