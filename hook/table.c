// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <stddef.h>
#include <sys/stat.h>

#include "fnv.h"
#include "sys.h"

static bool header_is_sound(const struct imas_catalogue_header *header, off_t size) {
    return header->magic == IMAS_CATALOGUE_MAGIC && header->version == IMAS_CATALOGUE_VERSION &&
           header->check == fnv32_record(header, sizeof *header, offsetof(struct imas_catalogue_header, check)) &&
           header->count <= IMAS_CATALOGUE_MAX &&
           header->file_bytes == ((uint64_t)header->count + 1) * IMAS_CATALOGUE_ENTRY_BYTES &&
           header->file_bytes == (uint64_t)size;
}

bool table_open(struct table *table, const char *path, uid_t owner) {
    struct stat file;
    table->fd = sys_open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (table->fd < 0)
        return false;
    if (sys2(SYS_fstat, table->fd, &file) == 0 && S_ISREG(file.st_mode) && (file.st_mode & 022) == 0 && file.st_uid == owner &&
        sys4(SYS_pread64, table->fd, &table->header, sizeof table->header, 0) == (long)sizeof table->header &&
        header_is_sound(&table->header, file.st_size))
        return true;
    table_close(table);
    return false;
}

void table_close(struct table *table) {
    sys_close(table->fd);
}

/* A text that ends within its field, and is a path from the root that LD_PRELOAD takes for one path. */
static bool is_path(const char *field, size_t size) {
    if (field[0] != '/')
        return false;
    for (size_t i = 0; i < size; i++) {
        if (field[i] == '\0')
            return true;
        if (field[i] == ' ' || field[i] == ':' || field[i] == '$')
            return false;
    }
    return false;
}

bool table_approves(const char path[IMAS_CATALOGUE_LIBRARY_BYTES], const struct imas_file_identity *approved) {
    struct stat file;
    return is_path(path, IMAS_CATALOGUE_LIBRARY_BYTES) && sys4(SYS_newfstatat, AT_FDCWD, path, &file, 0) == 0 &&
           S_ISREG(file.st_mode) && file.st_dev == approved->dev && file.st_ino == approved->ino &&
           (uint64_t)file.st_size == approved->bytes &&
           (int64_t)file.st_mtim.tv_sec * 1000000000 + file.st_mtim.tv_nsec == approved->mtime_ns;
}

/* Texts that each end with NUL, and an empty one: they end within the field. */
static bool is_list(const char *field, size_t size) {
    return field[size - 1] == '\0' && field[size - 2] == '\0';
}

bool table_candidate(const struct table *table, uint32_t id, struct imas_catalogue_entry *candidate) {
    if (id == 0 || id > table->header.count)
        return false;
    uint64_t at = (uint64_t)id * sizeof *candidate;
    if (sys4(SYS_pread64, table->fd, candidate, sizeof *candidate, at) != (long)sizeof *candidate || candidate->id != id ||
        (candidate->flags & ~(uint32_t)(IMAS_CANDIDATE_HAS_SETTINGS)) != 0 ||
        candidate->check != fnv32_record(candidate, sizeof *candidate, offsetof(struct imas_catalogue_entry, check)))
        return false;
    if (candidate->name[sizeof candidate->name - 1] != '\0' || !is_list(candidate->environment, sizeof candidate->environment) ||
        !is_list(candidate->yields_to, sizeof candidate->yields_to))
        return false;
    return candidate->library[0] == '\0' || table_approves(candidate->library, &candidate->identity);
}
