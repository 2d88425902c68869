// SPDX-License-Identifier: Apache-2.0
#include "index.h"

#include <stddef.h>
#include <sys/stat.h>

#include "fnv.h"
#include "sys.h"
#include "text.h"

#define MOST_SLOTS (UINT64_C(1) << 40)

static bool header_is_sound(const struct imas_index_header *header) {
    uint64_t slots = header->slots;
    return header->magic == IMAS_INDEX_MAGIC && header->version == IMAS_INDEX_VERSION &&
           header->check == fnv32_record(header, sizeof *header, offsetof(struct imas_index_header, check)) && slots != 0 &&
           slots <= MOST_SLOTS && (slots & (slots - 1)) == 0 &&
           header->file_bytes == sizeof *header + (slots + IMAS_INDEX_PROBES - 1) * sizeof(struct imas_index_entry) &&
           (header->flags & IMAS_INDEX_DISABLED) == 0;
}

bool index_open(struct index *index, const char *path) {
    /* A symbolic link is not followed, and a FIFO does not block us. */
    index->fd = sys_open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (index->fd < 0)
        return false;
    long got = sys4(SYS_pread64, index->fd, &index->header, sizeof index->header, 0);
    if (got == (long)sizeof index->header && header_is_sound(&index->header))
        return true;
    index_close(index);
    return false;
}

void index_close(struct index *index) {
    sys_close(index->fd);
}

static bool same_key(const struct imas_index_entry *entry, const struct index_key *key) {
    return entry->exe_ino == key->exe_ino && entry->exe_dev == key->exe_dev && entry->detail[0] == key->detail[0] &&
           entry->detail[1] == key->detail[1] && entry->detail_kind == key->detail_kind && entry->uid == key->uid;
}

static bool entry_is_sound(const struct imas_index_entry *entry) {
    return entry->candidate != 0 && entry->check == fnv32_record(entry, sizeof *entry, offsetof(struct imas_index_entry, check));
}

bool index_find(const struct index *index, const struct index_key *key, struct imas_index_entry *found) {
    struct imas_index_entry probe[IMAS_INDEX_PROBES];
    uint64_t home = fnv64(key, sizeof *key) & (index->header.slots - 1);
    uint64_t at = sizeof index->header + home * sizeof *probe;
    if (sys4(SYS_pread64, index->fd, probe, sizeof probe, at) != (long)sizeof probe)
        return false;
    for (unsigned i = 0; i < IMAS_INDEX_PROBES; i++) {
        if (same_key(&probe[i], key)) {
            *found = probe[i];
            return entry_is_sound(found);
        }
    }
    return false;
}

bool index_find_for(const struct index *index, struct index_key key, struct imas_index_entry *found) {
    if (index_find(index, &key, found))
        return true;
    key.uid = IMAS_ANY_UID;
    return index_find(index, &key, found);
}

static bool of_this_boot(const struct imas_index_header *header) {
    char now[sizeof header->boot_id];
    long got = sys_read_text("/proc/sys/kernel/random/boot_id", now, sizeof now);
    if (got <= 1 || header->boot_id[sizeof header->boot_id - 1] != '\0')
        return false;
    now[got - (now[got - 1] == '\n')] = '\0';
    return text_equal(header->boot_id, now);
}

bool index_trusted(const struct index *index, uid_t owner, uid_t daemon) {
    struct stat file;
    return sys2(SYS_fstat, index->fd, &file) == 0 && S_ISREG(file.st_mode) && (file.st_mode & 022) == 0 &&
           (file.st_uid == owner || file.st_uid == daemon) && (uint64_t)file.st_size == index->header.file_bytes &&
           of_this_boot(&index->header);
}
