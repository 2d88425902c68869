// SPDX-License-Identifier: Apache-2.0
#include "object.h"

#include "libc.h"
#include "loaded.h"
#include "text.h"

/* The object that holds an address. Found by its segments: dladdr would also search all its symbols. */
struct holder {
    uintptr_t address;
    const void *object; /* its program headers: unlike the load address never NULL */
    const char *file;
};

static int holds(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    struct holder *holder = argument;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || holder->address - info->dlpi_addr - segment->p_vaddr >= segment->p_memsz)
            continue;
        holder->object = info->dlpi_phdr;
        holder->file = info->dlpi_name;
        return 1;
    }
    return 0;
}

static struct holder find_holder(const void *address) {
    struct holder holder = {(uintptr_t)address, NULL, ""};
    if (address != NULL && libc_iterate != NULL)
        libc_iterate(holds, &holder);
    return holder;
}

const void *object_of(const void *address) {
    return find_holder(address).object;
}

const void *object_libc(void) {
    return object_of((const void *)libc_version);
}

/* A position-dependent executable that takes a function's address exports a stub of the same name. */
static bool is_stub(const void *address) {
    struct libc_symbol_info info;
    const ElfW(Sym) *symbol = NULL;
    return libc_dladdr1(address, &info, (void **)&symbol, LIBC_RTLD_DL_SYMENT) != 0 && symbol != NULL &&
           symbol->st_shndx == SHN_UNDEF;
}

const void *object_reached(const char *name) {
    if (libc_dlsym == NULL || libc_dladdr1 == NULL)
        return NULL;
    const void *function = libc_dlsym(LIBC_RTLD_DEFAULT, name);
    struct holder holder = find_holder(function);
    bool in_executable = holder.object != NULL && *holder.file == '\0';
    return in_executable && is_stub(function) ? NULL : holder.object;
}

void *object_next(const char *name) {
    if (libc_dlsym == NULL)
        return NULL;
    void *found = libc_dlsym(LIBC_RTLD_NEXT, name);
    /* A failed search sets a message that the program's first dlerror would show as its own; the first
     * call takes it, the second frees it. */
    if (found == NULL) {
        libc_dlerror();
        libc_dlerror();
    }
    return found;
}

static const char *own_name(const void *object) {
    const char *name = object == object_libc() ? NULL : object_next("imas_allocator_name");
    return name != NULL && object_of(name) == object ? name : NULL;
}

bool object_is_ours(const void *object) {
    return own_name(object) != NULL;
}

void object_allocator_name(const void *function, char *name, size_t size) {
    struct holder holder = find_holder(function);
    if (holder.object == NULL)
        return;
    const char *own = own_name(holder.object);
    text_copy(name, size, own != NULL ? own : text_base_name(holder.file));
}

static bool starts_with_one_of(const char *text, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (text_after(text, names[i]) != NULL)
            return true;
    }
    return false;
}

/* ld.so's own list, as a debugger reads it: dl_iterate_phdr would be the sanitizer's, which is not set up
 * yet. */
bool object_loaded(const char *const *names, size_t count) {
    if (&_r_debug == NULL)
        return false;
    for (const struct link_map *object = _r_debug.r_map; object != NULL; object = object->l_next) {
        if (starts_with_one_of(text_base_name(object->l_name), names, count))
            return true;
    }
    return false;
}

void *object_next_listed(const char *name) {
    bool after_us = false;
    for (const struct link_map *object = &_r_debug != NULL ? _r_debug.r_map : NULL; object != NULL; object = object->l_next) {
        struct loaded tables = loaded_read(object);
        const ElfW(Sym) *found = after_us ? loaded_definition(&tables, name, loaded_hash(name)) : NULL;
        if (found != NULL && ELF64_ST_TYPE(found->st_info) == STT_FUNC)
            return (void *)(object->l_addr + found->st_value);
        after_us |= object->l_ld == _DYNAMIC;
    }
    return NULL;
}

void *object_next_found(const char *name) {
    return libc_dlsym != NULL ? object_next(name) : object_next_listed(name);
}
