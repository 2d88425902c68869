// SPDX-License-Identifier: Apache-2.0
/*
 * waits WAY - waits again and again until a signal has come while pages were given back (signals_in_trim.c), and
 * prints how that wait ended. WAY is poll, ppoll, epoll, epoll_pwait, epoll_pwait2, select, pselect, sleep, clock_sleep,
 * sleep_until (a time of the wall clock), accept, accept4, or restarted: accept, with SA_RESTART.
 * ready WAY waits for what is ready already (select, pselect, accept that does not block) for some seconds, and prints
 * how often pages were given back.
 * HANDLER WAY waits WAY in a signal's handler for some seconds, and prints how often pages were given back there.
 * HANDLER is handler, on-stack (a stack of its own and SA_NODEFER) or used-up (SA_RESETHAND, of a fault).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 200

__attribute__((weak)) extern volatile int trims, in_trim;

static volatile int handled, handled_within;

static void handle(int signal) {
    (void)signal;
    handled++;
    handled_within += in_trim;
}

static int listen_somewhere(void) {
    int file = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval wait = {0, WAIT_MS * 1000};
    if (bind(file, (struct sockaddr *)&any, sizeof any) != 0 || listen(file, 1) != 0)
        exit(2);
    setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    return file;
}

static struct timespec left;

static int wait_once(const char *way) {
    static int listening = -1, set = -1;
    struct epoll_event event;
    struct timeval wait = {0, WAIT_MS * 1000};
    struct timespec long_wait = {0, WAIT_MS * 1000000};
    if (listening < 0) {
        listening = listen_somewhere();
        set = epoll_create1(0);
    }
    if (strcmp(way, "poll") == 0)
        return poll(NULL, 0, WAIT_MS);
    if (strcmp(way, "ppoll") == 0)
        return ppoll(NULL, 0, &long_wait, NULL);
    if (strcmp(way, "epoll") == 0)
        return epoll_wait(set, &event, 1, WAIT_MS);
    if (strcmp(way, "epoll_pwait") == 0)
        return epoll_pwait(set, &event, 1, WAIT_MS, NULL);
    if (strcmp(way, "epoll_pwait2") == 0)
        return epoll_pwait2(set, &event, 1, &long_wait, NULL);
    if (strcmp(way, "select") == 0)
        return select(0, NULL, NULL, NULL, &wait);
    if (strcmp(way, "pselect") == 0)
        return pselect(0, NULL, NULL, NULL, &long_wait, NULL);
    if (strcmp(way, "accept4") == 0)
        return accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (strcmp(way, "clock_sleep") == 0)
        return clock_nanosleep(CLOCK_MONOTONIC, 0, &long_wait, &left);
    if (strcmp(way, "sleep_until") == 0) {
        struct timespec due;
        clock_gettime(CLOCK_REALTIME, &due);
        due.tv_nsec += WAIT_MS * 1000000;
        due.tv_sec += due.tv_nsec / 1000000000;
        due.tv_nsec %= 1000000000;
        return clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &due, &left);
    }
    if (strcmp(way, "sleep") == 0)
        return nanosleep(&long_wait, &left);
    return accept(listening, NULL, NULL);
}

static void work(void) {
    struct timespec now;
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while (now.tv_sec == 0 && now.tv_nsec < 200000000);
}

#define FOR_S 3

static const char *way_in_handler;

static void wait_in_handler(int signal) {
    (void)signal;
    for (time_t until = time(NULL) + FOR_S; time(NULL) < until;)
        wait_once(way_in_handler);
}

/* It may have interrupted malloc: the heap is then in the middle of a change. */
static int tell_of_handler(const char *kind, const char *way) {
    static char stack[1 << 16];
    way_in_handler = way;
    struct sigaction action = {.sa_handler = wait_in_handler};
    int signal = strcmp(kind, "used-up") == 0 ? SIGSEGV : SIGUSR1;
    if (strcmp(kind, "used-up") == 0)
        action.sa_flags = SA_RESETHAND;
    if (strcmp(kind, "on-stack") == 0) {
        action.sa_flags = SA_ONSTACK | SA_NODEFER;
        sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    }
    sigaction(signal, &action, NULL);
    raise(signal);
    printf("trims %d\n", trims);
    return 0;
}

static int wait_for_nothing(const char *way, int end) {
    fd_set ready;
    FD_ZERO(&ready);
    FD_SET(end, &ready);
    if (strcmp(way, "select") == 0)
        return select(end + 1, NULL, &ready, NULL, NULL);
    if (strcmp(way, "pselect") == 0)
        return pselect(end + 1, NULL, &ready, NULL, NULL, NULL);
    return accept(end, NULL, NULL);
}

static int tell_of_ready(const char *way) {
    int ends[2];
    if (pipe(ends) != 0)
        return 2;
    int end = ends[1];
    if (strcmp(way, "accept") == 0) {
        end = listen_somewhere();
        fcntl(end, F_SETFL, O_NONBLOCK);
    }
    int answer = 0;
    for (time_t until = time(NULL) + FOR_S; time(NULL) < until;)
        answer = wait_for_nothing(way, end);
    printf("trims %d, answer %d\n", trims, answer);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && &trims != NULL) {
        work();
        if (strcmp(argv[1], "ready") == 0)
            return tell_of_ready(argv[2]);
        return tell_of_handler(argv[1], argv[2]);
    }
    if (argc != 2 || &trims == NULL)
        return 2;
    struct sigaction action = {.sa_handler = handle, .sa_flags = strcmp(argv[1], "restarted") == 0 ? SA_RESTART : 0};
    sigaction(SIGALRM, &action, NULL);
    work();
    int answer = 0, error = 0;
    for (time_t until = time(NULL) + 60; trims == 0 && time(NULL) < until;) {
        errno = 0;
        answer = wait_once(argv[1]);
        error = errno;
    }
    printf("trims %d, handled %d, within %d, answer %d %s%s\n", trims, handled, handled_within, answer, strerror(error),
           left.tv_nsec == WAIT_MS * 1000000 ? ", all of it left" : "");
    return 0;
}
