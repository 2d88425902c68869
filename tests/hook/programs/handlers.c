// SPDX-License-Identifier: Apache-2.0
/* handlers WHAT: sets and reads what signals do, as programs do it. Prints what it reads; some ways end by a
 * signal. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void call(int signal);
typedef void call3(int signal, siginfo_t *info, void *context);

extern call *__sysv_signal(int signal, call *handler);
extern call *sysv_signal(int signal, call *handler);
extern call *bsd_signal(int signal, call *handler);

static const int fatal[] = {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGSYS, SIGFPE};
#define LOOPED 99

static void fault(void) { *(volatile int *)8 = 1; }

/* ---- before the constructors of any library ------------------------------------------------------------ */

static struct sigaction first_read;
static call *first_answer;

static void before_constructors(void) {
    sigaction(SIGSEGV, NULL, &first_read);
    first_answer = signal(SIGFPE, SIG_DFL);
}
__attribute__((used, section(".preinit_array"))) static void (*const early)(void) = before_constructors;

/* ---- handlers that call what they displaced ------------------------------------------------------------ */

/* The kernel's own layout, for programs that do not ask libc. */
struct raw {
    void *handler;
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};
static struct raw raw_before;
static struct sigaction before;
static volatile int entered;

static void count_entries(void) {
    if (++entered > 3)
        _exit(LOOPED);
}

static void through_libc(int signal, siginfo_t *info, void *context) {
    count_entries();
    if ((before.sa_flags & SA_SIGINFO) != 0)
        before.sa_sigaction(signal, info, context);
    else if (before.sa_handler == SIG_DFL)
        sigaction(signal, &before, NULL);
}

static void end_raw(int signal) {
    const struct raw by_default = {0};
    syscall(SYS_rt_sigaction, signal, &by_default, NULL, 8);
}

static bool nobody_before(void) {
    return raw_before.handler == (void *)SIG_DFL;
}

static void raw_three(int signal, siginfo_t *info, void *context) {
    count_entries();
    if (nobody_before())
        end_raw(signal);
    else
        ((call3 *)raw_before.handler)(signal, info, context);
    __asm__ volatile("" ::: "memory"); /* a call, not a jump */
}

__attribute__((optimize("O2"))) static void raw_jump(int signal, siginfo_t *info, void *context) {
    count_entries();
    if (nobody_before()) {
        end_raw(signal);
        return;
    }
    ((call3 *)raw_before.handler)(signal, info, context);
}

static void raw_one(int signal) {
    count_entries();
    if (nobody_before())
        end_raw(signal);
    else
        ((void (*)(int, long, long))raw_before.handler)(signal, 8, 8); /* what an undefined register may hold */
}

/* Takes libc's function to return by from an action that libc has set. */
static void set_raw(int signal, void *handler, unsigned long flags) {
    struct raw of_libc;
    struct sigaction any = {.sa_handler = SIG_IGN};
    sigaction(SIGUSR1, &any, NULL);
    syscall(SYS_rt_sigaction, SIGUSR1, NULL, &of_libc, 8);
    struct raw ours = {handler, flags | (of_libc.flags & 0x04000000), of_libc.restorer, 0};
    syscall(SYS_rt_sigaction, signal, &ours, &raw_before, 8);
}

static void chained(void) {
    struct sigaction action = {.sa_sigaction = through_libc, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &action, &before);
    fault();
}
static void chained_raw(void) { set_raw(SIGSEGV, (void *)raw_three, SA_SIGINFO); fault(); }
static void chained_jump(void) { set_raw(SIGSEGV, (void *)raw_jump, SA_SIGINFO); fault(); }
static void chained_raw_one(void) { set_raw(SIGSEGV, (void *)raw_one, 0); fault(); }
static void chained_abort(void) { set_raw(SIGABRT, (void *)raw_one, 0); abort(); }

static call *displaced;
static void with_one(int signal_number) {
    count_entries();
    if (displaced != SIG_DFL && displaced != SIG_IGN)
        displaced(signal_number);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}
static void one_argument(void) {
    displaced = signal(SIGABRT, with_one);
    signal(SIGABRT, displaced);
    puts(displaced == SIG_DFL ? "default" : "somebody's");
    fflush(stdout);
    displaced = signal(SIGFPE, with_one);
    raise(SIGFPE);
}

