// SPDX-License-Identifier: Apache-2.0
/* kernel ring|fault: io_uring with a malloc'd buffer; userfaultfd over a mapping while malloc goes on. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "choice.h"

static int ring(void) {
    struct io_uring uring;
    int error = io_uring_queue_init(8, &uring, 0);
    if (error != 0)
        return printf("io_uring: %s\n", strerror(-error));
    char *buffer = malloc(4096);
    int fd = open("/proc/self/exe", O_RDONLY);
    for (int i = 0; i < 50; i++) {
        io_uring_prep_read(io_uring_get_sqe(&uring), fd, buffer, 4096, 0);
        io_uring_submit(&uring);
        struct io_uring_cqe *done;
        io_uring_wait_cqe(&uring, &done);
        printf("%d %.3s\n", done->res, buffer + 1);
        io_uring_cqe_seen(&uring, done);
        buffer = realloc(buffer, (size_t)(4096 + i * 100));
    }
    free(buffer);
    io_uring_queue_exit(&uring);
    return 0;
}

static void *answer(void *fd) {
    char *page = aligned_alloc(4096, 4096);
    for (int i = 0; i < 16; i++) {
        struct uffd_msg message;
        if (read((int)(intptr_t)fd, &message, sizeof message) != sizeof message)
            break;
        memset(page, 'a' + i, 4096);
        struct uffdio_copy copy = {.dst = message.arg.pagefault.address & ~4095ull, .src = (uintptr_t)page, .len = 4096};
        ioctl((int)(intptr_t)fd, UFFDIO_COPY, &copy);
    }
    free(page);
    return NULL;
}

static int fault(void) {
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0)
        return printf("userfaultfd: %s\n", strerror(errno));
    char *area = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register range = {.range = {(uintptr_t)area, 16 * 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    ioctl(fd, UFFDIO_REGISTER, &range);
    pthread_t thread;
    pthread_create(&thread, NULL, answer, (void *)(intptr_t)fd);
    for (int i = 0; i < 16; i++) {
        printf("%c", area[i * 4096]);
        free(malloc((size_t)i * 10000));
    }
    pthread_join(thread, NULL);
    return puts("");
}

static const struct choice CHOICES[] = {{"ring", ring}, {"fault", fault}, {NULL, NULL}};

int main(int count, char **words) { return choose(CHOICES, count, words); }
