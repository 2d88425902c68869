// SPDX-License-Identifier: Apache-2.0
#include "page.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "sys.h"

static struct imas_page_header nowhere;
struct imas_page_header *page_header = &nowhere;

/* A byte that the kernel clears in every child with memory of its own (MADV_WIPEONFORK): shows clone and
 * _Fork, for which no fork handler runs, without a system call that a seccomp filter might punish. */
static const volatile unsigned char *canary;

static void set_canary(void) {
    unsigned char *memory = sys_anonymous(4096);
    if (memory == NULL || sys3(SYS_madvise, memory, 4096, MADV_WIPEONFORK) < 0)
        return; /* Linux before 4.14: only fork handlers notice children */
    *memory = 1;
    canary = memory;
}

bool page_is_ours(void) {
    return canary == NULL || *canary != 0;
}

static uint32_t expected_bytes(uint32_t kind) {
    return kind == IMAS_PAGE_TRIAL ? IMAS_TRIAL_PAGE_BYTES : IMAS_HEADER_BYTES;
}

static bool file_is_sound(int fd, uint32_t bytes) {
    struct stat file;
    if (sys2(SYS_fstat, fd, &file) < 0)
        return false;
    return S_ISREG(file.st_mode) && (long)file.st_uid == sys0(SYS_geteuid) && file.st_size == (off_t)bytes &&
           file.st_nlink == 1;
}

static bool header_is_sound(const struct imas_page_header *header, uint32_t kind) {
    return header->magic == IMAS_PAGE_MAGIC && header->version == IMAS_PAGE_VERSION && header->kind == kind &&
           header->page_bytes == expected_bytes(kind) && header->armed == 1;
}

/* A symbolic link is not followed, a FIFO does not block us, a terminal does not become ours. */
static int open_page_file(const char *path, int access) {
    return sys_open(path, access | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
}

static struct imas_page_header *map_sound(int fd, uint32_t kind) {
    uint32_t bytes = expected_bytes(kind);
    if (!file_is_sound(fd, bytes))
        return NULL;
    struct imas_page_header *header = sys_map_file(fd, bytes);
    if (header != NULL && !header_is_sound(header, kind)) {
        sys2(SYS_munmap, header, bytes);
        return NULL;
    }
    return header;
}

struct imas_page_header *page_open(const char *path, enum imas_page_kind kind) {
    int fd = open_page_file(path, O_RDWR);
    if (fd < 0)
        return NULL;
    struct imas_page_header *header = map_sound(fd, kind);
    sys_close(fd);
    if (header == NULL)
        return NULL;
    if ((long)header->pid != sys0(SYS_getpid) || header->state != IMAS_STATE_ARMED) {
        sys2(SYS_munmap, header, expected_bytes(kind));
        return NULL;
    }
    return header;
}

const struct imas_page_header *page_look(const char *path) {
    int fd = open_page_file(path, O_RDWR);
    if (fd < 0)
        return NULL;
    struct imas_page_header *header = map_sound(fd, IMAS_PAGE_TRIAL);
    sys_close(fd);
    return header;
}

bool page_await(const char *path, uint32_t *state) {
    if ((long)page_header->pid != sys0(SYS_getpid))
        return false;
    int fd = open_page_file(path, O_RDWR);
    bool sound = fd >= 0 && file_is_sound(fd, expected_bytes(page_header->kind));
    if (fd >= 0)
        sys_close(fd);
    *state = get_relaxed(page_header->state);
    if (sound)
        page_note_state(IMAS_STATE_ARMED);
    return sound;
}

void page_use(struct imas_page_header *header) {
    header->exit_status = -1;
    header->own_calls = 0;
    header->clean_exit = 0; /* an image before this one may have noted a child's */
    if (canary == NULL || *canary == 0)
        set_canary();
    page_header = header;
    page_note_state(IMAS_STATE_ENTERED);
}

void page_leave(void) {
    page_header = &nowhere;
}

void page_note_state(enum imas_state state) {
    set_relaxed(page_header->state, state);
}

void page_note_pass(enum imas_pass_reason reason) {
    set_relaxed(page_header->pass_reason, reason);
    page_note_state(IMAS_STATE_PASS);
}