/* ---- back to the default ------------------------------------------------------------------------------- */

static void sets_default(int signal_number) {
    count_entries();
    signal(signal_number, SIG_DFL);
}
static void sets_default_sysv(int signal_number) {
    count_entries();
    __sysv_signal(signal_number, SIG_DFL);
}
static void default_again(void) { signal(SIGSEGV, sets_default); fault(); }
static void default_sysv(void) { __sysv_signal(SIGSEGV, sets_default_sysv); fault(); }
static void raised_again(void) { signal(SIGABRT, with_one); abort(); }
static void reset_hand(void) {
    struct sigaction action = {.sa_handler = with_one, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGBUS, &action, NULL);
    raise(SIGBUS);
}
static void ignored_sent(void) {
    signal(SIGSEGV, SIG_IGN);
    raise(SIGSEGV);
    printf("alive %d\n", signal(SIGSEGV, SIG_DFL) == SIG_IGN);
}
static void ignored_fault(void) { signal(SIGSEGV, SIG_IGN); fault(); }

static int overflow(int depth) {
    volatile char frame[4096];
    frame[0] = (char)depth;
    return overflow(depth + 1) + frame[0];
}
static void on_other_stack(int signal_number) {
    (void)signal_number;
    static const char text[] = "overflow seen\n";
    _exit(write(1, text, sizeof text - 1) > 0 ? 44 : 45);
}
static void give_other_stack(void) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, NULL);
}
static void overflow_handled(void) {
    struct sigaction action = {.sa_handler = on_other_stack, .sa_flags = SA_ONSTACK};
    give_other_stack();
    sigaction(SIGSEGV, &action, NULL);
    overflow(0);
}
static void overflow_default(void) { give_other_stack(); overflow(0); }

static void blocked(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fault();
}

/* ---- what a program reads ------------------------------------------------------------------------------ */

static const char *named(call *handler) {
    if (handler == SIG_DFL)
        return "default";
    if (handler == SIG_IGN)
        return "ignored";
    if (handler == SIG_ERR)
        return "error";
    if (handler == (call *)2)
        return "held";
    return handler == sets_default ? "mine" : "somebody's";
}

static void print_read(const char *when, int signal_number) {
    struct sigaction now;
    memset(&now, 0x55, sizeof now);
    errno = 4711;
    int answer = sigaction(signal_number, NULL, &now);
    unsigned long mask = 0; /* the rest of libc's mask is whatever was on its stack */
    memcpy(&mask, &now.sa_mask, sizeof mask);
    printf("%s %d: %d %d %s flags %x mask %lx\n", when, signal_number, answer, errno, named(now.sa_handler),
           now.sa_flags & ~0x04000000, mask);
}

static void print_answer(const char *what, call *answer) {
    printf("%s: %s errno %d\n", what, named(answer), errno);
    errno = 0;
}

static void set_with_flags(int signal_number, call *handler) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_NODEFER}, last;
    sigaddset(&action.sa_mask, SIGUSR1);
    int answer = sigaction(signal_number, &action, &last);
    printf("set %d: %d, was %s\n", signal_number, answer, answer == 0 ? named(last.sa_handler) : "nothing");
}

