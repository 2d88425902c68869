// SPDX-License-Identifier: Apache-2.0
#include "start.h"

#include <elf.h>
#include <stddef.h>

#define MOST_ARGUMENTS (1 << 24) /* Linux allows 6 MiB of them */

static bool plausible(int argc, char **argv, char **envp) {
    return argc > 0 && argc < MOST_ARGUMENTS && argv != NULL && (uintptr_t)argv % sizeof *argv == 0 && envp == argv + argc + 1;
}

struct facts {
    bool secure_seen, secure, loader_seen;
    uint64_t uid, euid;
};

static void note(struct facts *facts, struct start *start, uint64_t type, uint64_t value) {
    switch (type) {
    case AT_SECURE:
        facts->secure_seen = true;
        facts->secure = value != 0;
        break;
    case AT_BASE:
        facts->loader_seen = value != 0; /* 0: ld.so was called as a program, ours is its argument */
        break;
    case AT_UID:
        facts->uid = value;
        break;
    case AT_EUID:
        facts->euid = value;
        break;
    case AT_PHDR:
        start->headers = (const ElfW(Phdr) *)value;
        break;
    case AT_PHNUM:
        start->header_count = value;
        break;
    case AT_EXECFN:
        start->execfn = (const char *)value;
        break;
    }
}

bool start_read(struct start *start, int argc, char **argv, char **envp) {
    if (!plausible(argc, argv, envp))
        return false;
    *start = (struct start){.argc = argc, .argv = argv, .envp = envp};
    struct facts facts = {.uid = UINT64_MAX};
    while (*envp != NULL)
        envp++;
    const Elf64_auxv_t *entry = (const Elf64_auxv_t *)(envp + 1);
    for (; entry->a_type != AT_NULL; entry++)
        note(&facts, start, entry->a_type, entry->a_un.a_val);
    start->uid = (uint32_t)facts.uid;
    return facts.secure_seen && !facts.secure && facts.loader_seen && facts.uid == facts.euid && facts.uid < UINT32_MAX &&
           start->execfn != NULL;
}

/* How far the executable was moved from where it is linked for. */
static uintptr_t moved_by(const struct start *start) {
    for (size_t i = 0; i < start->header_count; i++) {
        if (start->headers[i].p_type == PT_PHDR)
            return (uintptr_t)start->headers - start->headers[i].p_vaddr;
    }
    return 0;
}

static const ElfW(Dyn) *dynamic_of(const struct start *start) {
    for (size_t i = 0; i < start->header_count; i++) {
        if (start->headers[i].p_type == PT_DYNAMIC)
            return (const ElfW(Dyn) *)(moved_by(start) + start->headers[i].p_vaddr);
    }
    return NULL;
}

const struct link_map *start_objects(const struct start *start) {
    const ElfW(Dyn) *entry = start->headers != NULL ? dynamic_of(start) : NULL;
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        const struct r_debug *list = (const struct r_debug *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_DEBUG && list != NULL)
            return list->r_map;
    }
    return NULL;
}
