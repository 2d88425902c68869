// SPDX-License-Identifier: Apache-2.0
#include "fitting.h"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include "environment.h"
#include "libc.h"
#include "loaded.h"
#include "sys.h"
#include "text.h"

/* ---- what the candidate needs -------------------------------------------------------------------------- */

/* Every libc that serves here has the versions up to this: it came with aarch64, in 2012. */
#define OLD_ENOUGH 17

static const struct link_map *own_loader; /* NULL until fitting_begin */
static uint64_t needed_version;           /* N of the newest GLIBC_2.N */
static bool brings_libraries;

/* N of "GLIBC_2.N", or 0. */
static uint64_t version_of(const char *name) {
    const char *number = text_after(name, "GLIBC_2.");
    return number != NULL ? text_number(&number) : 0;
}

static uint64_t newer(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t newest_needed(const ElfW(Verneed) *library, const char *strings) {
    uint64_t newest = 0;
    for (;;) {
        const ElfW(Vernaux) *version = (const void *)((const char *)library + library->vn_aux);
        for (int i = 0; i < library->vn_cnt; i++) {
            newest = newer(newest, version_of(strings + version->vna_name));
            version = (const void *)((const char *)version + version->vna_next);
        }
        if (library->vn_next == 0)
            return newest;
        library = (const void *)((const char *)library + library->vn_next);
    }
}

static bool is_of_libc(const char *library) {
    return text_equal(library, "libc.so.6") || text_after(library, "ld-linux") != NULL;
}

static void learn_needs(const struct link_map *candidate, const struct loaded *tables) {
    for (const ElfW(Dyn) *entry = candidate->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_VERNEED)
            needed_version = newest_needed(loaded_address(candidate, entry->d_un.d_ptr), tables->strings);
        else if (entry->d_tag == DT_NEEDED && !is_of_libc(tables->strings + entry->d_un.d_val))
            brings_libraries = true;
    }
}

void fitting_begin(void) {
    if (&_r_debug == NULL)
        return;
    for (const struct link_map *object = _r_debug.r_map; object != NULL; object = object->l_next) {
        struct loaded tables = loaded_read(object);
        if (loaded_is_candidate(object, &tables))
            learn_needs(object, &tables);
        if (object->l_addr == _r_debug.r_ldbase && tables.soname != NULL && text_after(tables.soname, "ld-") != NULL)
            own_loader = object;
    }
}

/* ---- what this program asks for ------------------------------------------------------------------------ */

/* What `index` stands for in the versions that the object asks other objects for, or NULL. */
static const char *version_at(const struct link_map *object, const struct loaded *tables, unsigned index) {
    const ElfW(Verneed) *library = NULL;
    for (const ElfW(Dyn) *entry = object->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_VERNEED)
            library = loaded_address(object, entry->d_un.d_ptr);
    }
    while (library != NULL) {
        const ElfW(Vernaux) *version = (const void *)((const char *)library + library->vn_aux);
        for (int i = 0; i < library->vn_cnt; i++) {
            if (version->vna_other == index)
                return tables->strings + version->vna_name;
            version = (const void *)((const char *)version + version->vna_next);
        }
        library = library->vn_next != 0 ? (const void *)((const char *)library + library->vn_next) : NULL;
    }
    return NULL;
}

bool fitting_program_asks_for(const char *name, const char *version) {
    const struct link_map *program = &_r_debug != NULL ? _r_debug.r_map : NULL;
    if (program == NULL)
        return false;
    struct loaded tables = loaded_read(program);
    for (uint32_t i = 1; tables.versions != NULL && i < loaded_references(&tables); i++) {
        if (tables.symbols[i].st_shndx != SHN_UNDEF || !text_equal(tables.strings + tables.symbols[i].st_name, name))
            continue;
        const char *needed = version_at(program, &tables, tables.versions[i]);
        return needed != NULL && text_equal(needed, version);
    }
    return false;
}

/* ---- what the program has ------------------------------------------------------------------------------ */

#define MOST_SEGMENTS 64
#define MOST_SCRIPTS 5 /* a script whose interpreter is a script; the kernel allows as many */

static long read_at(int fd, void *to, size_t bytes, uint64_t offset) {
    return sys4(SYS_pread64, fd, to, bytes, offset);
}

bool fitting_interpreter(const char *line, char *path) {
    const char *at = text_after(line, "#!");
    size_t length = 0;
    while (at != NULL && (*at == ' ' || *at == '\t'))
        at++;
    while (at != NULL && *at != '\0' && *at != ' ' && *at != '\t' && *at != '\n')
        path[length++] = *at++;
    path[length] = '\0';
    return length != 0;
}

