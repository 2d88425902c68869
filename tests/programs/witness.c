// SPDX-License-Identifier: Apache-2.0
/*
 * witness.c - a preload of the tests, not of the product: says of every process it is loaded into which
 * object the program's malloc really comes from. Without it a candidate that silently did not load would pass
 * every comparison of outputs.
 *
 * One line is appended to the file that IMAS_TEST_WITNESS names, fields separated by tabs: pid, executable,
 * file that malloc resolves to, imas_allocator_name of that file or "-", the variables of allocators at exec
 * in the order of their names, each followed by a space
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *file_of(const void *address) {
    Dl_info info;
    return address != NULL && dladdr(address, &info) != 0 ? info.dli_fname : "-";
}

/* A program of fixed address that takes malloc's address has a stub under that name, which dlsym finds
 * first. */
static int is_stub(const void *address) {
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    return dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) != 0 && symbol != NULL && symbol->st_shndx == SHN_UNDEF;
}

/* The first object after the executable that defines malloc. The stub's calls go there. */
static const char *after_the_stub(void) {
    struct link_map *object = NULL;
    if (dlinfo(dlopen(NULL, RTLD_LAZY), RTLD_DI_LINKMAP, &object) != 0)
        return "-";
    while ((object = object->l_next) != NULL) {
        void *handle = dlopen(object->l_name, RTLD_LAZY | RTLD_NOLOAD);
        const char *file = handle != NULL ? file_of(dlsym(handle, "malloc")) : "-";
        if (strcmp(file, object->l_name) == 0)
            return file;
    }
    return "-";
}

static const char *serving_file(void) {
    const void *found = dlsym(RTLD_DEFAULT, "malloc");
    return found != NULL && is_stub(found) ? after_the_stub() : file_of(found);
}

/* The name counts only if it stands in the object that serves. */
static const char *allocator_name(const char *serving) {
    const char *name = dlsym(RTLD_DEFAULT, "imas_allocator_name");
    return name != NULL && strcmp(file_of(name), serving) == 0 ? name : "-";
}

/* Appends those of the variables that begin so. */
static void append_settings(char *settings, size_t size, const char *begin, const char *buffer, ssize_t length) {
    for (const char *entry = buffer; entry < buffer + length; entry += strlen(entry) + 1) {
        size_t used = strlen(settings), more = strlen(entry);
        if (strncmp(entry, begin, strlen(begin)) != 0)
            continue;
        if (used + more + 2 > size)
            abort(); /* a test must not go on with half a testimony */
        memcpy(settings + used, entry, more);
        memcpy(settings + used + more, " ", 2);
    }
}

/* As the kernel was given them: by now the guard has put the environment back. */
static const char *settings_at_exec(char *settings, size_t size) {
    static char buffer[1 << 16];
    static const char *const BEGINNINGS[] = { "GLIBC_TUNABLES=", "MALLOC_CONF=", "MIMALLOC_", "TCMALLOC_" };
    int fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, buffer, sizeof buffer - 1);
    if (fd >= 0)
        close(fd);
    /* Older ld.so cut its tunables apart where they stand. */
    for (ssize_t at = 0; at + 7 < length; at++) {
        if (memcmp(buffer + at, "\0glibc.", 7) == 0)
            buffer[at] = ':';
    }
    settings[0] = '\0';
    for (size_t i = 0; i < sizeof BEGINNINGS / sizeof BEGINNINGS[0]; i++)
        append_settings(settings, size, BEGINNINGS[i], buffer, length);
    return settings;
}

__attribute__((constructor)) static void testify(void) {
    const char *file = getenv("IMAS_TEST_WITNESS");
    if (file == NULL)
        return;
    char executable[512] = "-", line[2048], settings[1024];
    ssize_t length = readlink("/proc/self/exe", executable, sizeof executable - 1);
    if (length > 0)
        executable[length] = '\0';
    const char *serving = serving_file();
    int bytes = snprintf(line, sizeof line, "%d\t%s\t%s\t%s\t%s\n", getpid(), executable, serving, allocator_name(serving),
                         settings_at_exec(settings, sizeof settings));
    int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (write(fd, line, (size_t)bytes) != bytes)
        abort(); /* a test must not go on without its witness */
    close(fd);
}
