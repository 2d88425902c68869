// SPDX-License-Identifier: Apache-2.0
// waits KIND [LIMIT_MS [FLAGS]]: one thread waits in that kind of system call again and again, without a limit if that is 0. A
// process beside it, the bell, ends a wait for each byte w of standard input, sends SIGUSR1 for each s, and ends all with it.
// For each wait a line is printed: result, errno, microseconds, calls of malloc_trim meanwhile. FLAGS: t: another thread than the
// first one waits; s: SIGUSR1 comes while malloc_trim runs; r: its handler has SA_RESTART.
#define _GNU_SOURCE
#include "heap.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

enum { UNTOUCHED = 77, SIGNALS = 8, FROM_A_CHILD = 1 };

// Of this process and its bell.
static struct { atomic_int over, word, waiter; } *shared;
static pid_t first, child;
static int pipes[2], sockets[2], calls[2], listener, events, timer, signals, watched, watcher, group, queue, semaphores, mail;
static int limit_ms;
static aio_context_t asynchronous;
static struct timespec span, moment;
static struct timeval short_span;
static fd_set readable;
static sigset_t none, user;

static void ring_pipe(void) { write(pipes[1], "x", 1); }
static void ring_socket(void) { send(sockets[1], "x", 1, 0); }
static void ring_child(void) { write(calls[1], "x", 1); }
static void ring_event(void) { eventfd_write(events, 1); }
static void ring_file(void) { write(watched, "x", 1); }
static void ring_mail(void) { mq_send(mail, "x", 1, 0); }
static void ring_signal(void) { syscall(SYS_tgkill, first, atomic_load(&shared->waiter), SIGUSR1); }

static void ring_listener(void)
{
    struct sockaddr_un name;
    socklen_t bytes = sizeof name;
    int ours = socket(AF_UNIX, SOCK_STREAM, 0);
    getsockname(listener, (struct sockaddr *)&name, &bytes);
    connect(ours, (struct sockaddr *)&name, bytes);
    close(ours);
}

static void ring_queue(void)
{
    struct { long kind; char text; } message = {1, 'x'};
    msgsnd(queue, &message, 1, 0);
}

static void ring_semaphore(void)
{
    struct sembuf up = {.sem_op = 1};
    semop(semaphores, &up, 1);
}

static void ring_word(void)
{
    atomic_store(&shared->word, 1);
    syscall(SYS_futex, &shared->word, FUTEX_WAKE, 1);
}

static void begin_child(void)
{
    child = fork();
    if (!child) {
        char byte;
        read(calls[0], &byte, 1);
        _exit(0);
    }
}

static void begin_timer(void)
{
    struct itimerspec at = {.it_value = span};
    timerfd_settime(timer, 0, &at, NULL);
}

static void begin_asynchronous(void)
{
    static struct iocb of_pipe;
    struct iocb *all[] = {&of_pipe};
    of_pipe = (struct iocb){.aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = (unsigned)pipes[0], .aio_buf = POLLIN};
    if (!asynchronous)
        syscall(SYS_io_setup, 4, &asynchronous);
    if (!limit_ms)
        syscall(SYS_io_submit, asynchronous, 1, all);
}

static void begin_word(void) { atomic_store(&shared->word, 0); }

// A kind of wait: the system call with its arguments, what ends it, what precedes it.
struct kind {
    const char *name;
    long call;
    long with[6];
    void (*ring)(void), (*begin)(void);
};