static void read_each(int signal_number) {
    print_read("at first", signal_number);
    set_with_flags(signal_number, sets_default);
    print_read("mine", signal_number);
    set_with_flags(signal_number, SIG_DFL);
    print_read("default", signal_number);
    set_with_flags(signal_number, SIG_DFL);
    print_answer("signal", signal(signal_number, sets_default));
    print_answer("signal", signal(signal_number, SIG_DFL));
    print_read("after signal", signal_number);
    print_answer("bsd_signal", bsd_signal(signal_number, sets_default));
    print_answer("bsd_signal", bsd_signal(signal_number, SIG_DFL));
    print_answer("__sysv_signal", __sysv_signal(signal_number, sets_default));
    print_read("after __sysv_signal", signal_number);
    print_answer("sysv_signal", sysv_signal(signal_number, SIG_DFL));
    print_read("after sysv_signal", signal_number);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void read_system_v(int signal_number) {
    print_answer("sigset", sigset(signal_number, sets_default));
    print_answer("sigset hold", sigset(signal_number, SIG_HOLD));
    print_answer("sigset hold", sigset(signal_number, SIG_HOLD));
    print_answer("sigset", sigset(signal_number, SIG_DFL));
    print_answer("sigset", sigset(signal_number, SIG_DFL));
    printf("sigignore %d\n", sigignore(signal_number));
    print_read("after sigignore", signal_number);
    print_answer("sigset", sigset(signal_number, SIG_DFL));
    print_read("after sigset", signal_number);
}

static void read_errors(void) {
    static const int numbers[] = {-1, 0, SIGKILL, SIGSTOP, 32, 33, 64, 65, 1000};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int number = numbers[i];
        struct sigaction action = {.sa_handler = SIG_DFL};
        errno = 0;
        printf("%d: %d", number, sigaction(number, &action, NULL));
        printf(" %d\n", errno);
        print_read("wrong", number);
        print_answer("signal", signal(number, SIG_DFL));
        print_answer("__sysv_signal", __sysv_signal(number, SIG_DFL));
        print_answer("sigset", sigset(number, SIG_DFL));
        print_answer("sigset hold", sigset(number, SIG_HOLD));
        printf("sigignore %d errno %d\n", sigignore(number), errno);
    }
    print_answer("signal", signal(SIGSEGV, SIG_ERR));
    print_answer("__sysv_signal", __sysv_signal(SIGSEGV, SIG_ERR));
    print_answer("sigset", sigset(SIGSEGV, SIG_ERR));
}

static void reads(void) {
    printf("first %s %s %d\n", named(first_read.sa_handler), named(first_answer), first_read.sa_flags);
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) {
        read_each(fatal[i]);
        read_system_v(fatal[i]);
    }
    read_each(SIGTERM);
    read_system_v(SIGTERM);
    read_errors();
}

/* ---- children and threads ------------------------------------------------------------------------------ */

static int status_of(pid_t pid) {
    int status;
    waitpid(pid, &status, 0);
    return status & 0x7f;
}
static void forked(void) {
    pid_t pid = fork();
    if (pid == 0) {
        default_again();
        _exit(1);
    }
    printf("child ended by %d\n", status_of(pid));
    print_read("parent", SIGSEGV);
}
static void vforked(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        struct sigaction action = {.sa_handler = SIG_DFL}, last;
        sigaction(SIGABRT, &action, &last);
        if (last.sa_handler == SIG_DFL)
            execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    printf("child ended by %d\n", status_of(pid));
    print_read("parent", SIGABRT);
    abort();
}

static volatile int strangers;
static void *set_often(void *argument) {
    for (int i = 0; i < 20000; i++) {
        call *last = signal(SIGFPE, i % 2 == 0 ? sets_default : SIG_DFL);
        if (last != SIG_DFL && last != sets_default)
            strangers = 1;
    }
    return argument;
}
static void in_threads(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, set_often, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("strangers %d\n", strangers);
    fflush(stdout);
    signal(SIGFPE, SIG_DFL);
    raise(SIGFPE);
}

/* ---- under a filter that allows what abort and kill need, and nothing else ------------------------------- */

#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void filter_calls(void) {
    static struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), ALLOW(getpid), ALLOW(gettid), ALLOW(kill), ALLOW(tgkill),
        ALLOW(rt_sigprocmask), ALLOW(rt_sigreturn), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    static struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0)
        exit(3);
}
static void filtered_abort(void) {
    filter_calls();
    abort();
}
static void filtered_kill(void) {
    filter_calls();
    kill(getpid(), SIGFPE);
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*run)(void); } ways[] = {
        {"chained", chained}, {"chained-raw", chained_raw}, {"chained-jump", chained_jump},
        {"chained-raw-one", chained_raw_one}, {"chained-abort", chained_abort}, {"one-argument", one_argument},
        {"default-again", default_again}, {"default-sysv", default_sysv}, {"raised-again", raised_again},
        {"reset-hand", reset_hand}, {"ignored-sent", ignored_sent}, {"ignored-fault", ignored_fault},
        {"overflow-handled", overflow_handled}, {"overflow-default", overflow_default}, {"blocked", blocked},
        {"reads", reads}, {"forked", forked}, {"vforked", vforked}, {"threads", in_threads},
        {"filtered-abort", filtered_abort}, {"filtered-kill", filtered_kill},
    };
    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].name, argv[1]) == 0) {
            ways[i].run();
            return 0;
        }
    return 2;
}
