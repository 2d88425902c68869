// SPDX-License-Identifier: Apache-2.0
/* signals WHAT: how programs end, and what they do in handlers. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "choice.h"

static void use(void) {
    for (int i = 1; i < 2000; i++)
        free(memset(malloc((size_t)i * 31 % 9000 + 1), i, 1));
}

static void no_core(void) { setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); }

static struct sigaction displaced;
static volatile int entered;

/* As crash reporters do: own work, then whatever was there before. */
static void reporting(int signal, siginfo_t *info, void *context) {
    if (entered++ == 3)
        _exit(99);
    if ((displaced.sa_flags & SA_SIGINFO) != 0)
        displaced.sa_sigaction(signal, info, context);
    else if (displaced.sa_handler == SIG_DFL)
        sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    else
        displaced.sa_handler(signal);
}

static int chained(int which) {
    no_core();
    sigaction(which, &(struct sigaction){.sa_sigaction = reporting, .sa_flags = SA_SIGINFO | SA_ONSTACK}, &displaced);
    printf("%d\n", displaced.sa_handler == SIG_DFL);
    fflush(stdout);
    use();
    if (which == SIGSEGV)
        *(volatile int *)8 = 1;
    raise(which);
    return 0;
}

static int chained_segv(void) { return chained(SIGSEGV); }
static int chained_abort(void) { return chained(SIGABRT); }
static int chained_fpe(void) { return chained(SIGFPE); }

static void (*before)(int);
static void one_argument(int signal_number) {
    if (before != SIG_DFL && before != SIG_IGN)
        before(signal_number);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static int chained_one_argument(void) {
    no_core();
    before = signal(SIGFPE, one_argument);
    printf("%d\n", before == SIG_DFL);
    fflush(stdout);
    return raise(SIGFPE);
}

static int segv(void) {
    no_core();
    use();
    *(volatile int *)8 = 1;
    return 0;
}

static int bus(void) {
    no_core();
    FILE *file = tmpfile();
    volatile char *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
    return at[100];
}

static int aborted(void) {
    no_core();
    printf("buffered");
    abort();
}

static int ill(void) {
    no_core();
    __builtin_trap();
}

static int overflow_of(int depth) {
    volatile char room[1000];
    if (depth == -1)
        return 0;
    memset((char *)room, depth, sizeof room);
    return overflow_of(depth + 1) + room[5];
}

static int overflow(void) {
    no_core();
    return overflow_of(0);
}

static sigjmp_buf back;
static void jump(int signal) { siglongjmp(back, signal); }

static int overflow_caught(void) {
    static char stack[65536];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    sigaction(SIGSEGV, &(struct sigaction){.sa_handler = jump, .sa_flags = SA_ONSTACK}, NULL);
    for (volatile int i = 0; i < 3; i++) {
        if (sigsetjmp(back, 1) == 0)
            overflow_of(0);
        use();
        printf("caught\n");
    }
    return 0;
}

static void *segv_there(void *nothing) {
    segv();
    return nothing;
}

static int in_thread(void) {
    no_core();
    pthread_t thread;
    pthread_create(&thread, NULL, segv_there, NULL);
    pthread_join(thread, NULL);
    return 0;
}

/* A program that ignores a fault signal sent by another process goes on. */
static int ignored(void) {
    signal(SIGABRT, SIG_IGN);
    signal(SIGSEGV, SIG_IGN);
    raise(SIGABRT), raise(SIGSEGV);
    use();
    return puts("goes on");
}

static int blocked(void) {
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, 0);
    raise(SIGSEGV);
    struct signalfd_siginfo info;
    use();
    ssize_t bytes = read(fd, &info, sizeof info);
    printf("%zd %u\n", bytes, info.ssi_signo);
    return 0;
}

static volatile int ticks;
static void tick(int signal) {
    (void)signal;
    int saved = errno;
    ticks++;
    errno = saved;
}

/* Timer signals hit malloc all the time; errno and the heap stay whole. */
static int timers(void) {
    signal(SIGPROF, tick);
    timer_t timer;
    timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF}, &timer);
    timer_settime(timer, 0, &(struct itimerspec){{0, 200000}, {0, 200000}}, NULL);
    for (int i = 0; i < 100; i++)
        use();
    printf("%d\n", ticks > 5);
    return 0;
}

static void late(void) { puts("at exit"); use(); }
static void late_quick(void) { write(1, "quick\n", 6); use(); }

static int leaves(void) {
    atexit(late);
    at_quick_exit(late_quick);
    exit(3);
}