static struct kind kind_of(const char *name)
{
    static char room[9000];
    static struct pollfd of_pipe = {.events = POLLIN};
    static struct epoll_event event;
    static struct iovec part = {.iov_base = room, .iov_len = 1};
    static struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    static struct sembuf down = {.sem_op = -1};
    static struct { const sigset_t *set; size_t bytes; } mask = {&none, SIGNALS};
    static siginfo_t of_child;
    of_pipe.fd = pipes[0];
    long in = pipes[0], from = sockets[0], into = (long)room, ms = limit_ms ? limit_ms : -1;
    long span_at = limit_ms ? (long)&span : 0, moment_at = limit_ms ? (long)&moment : 0;
    const struct kind all[] = {
#ifdef SYS_poll // the oldest calls: not on arm64
        {"poll", SYS_poll, {(long)&of_pipe, 1, ms}, ring_pipe, NULL},
        {"select", SYS_select, {in + 1, (long)&readable, 0, 0, limit_ms ? (long)&short_span : 0}, ring_pipe, NULL},
        {"epoll_wait", SYS_epoll_wait, {group, (long)&event, 1, ms}, ring_pipe, NULL},
        {"pause", SYS_pause, {0}, ring_signal, NULL},
#endif
        {"ppoll", SYS_ppoll, {(long)&of_pipe, 1, span_at, (long)&none, SIGNALS}, ring_pipe, NULL},
        {"pselect", SYS_pselect6, {in + 1, (long)&readable, 0, 0, span_at, (long)&mask}, ring_pipe, NULL},
        {"epoll_pwait", SYS_epoll_pwait, {group, (long)&event, 1, ms, (long)&none, SIGNALS}, ring_pipe, NULL},
        {"epoll_pwait2", SYS_epoll_pwait2, {group, (long)&event, 1, span_at, 0, SIGNALS}, ring_pipe, NULL},
        {"read", SYS_read, {in, into, 1}, ring_pipe, NULL},
        {"readv", SYS_readv, {in, (long)&part, 1}, ring_pipe, NULL},
        {"read-socket", SYS_read, {from, into, 1}, ring_socket, NULL},
        {"read-event", SYS_read, {events, into, 8}, ring_event, NULL},
        {"read-timer", SYS_read, {timer, into, 8}, NULL, begin_timer},
        {"read-signal", SYS_read, {signals, into, sizeof(struct signalfd_siginfo)}, ring_signal, NULL},
        {"read-inotify", SYS_read, {watcher, into, sizeof(struct inotify_event)}, ring_file, NULL},
        {"recv", SYS_recvfrom, {from, into, 1, 0, 0, 0}, ring_socket, NULL},
        {"recvmsg", SYS_recvmsg, {from, (long)&message, 0}, ring_socket, NULL},
        {"accept", SYS_accept, {listener, 0, 0}, ring_listener, NULL},
        {"accept4", SYS_accept4, {listener, 0, 0, SOCK_CLOEXEC}, ring_listener, NULL},
        {"wait4", SYS_wait4, {-1, into, 0, 0}, ring_child, begin_child},
        {"waitid", SYS_waitid, {P_ALL, 0, (long)&of_child, WEXITED, 0}, ring_child, begin_child},
        {"sigsuspend", SYS_rt_sigsuspend, {(long)&none, SIGNALS}, ring_signal, NULL},
        {"sigwait", SYS_rt_sigtimedwait, {(long)&user, 0, span_at, SIGNALS}, ring_signal, NULL},
        {"msgrcv", SYS_msgrcv, {queue, into, 1, 0, 0}, ring_queue, NULL},
        {"semop", SYS_semop, {semaphores, (long)&down, 1}, ring_semaphore, NULL},
        {"semtimedop", SYS_semtimedop, {semaphores, (long)&down, 1, span_at}, ring_semaphore, NULL},
        {"mq_receive", SYS_mq_timedreceive, {mail, into, sizeof room, 0, moment_at}, ring_mail, NULL},
        {"nanosleep", SYS_nanosleep, {span_at, 0}, NULL, NULL},
        {"clock_nanosleep", SYS_clock_nanosleep, {CLOCK_REALTIME, 0, span_at, 0}, NULL, NULL},
        {"clock_nanosleep-until", SYS_clock_nanosleep, {CLOCK_REALTIME, TIMER_ABSTIME, moment_at, 0}, NULL, NULL},
        {"io_getevents", SYS_io_getevents, {0, 1, 1, into, span_at}, ring_pipe, begin_asynchronous},
        {"futex", SYS_futex, {(long)&shared->word, FUTEX_WAIT, 0, span_at}, ring_word, begin_word},
    };
    for (size_t at = 0; at < sizeof all / sizeof *all; at++)
        if (!strcmp(all[at].name, name))
            return all[at];
    fprintf(stderr, "no kind of wait: %s\n", name);
    exit(2);
}

