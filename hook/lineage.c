// SPDX-License-Identifier: Apache-2.0
#include "lineage.h"

#include "fork_order.h"
#include "live.h"
#include "page.h"
#include "proc.h"
#include "sandbox.h"
#include "snapshot.h"
#include "sys.h"
#include "text.h"
#include "thread.h"

static char first_page[1024];
static bool counts_children;

#define IMAGES_PER_PROCESS 1000 /* exec after exec in one pid, each with a page of its own */

/* ---- a new page ---------------------------------------------------------------------------------------- */

/* Room for <directory>/<pid>-<start>-<n>.page: */
struct page_path {
    char text[sizeof first_page + 3 * 21];
    char *number;
};

static void path_begin(struct page_path *path, uint64_t pid, uint64_t start) {
    char *end = path->text + text_copy(path->text, sizeof first_page, first_page);
    while (end > path->text && end[-1] != '/')
        end--;
    end = text_decimal(end, pid);
    *end++ = '-';
    end = text_decimal(end, start);
    *end++ = '-';
    path->number = end;
}

static int create_numbered(struct page_path *path) {
    const int file_exists = -17;
    int fd = file_exists;
    for (uint64_t n = 0; fd == file_exists && n < IMAGES_PER_PROCESS; n++) {
        text_copy(text_decimal(path->number, n), sizeof ".page", ".page");
        fd = sys_open(path->text, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    return fd;
}

/* The program of this process; its build id and detail are known only if it is the parent's. */
static void copy_program(struct imas_page_header *to, const struct imas_page_header *from) {
    long length = sys4(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", to->program, sizeof to->program - 1);
    to->program[length > 0 ? length : 0] = '\0';
    if (!text_equal(to->program, from->program))
        return;
    text_copy(to->detail, sizeof to->detail, from->detail);
    text_copy(to->build_id, sizeof to->build_id, from->build_id);
}

static void fill(struct imas_page_header *to, const struct imas_page_header *from, uint64_t pid, uint64_t start) {
    to->magic = IMAS_PAGE_MAGIC;
    to->version = IMAS_PAGE_VERSION;
    to->page_bytes = IMAS_TRIAL_PAGE_BYTES;
    to->kind = IMAS_PAGE_TRIAL;
    to->pid = (uint32_t)pid;
    to->uid = (uint32_t)sys0(SYS_geteuid);
    to->process_start_ticks = start;
    to->made_unix_ns = sys_clock_ns(SYS_CLOCK_REALTIME);
    text_copy(to->boot_id, sizeof to->boot_id, from->boot_id);
    text_copy(to->trial_id, sizeof to->trial_id, from->trial_id);
    text_copy(to->candidate, sizeof to->candidate, from->candidate);
    copy_program(to, from);
    __atomic_store_n(&to->armed, 1, __ATOMIC_RELEASE);
}

/* Space is taken before the file is mapped: a full disk must not become a SIGBUS. */
static struct imas_page *map_new(int fd) {
    struct imas_page *page = NULL;
    if (sys4(SYS_fallocate, fd, 0, 0, IMAS_TRIAL_PAGE_BYTES) == 0)
        page = sys_map_file(fd, IMAS_TRIAL_PAGE_BYTES);
    sys_close(fd);
    return page;
}

static struct imas_page *make_page(const struct imas_page_header *parent) {
    static struct page_path path;
    uint64_t pid = (uint64_t)sys0(SYS_getpid);
    uint64_t start = proc_start_ticks();
    path_begin(&path, pid, start);
    int fd = create_numbered(&path);
    if (fd < 0)
        return NULL;
    struct imas_page *page = map_new(fd);
    if (page == NULL)
        sys3(SYS_unlinkat, AT_FDCWD, path.text, 0); /* no page is better than one that nobody fills */
    else
        fill(&page->header, parent, pid, start);
    return page;
}

struct imas_page *lineage_page_for_us(const char *page_path) {
    const struct imas_page_header *first = page_look(page_path);
    if (first == NULL)
        return NULL;
    text_copy(first_page, sizeof first_page, page_path);
    struct imas_page *page = make_page(first);
    sys2(SYS_munmap, first, IMAS_TRIAL_PAGE_BYTES);
    return page;
}

/* ---- beginning and fork -------------------------------------------------------------------------------- */

/* The image before this one has counted into the page: its counts and times go on, and its blocks and threads are gone. */
static void take_over(struct imas_page *page) {
    page->sampled.live_bytes = 0;
    page->sampled.live_requested = 0;
    page->sampled.live_samples = 0;
    page->header.threads = 0;
}

void lineage_begin(struct imas_page *page) {
    if (page->header.ns_start != 0)
        take_over(page);
    page_use(&page->header);
    thread_start(page);
    snapshot_start();
    page_note_state(IMAS_STATE_TRIAL);
}

static void stop_counting(void) {
    page_leave();
    thread_restart_in_child(NULL);
}

void lineage_lost(void) {
    stop_counting();
}

/* The child has its parent's live blocks, and goes on from that estimate; its calls it counts from
 * nothing. */
static void count_on(struct imas_page *page, const struct imas_page *parent) {
    page->sampled.live_bytes = parent->sampled.live_bytes;
    page->sampled.live_requested = parent->sampled.live_requested;
    page->sampled.live_samples = parent->sampled.live_samples;
    page->header.empty_pair_ticks_256 = parent->header.empty_pair_ticks_256;
    page->header.forked = 1;
    text_copy(page->header.served, sizeof page->header.served, parent->header.served);
    page_use(&page->header);
    thread_restart_in_child(page);
    snapshot_start();
    page_note_state(IMAS_STATE_TRIAL);
}

static void in_child(void) {
    if (!thread_counting)
        return;
    live_after_fork();
    snapshot_after_fork();
    const struct imas_page *parent = thread_page;
    struct imas_page *page = counts_children && !sandbox_entered() ? make_page(&parent->header) : NULL;
    if (page != NULL)
        count_on(page, parent);
    else
        stop_counting();
}

static void in_parent(void) {
    add_relaxed(thread_page->header.forks, 1);
}

void lineage_install(const char *page_path, bool tree) {
    if (page_path != NULL)
        text_copy(first_page, sizeof first_page, page_path);
    counts_children = tree;
    fork_order_add(in_parent, in_child);
}
