// SPDX-License-Identifier: Apache-2.0
#include "ticket.h"

#include "own_folder.h"
#include "sys.h"
#include "text.h"

#define FLIGHTS_PER_PROCESS 64

/* Field 22 of /proc/self/stat: when this process started; 0 if it cannot be read. */
static uint64_t start_ticks(void) {
    char text[1024];
    if (sys_read_text("/proc/self/stat", text, sizeof text) < 0)
        return 0;
    const char *at = text;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == ')')
            at = c; /* the name may hold anything, brackets too */
    }
    for (int field = 2; field < 22 && *at != '\0'; at++)
        field += *at == ' ';
    return text_number(&at);
}

static void fill(struct imas_page_header *header, const struct ticket *ticket, uint32_t pid, uint64_t start) {
    header->magic = IMAS_PAGE_MAGIC;
    header->version = IMAS_PAGE_VERSION;
    header->page_bytes = ticket->kind == IMAS_PAGE_TRIAL ? IMAS_TRIAL_PAGE_BYTES : IMAS_HEADER_BYTES;
    header->kind = ticket->kind;
    header->pid = pid;
    header->uid = ticket->uid;
    header->process_start_ticks = start;
    header->made_unix_ns = sys_clock_ns(SYS_CLOCK_REALTIME);
    header->exit_status = -1;
    char *end = text_hex(header->trial_id, ticket->kind == IMAS_PAGE_TRIAL ? ticket->token : start << 22 | pid);
    text_hex(text_append(end, "-"), ticket->program_id);
    text_copy(header->boot_id, sizeof header->boot_id, ticket->boot_id);
    text_copy(header->candidate, sizeof header->candidate, ticket->candidate);
    text_copy(header->program, sizeof header->program, ticket->program);
    text_copy(header->detail, sizeof header->detail, ticket->detail);
}

/* All its space is taken now, so that writing into the mapping cannot fail later; `armed` comes last. */
static bool write_page(int fd, struct imas_page_header *header) {
    static const uint32_t armed = 1;
    return sys2(SYS_fchmod, fd, 0600) == 0 && /* whatever the umask */
           sys4(SYS_fallocate, fd, 0, 0, header->page_bytes) == 0 &&
           sys4(SYS_pwrite64, fd, header, sizeof *header, 0) == (long)sizeof *header &&
           sys4(SYS_pwrite64, fd, &armed, sizeof armed, offsetof(struct imas_page_header, armed)) == (long)sizeof armed;
}

static int create(int folder, const char *name) {
    return (int)sys4(SYS_openat, folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

#define FILE_EXISTS (-17)

/* <token>.page, or <pid>-<start>[-n].page with the first free n: exec keeps pid and start. */
static int create_named(const struct ticket *ticket, int folder, char *name, uint32_t pid, uint64_t start) {
    if (ticket->kind == IMAS_PAGE_TRIAL) {
        text_append(text_hex(name, ticket->token), ".page");
        return create(folder, name);
    }
    char *end = text_decimal(text_append(text_decimal(name, pid), "-"), start);
    text_append(end, ".page");
    int fd = create(folder, name);
    for (uint64_t n = 1; fd == FILE_EXISTS && n < FLIGHTS_PER_PROCESS; n++) {
        text_append(text_decimal(text_append(end, "-"), n), ".page");
        fd = create(folder, name);
    }
    return fd;
}

static enum ticket_answer make_in(struct ticket *ticket, int folder, char *name) {
    uint32_t pid = (uint32_t)sys0(SYS_getpid);
    uint64_t start = start_ticks();
    if (start == 0)
        return TICKET_FAILED;
    int fd = create_named(ticket, folder, name, pid, start);
    if (fd < 0)
        return fd == FILE_EXISTS && ticket->kind == IMAS_PAGE_TRIAL ? TICKET_TAKEN : TICKET_FAILED;
    struct imas_page_header header = {0};
    fill(&header, ticket, pid, start);
    bool written = write_page(fd, &header);
    sys_close(fd);
    if (!written)
        sys3(SYS_unlinkat, folder, name, 0);
    return written ? TICKET_MADE : TICKET_FAILED;
}

enum ticket_answer ticket_make(struct ticket *ticket, const char *run) {
    char *end = text_decimal(text_append(text_append(ticket->path, run), "/state/u/"), ticket->uid);
    int folder = own_folder_open(ticket->path, ticket->uid);
    if (folder < 0)
        return TICKET_FAILED;
    *end++ = '/';
    enum ticket_answer answer = make_in(ticket, folder, end);
    sys_close(folder);
    return answer;
}

void ticket_discard(const struct ticket *ticket) {
    sys3(SYS_unlinkat, AT_FDCWD, ticket->path, 0);
}