static int leaves_quick(void) {
    atexit(late);
    at_quick_exit(late_quick);
    quick_exit(4);
}

static int leaves_at_once(void) {
    atexit(late);
    _exit(5);
}

static void again(void) { _exit(11); }
static int exit_in_exit(void) {
    atexit(again);
    exit(3);
}

static void *leaves_from_thread(void *nothing) {
    (void)nothing;
    exit(6);
}

static int thread_exits_process(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, leaves_from_thread, NULL);
    pause();
    return 0;
}

static void *goes_on(void *nothing) {
    usleep(20000);
    use();
    puts("thread goes on");
    return nothing;
}

static int main_thread_ends(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, goes_on, NULL);
    pthread_exit(NULL);
}

/* Each of the old ways to set a handler, for signals of faults and others; what is returned is what was
 * there. */
static void nothing(int signal) { (void)signal; }

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static int old_ways(void) {
    for (int i = 0; i < 2; i++) {
        int which = i == 0 ? SIGSEGV : SIGUSR1;
        printf("%d ", signal(which, nothing) == SIG_DFL);
        printf("%d ", sysv_signal(which, SIG_IGN) == nothing);
        printf("%d ", sigset(which, SIG_HOLD) == SIG_IGN);
        printf("%d ", sigset(which, SIG_DFL) == SIG_HOLD);
        printf("%d ", sigignore(which));
        struct sigaction action;
        sigaction(which, NULL, &action);
        printf("%d ", action.sa_handler == SIG_IGN);
        printf("%d ", siginterrupt(which, 1));
        printf("%d\n", signal(which, SIG_DFL) == SIG_IGN);
    }
    errno = 0;
    printf("%d ", signal(SIGKILL, nothing) == SIG_ERR && errno == EINVAL);
    printf("%d ", sigaction(65, NULL, NULL) == -1 && errno == EINVAL);
    return printf("%d\n", sigaction(0, NULL, NULL) == -1 && errno == EINVAL);
}

/* A child of vfork sets a disposition back before it execs: its own only. */
static int in_vfork(void) {
    signal(SIGSEGV, SIG_IGN);
    signal(SIGABRT, nothing);
    pid_t child = vfork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    struct sigaction segv_action, abort_action;
    sigaction(SIGSEGV, NULL, &segv_action);
    sigaction(SIGABRT, NULL, &abort_action);
    return printf("%d %d\n", segv_action.sa_handler == SIG_IGN, abort_action.sa_handler == nothing);
}

static volatile int once;
static void count_once(int signal) {
    (void)signal;
    once++;
}

/* SA_RESETHAND, SA_NODEFER, SA_NOCLDWAIT and masks come back as they were set. */
static int flags(void) {
    struct sigaction set = {.sa_handler = count_once, .sa_flags = SA_RESETHAND | SA_NODEFER | SA_ONSTACK}, got;
    sigaddset(&set.sa_mask, SIGUSR2);
    sigaction(SIGFPE, &set, NULL);
    sigaction(SIGFPE, NULL, &got);
    printf("%x %d ", (unsigned)got.sa_flags, sigismember(&got.sa_mask, SIGUSR2));
    raise(SIGFPE);
    sigaction(SIGFPE, NULL, &got);
    return printf("%d %d\n", once, got.sa_handler == SIG_DFL);
}

static int terminated(void) { return raise(SIGTERM); }
static int killed(void) { return kill(getpid(), SIGKILL); }

static const struct choice CHOICES[] = {
    {"chained-segv", chained_segv}, {"chained-abort", chained_abort}, {"chained-fpe", chained_fpe},
    {"chained-one-argument", chained_one_argument}, {"segv", segv}, {"bus", bus}, {"aborted", aborted}, {"ill", ill},
    {"overflow", overflow}, {"overflow-caught", overflow_caught}, {"in-thread", in_thread}, {"ignored", ignored},
    {"blocked", blocked}, {"timers", timers}, {"leaves", leaves}, {"leaves-quick", leaves_quick},
    {"leaves-at-once", leaves_at_once}, {"exit-in-exit", exit_in_exit}, {"thread-exits-process", thread_exits_process},
    {"main-thread-ends", main_thread_ends}, {"old-ways", old_ways}, {"in-vfork", in_vfork}, {"flags", flags}, {"terminated", terminated}, {"killed", killed}, {NULL, NULL},
};

int main(int count, char **words) { return choose(CHOICES, count, words); }