static void open_all(void)
{
    char path[] = "/tmp/imas-waits-XXXXXX", name[40];
    sigemptyset(&none);
    sigemptyset(&user);
    sigaddset(&user, SIGUSR1);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pipe(pipes);
    pipe(calls);
    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    bind(listener, &(struct sockaddr){.sa_family = AF_UNIX}, offsetof(struct sockaddr, sa_data));
    listen(listener, 5);
    struct timeval limit = {.tv_usec = limit_ms * 1000};
    setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    events = eventfd(0, 0);
    timer = timerfd_create(CLOCK_MONOTONIC, 0);
    signals = signalfd(-1, &user, 0);
    watched = mkstemp(path);
    watcher = inotify_init();
    inotify_add_watch(watcher, path, IN_MODIFY);
    unlink(path);
    struct epoll_event event = {.events = EPOLLIN};
    group = epoll_create1(0);
    epoll_ctl(group, EPOLL_CTL_ADD, pipes[0], &event);
    queue = msgget(IPC_PRIVATE, 0600);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    snprintf(name, sizeof name, "/imas-waits-%d", first);
    mail = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
    mq_unlink(name);
}

// What is asked on standard input is done until that ends.
static void bell(void (*ring)(void))
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (char byte; read(0, &byte, 1) == 1;)
        if (byte == 's')
            ring_signal();
        else if (ring)
            ring();
    atomic_store(&shared->over, 1);
    for (;; usleep(1000)) // a signal may come between two waits
        if (ring)
            ring();
}

static long now_us(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void *wait_again_and_again(void *given)
{
    const struct kind *kind = given;
    atomic_store(&shared->waiter, gettid());
    fill(gettid(), kind->call);
    while (!atomic_load(&shared->over)) {
        long limit_us = limit_ms * 1000L, end = now_us(CLOCK_REALTIME) + limit_us;
        span = (struct timespec){limit_us / 1000000, limit_us % 1000000 * 1000};
        short_span = (struct timeval){limit_us / 1000000, limit_us % 1000000};
        moment = (struct timespec){end / 1000000, end % 1000000 * 1000};
        FD_ZERO(&readable);
        FD_SET(pipes[0], &readable);
        if (kind->begin)
            kind->begin();
        long first_word = kind->call == SYS_io_getevents ? (long)asynchronous : kind->with[0];
        trims = 0;
        errno = UNTOUCHED;
        long begun = now_us(CLOCK_MONOTONIC);
        const long *with = kind->with;
        long result = syscall(kind->call, first_word, with[1], with[2], with[3], with[4], with[5]);
        int code = errno;
        long took = now_us(CLOCK_MONOTONIC) - begun;
        struct pollfd left = {.fd = pipes[0], .events = POLLIN};
        for (char byte; poll(&left, 1, 0) == 1;)
            read(pipes[0], &byte, 1);
        if (kind->ring == ring_listener && result >= 0)
            close((int)result);
        if (kind->ring == ring_child && result < 0) { // by a signal: its child is there still
            ring_child();
            waitpid(child, NULL, 0);
        }
        printf("%ld %d %ld %d\n", result > 0 && result == child ? FROM_A_CHILD : result, code, took, trims);
        fflush(stdout);
    }
    return NULL;
}

int main(int count, char **words)
{
    const char *flags = count > 3 ? words[3] : "";
    limit_ms = count > 2 ? atoi(words[2]) : 0;
    first = getpid();
    open_all();
    struct kind kind = kind_of(count > 1 ? words[1] : "read");
    struct sigaction on_user = {.sa_handler = nothing, .sa_flags = strchr(flags, 'r') ? SA_RESTART : 0};
    sigaction(SIGUSR1, &on_user, NULL);
    if (!strcmp(kind.name, "sigsuspend") || !strcmp(kind.name, "sigwait") || !strcmp(kind.name, "read-signal"))
        sigprocmask(SIG_BLOCK, &user, NULL);
    if (strchr(flags, 's'))
        within = ring_signal;
    if (!fork())
        bell(kind.ring);
    pthread_t thread;
    if (!strchr(flags, 't'))
        wait_again_and_again(&kind);
    else if (pthread_create(&thread, NULL, wait_again_and_again, &kind) || pthread_join(thread, NULL))
        return 1;
    msgctl(queue, IPC_RMID, NULL);
    semctl(semaphores, 0, IPC_RMID);
    say_how_it_is();
}