static bool is_program(const char *path) {
    struct stat about;
    return sys3(SYS_faccessat, AT_FDCWD, path, 1 /* X_OK */) == 0 &&
           sys4(SYS_newfstatat, AT_FDCWD, path, &about, 0) == 0 && S_ISREG(about.st_mode);
}

bool fitting_find(const char *folders, const char *file, char *path) {
    for (const char *at = folders != NULL ? folders : "/bin:/usr/bin";; at++) {
        const char *end = at;
        while (*end != ':' && *end != '\0')
            end++;
        size_t length = (size_t)(end - at);
        if (length + text_length(file) + 2 < FITTING_PATH_BYTES) {
            for (size_t i = 0; i < length; i++)
                path[i] = at[i];
            if (length != 0)
                path[length++] = '/'; /* an empty folder is the current one */
            text_copy(path + length, FITTING_PATH_BYTES - length, file);
            if (is_program(path))
                return true;
        }
        at = end;
        if (*at == '\0')
            return false;
    }
}

static bool is_elf64(const ElfW(Ehdr) *header) {
    return header->e_ident[EI_MAG0] == ELFMAG0 && header->e_ident[EI_MAG1] == 'E' && header->e_ident[EI_MAG2] == 'L' &&
           header->e_ident[EI_MAG3] == 'F' && header->e_ident[EI_CLASS] == ELFCLASS64 &&
           header->e_phentsize == sizeof(ElfW(Phdr));
}

/* The dynamic linker of an open program. A dynamic object without one may be a dynamic linker itself: then its own
 * path stands. False for what reads no LD_PRELOAD, and for what is not known. */
static bool loader_of_elf(int fd, const ElfW(Ehdr) *header, char *path) {
    for (size_t i = 0; i < header->e_phnum && i < MOST_SEGMENTS; i++) {
        ElfW(Phdr) segment;
        if (read_at(fd, &segment, sizeof segment, header->e_phoff + i * sizeof segment) != (long)sizeof segment)
            return false;
        if (segment.p_type != PT_INTERP || segment.p_filesz >= FITTING_PATH_BYTES)
            continue;
        long got = read_at(fd, path, segment.p_filesz, segment.p_offset);
        path[got > 0 ? got : 0] = '\0';
        return got > 0;
    }
    return header->e_type == ET_DYN && text_after(text_base_name(path), "ld-") != NULL;
}

/* path: in, the program; out, its dynamic linker. */
static bool loader_of(char *path) {
    for (int scripts = 0; scripts <= MOST_SCRIPTS; scripts++) {
        union {
            ElfW(Ehdr) elf;
            char line[256 + 1];
        } begin;
        int fd = sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
        if (fd < 0)
            return false;
        long got = read_at(fd, &begin, sizeof begin.line - 1, 0);
        begin.line[got > 0 ? got : 0] = '\0'; /* behind an ELF header, if it is one */
        bool elf = got >= (long)sizeof begin.elf && is_elf64(&begin.elf);
        bool found = elf && loader_of_elf(fd, &begin.elf, path);
        sys_close(fd);
        if (elf || !fitting_interpreter(begin.line, path))
            return found;
    }
    return false;
}

static bool same_file(const char *a, const char *b) {
    struct stat first, second;
    return sys4(SYS_newfstatat, AT_FDCWD, a, &first, 0) == 0 && sys4(SYS_newfstatat, AT_FDCWD, b, &second, 0) == 0 &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

#define MOST_LOADER_BYTES ((size_t)4 << 20) /* it has a quarter of one */

/* The newest version that a dynamic linker names: it has one of each release in which it got a function, the last ones
 * 2.34 and 2.35. */
static uint64_t newest_named(const char *path) {
    uint64_t newest = 0;
    int fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    char *text = fd >= 0 ? sys_anonymous(MOST_LOADER_BYTES) : NULL;
    long length = text != NULL ? read_at(fd, text, MOST_LOADER_BYTES - 1, 0) : 0;
    for (long at = 0; at < length; at++) {
        if (text[at] == 'G')
            newest = newer(newest, version_of(text + at));
    }
    if (text != NULL)
        sys2(SYS_munmap, text, MOST_LOADER_BYTES);
    if (fd >= 0)
        sys_close(fd);
    return newest;
}

bool fitting_can_load(char *path, char **environment) {
    const char *audit = environment_value(environment, "LD_AUDIT");
    if (audit != NULL && *audit != '\0')
        return false;
    if ((needed_version <= OLD_ENOUGH && !brings_libraries) || path == NULL || own_loader == NULL)
        return true;
    if (!loader_of(path) || same_file(path, own_loader->l_name))
        return true;
    return !brings_libraries && newest_named(path) >= needed_version;
}
