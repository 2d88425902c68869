// SPDX-License-Identifier: Apache-2.0
#include "raw_file.h"

#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "../hook/libc.h"
#include "../hook/sys.h"
#include "../hook/text.h"
#include "descriptor.h"

#define RAW_BYTES (IMAS_RECORD_HEADER_BYTES + IMAS_RECORD_BUFFER_BYTES)

static struct imas_record_control *control;
/* <folder>/<number>.raw of the current process. */
static char path[1024 + 32];
static size_t folder_length;
/* The permissions of raw files. */
static unsigned raw_mode;

/* ---- the control file ---------------------------------------------------------------------------------- */

static bool is_ours(const struct stat *about) {
    return S_ISREG(about->st_mode) && (long)about->st_uid == sys0(SYS_geteuid);
}

/* A program that gave up root's rights and then calls exec finds the control file of root. */
static bool is_ours_or_roots(const struct stat *about) {
    return is_ours(about) || (S_ISREG(about->st_mode) && about->st_uid == 0);
}

static bool is_sound(const struct imas_record_control *of) {
    return of->magic == IMAS_RECORD_CONTROL_MAGIC && of->version == IMAS_RECORD_VERSION;
}

/* A recording that was prepared before its start lasts from now on. */
static void begin_window(void) {
    uint64_t none = 0;
    if (control->window_ns != 0)
        __atomic_compare_exchange_n(&control->end_ns, &none, sys_monotonic_ns() + control->window_ns, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
}

bool raw_file_control(const char *control_path) {
    struct descriptor opened;
    if (control_path == NULL || text_length(control_path) >= sizeof path - 32)
        return false;
    if (!descriptor_open(&opened, control_path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY))
        return false;
    if (is_ours_or_roots(&opened.about) && opened.about.st_size == IMAS_RECORD_CONTROL_BYTES)
        control = sys_map_file(opened.number, IMAS_RECORD_CONTROL_BYTES);
    raw_mode = opened.about.st_mode & 0666;
    descriptor_close(&opened);
    if (control == NULL || !is_sound(control))
        return false;
    begin_window();
    text_copy(path, sizeof path, control_path);
    folder_length = (size_t)(text_base_name(path) - path);
    return true;
}

/* Takes bytes from the limit of the whole recording. */
static bool spend(uint64_t bytes) {
    uint64_t used = add_relaxed(control->used_bytes, bytes);
    if (used + bytes <= control->limit_bytes)
        return true;
    add_relaxed(control->used_bytes, (uint64_t)0 - bytes);
    return false;
}

/* A file that would grow over the program's RLIMIT_FSIZE raises SIGXFSZ, which ends the program. The program
 * may change the limit at any time. */
static bool may_grow_to(uint64_t bytes) {
    struct {
        uint64_t now, most;
    } limit;
    return sys4(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &limit) == 0 && bytes <= limit.now;
}

bool raw_file_is_over(const struct raw_file *file) {
    (void)file;
    return control->end_ns != 0 && sys_monotonic_ns() >= control->end_ns;
}

/* ---- the raw file -------------------------------------------------------------------------------------- */

/* Raw files have the permissions of the control file: a server that is recorded as root and then gives up
 * root's rights opens its raw file again as another user. */
static bool set_mode(const struct descriptor *opened) {
    return descriptor_is_same(opened) && sys2(SYS_fchmod, opened->number, raw_mode) == 0;
}

/* Allocates disk space before mapping the file, because a write to a mapping on a full disk is a SIGBUS. */
static bool map_new(struct raw_file *file, const struct descriptor *opened) {
    unsigned char *memory = NULL;
    if (is_ours(&opened->about) && descriptor_is_same(opened) && sys4(SYS_fallocate, opened->number, 0, 0, RAW_BYTES) == 0)
        memory = sys_map_file(opened->number, RAW_BYTES);
    if (memory == NULL)
        return false;
    file->header = (struct imas_record_header *)memory;
    file->buffer = (uint64_t *)(memory + IMAS_RECORD_HEADER_BYTES);
    file->device = (uint64_t)opened->about.st_dev;
    file->inode = (uint64_t)opened->about.st_ino;
    return true;
}

static void fill_header(struct imas_record_header *header, uint32_t number, const uint32_t *parent) {
    header->version = IMAS_RECORD_VERSION;
    header->number = number;
    header->parent = parent != NULL ? *parent : number;
    header->pid = (uint32_t)sys0(SYS_getpid);
    header->made_ns = sys_monotonic_ns();
    header->page_bytes = (uint32_t)libc_getauxval(AT_PAGESZ);
    __atomic_store_n(&header->magic, IMAS_RECORD_RAW_MAGIC, __ATOMIC_RELEASE);
}

static bool create(struct raw_file *file, uint32_t number, const uint32_t *parent) {
    text_copy(text_decimal(path + folder_length, number), sizeof ".raw", ".raw");
    struct descriptor opened;
    if (!descriptor_open(&opened, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW))
        return false;
    bool made = set_mode(&opened) && map_new(file, &opened);
    descriptor_close(&opened);
    if (made)
        fill_header(file->header, number, parent);
    else
        sys3(SYS_unlinkat, AT_FDCWD, path, 0);
    return made;
}

bool raw_file_make(struct raw_file *file, const uint32_t *parent) {
    bool may = !raw_file_is_over(file) && may_grow_to(RAW_BYTES);
    if (may && spend(RAW_BYTES) && create(file, add_relaxed(control->next_number, 1), parent))
        return true;
    add_relaxed(control->refused_files, 1);
    return false;
}

/* The program may have changed its root folder or user. Writes only if the path is still the same file. */
static bool open_again(const struct raw_file *file, struct descriptor *opened) {
    if (!descriptor_open(opened, path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY))
        return false;
    if ((uint64_t)opened->about.st_dev == file->device && (uint64_t)opened->about.st_ino == file->inode)
        return true;
    descriptor_close(opened);
    return false;
}

static bool write_all(const struct descriptor *to, const unsigned char *bytes, size_t size) {
    while (size > 0) {
        if (!descriptor_is_same(to))
            return false;
        long written = sys3(SYS_write, to->number, bytes, size);
        const long interrupted = -4;
        if (written == interrupted)
            continue;
        if (written <= 0)
            return false;
        bytes += written;
        size -= (size_t)written;
    }
    return true;
}

enum imas_record_stop raw_file_append(struct raw_file *file, const void *bytes, size_t size) {
    if (!may_grow_to(RAW_BYTES + file->header->turns * IMAS_RECORD_BUFFER_BYTES + size))
        return IMAS_RECORD_FILE;
    if (!spend(size))
        return IMAS_RECORD_LIMIT;
    struct descriptor opened;
    if (!open_again(file, &opened))
        return IMAS_RECORD_FILE;
    bool written = write_all(&opened, bytes, size);
    descriptor_close(&opened);
    if (!written)
        return IMAS_RECORD_FILE;
    __atomic_store_n(&file->header->turns, file->header->turns + 1, __ATOMIC_RELEASE);
    return IMAS_RECORD_RUNS;
}
