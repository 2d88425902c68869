// SPDX-License-Identifier: Apache-2.0
/*
 * hazards NAME - does one thing that a thread or a system call which the program did not ask for would change, and
 * prints what came of it. The output is the same untouched and where pages are given back (tests/hook/give_back.py).
 * EXPECT_PACER=1 in the environment says that the thread is to be there where the program has threads; 0, that it may
 * not come.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS 3 /* the pacer looks about once a second */

static double clock_s(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- threads ------------------------------------------------------------------------------------------- */

static bool is_pacer(const char *id) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", id);
    int file = open(path, O_RDONLY);
    if (file < 0 || read(file, name, sizeof name - 1) < 0)
        name[0] = '\0';
    close(file);
    return strcmp(name, "imas-give-back\n") == 0;
}

static int count_tasks(bool *has_pacer) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    *has_pacer = false;
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] == '.')
            continue;
        count++;
        *has_pacer = *has_pacer || is_pacer(task->d_name);
    }
    closedir(tasks);
    return count;
}

/* It gets its name soon after it was started. */
static void tell_pacer(const char *where) {
    const char *expects = getenv("EXPECT_PACER");
    bool expected = expects != NULL && strcmp(expects, "1") == 0, has_pacer = false;
    int looks = expected ? 1000 : expects != NULL ? 200 : 1;
    while (looks-- > 0 && (count_tasks(&has_pacer), !has_pacer))
        usleep(10000);
    printf("pacer %s: %s\n", where, has_pacer == expected ? "as expected" : "not as expected");
}

static volatile int released;

static void *rest(void *unused) {
    while (!released)
        usleep(1000);
    return unused;
}

static pthread_t start(void *(*run)(void *)) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, run, NULL);
    if (error != 0)
        printf("pthread_create: %s\n", strerror(error));
    return thread;
}

static void join(pthread_t thread) {
    released = 1;
    pthread_join(thread, NULL);
    released = 0;
}

/* Works, and frees small blocks between others, so that there is something to give back. */
static void churn(double seconds) {
    enum { BLOCKS = 20000 };
    static void *blocks[BLOCKS];
    for (double until = clock_s(CLOCK_MONOTONIC) + seconds; clock_s(CLOCK_MONOTONIC) < until;) {
        for (int i = 0; i < BLOCKS; i++)
            blocks[i] = malloc(300);
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
        poll(NULL, 0, 20);
    }
}

/* ---- what a process of several threads may not do ------------------------------------------------------ */

static void say(const char *what, long answer) {
    printf("%s: %s\n", what, answer == 0 ? "done" : strerror(errno));
}

/* Waits until the kernel counts no thread but the main one and the pacer: one that has ended, and was joined, is counted for
 * a while yet. */
static void await_the_last(void) {
    bool has_pacer;
    for (int tasks = count_tasks(&has_pacer); tasks > 1 + has_pacer; tasks = count_tasks(&has_pacer))
        usleep(1000);
}

/* Detached, and ended before this returns: nobody joins it. */
static void start_and_forget(void) {
    pthread_t thread = start(rest);
    pthread_detach(thread);
    tell_pacer("with a thread");
    released = 1;
    await_the_last();
    released = 0;
}

static void unshares_joined(void) {
    pthread_t thread = start(rest);
    tell_pacer("with a thread");
    join(thread);
    await_the_last();
    say("unshare", unshare(CLONE_NEWUSER));
}

static void unshares_detached(void) {
    start_and_forget();
    say("unshare", unshare(CLONE_NEWUSER));
}

static void unshares_by_syscall(void) {
    start_and_forget();
    say("unshare", syscall(SYS_unshare, CLONE_NEWUSER));
}

static void enters(void) {
    int ready[2], over[2];
    char byte;
    if (pipe(ready) != 0 || pipe(over) != 0)
        exit(2);
    pid_t child = fork();
    if (child == 0) {
        close(over[1]);
        unshare(CLONE_NEWUSER);
        close(ready[1]);
        _exit(read(over[0], &byte, 1) != 0);
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 0)
        exit(2);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/user", child);
    int space = open(path, O_RDONLY);
    start_and_forget();
    say("setns", setns(space, CLONE_NEWUSER));
    close(over[1]);
    waitpid(child, NULL, 0);
}

static void *unshares(void *unused) {
    for (int i = 0; i < 2000; i++) {
        if (unshare(CLONE_FS) != 0)
            say("unshare", -1);
    }
    return unused;
}

/* Each thread gets a folder of its own, as servers of files do for each of their users. */
static void unshares_at_once(void) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(unshares);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_t thread = start(rest);
    tell_pacer("afterwards");
    join(thread);
    say("unshare", unshare(CLONE_FS));
}

static void tasks(void) {
    bool has_pacer;
    for (int i = 0; i < 50; i++) {
        pthread_t one = start(rest), other = start(rest);
        released = 1;
        pthread_join(one, NULL);
        pthread_join(other, NULL);
        released = 0;
        /* The kernel counts a thread for a moment after it was joined. */
        int count = count_tasks(&has_pacer);
        for (int steps = 0; count != 1 && steps < 10000; steps++) {
            usleep(1000);
            count = count_tasks(&has_pacer);
        }
        if (count != 1 || has_pacer)
            printf("%d tasks\n", count);
    }
    puts("counted");
}

/* ---- sandboxes ----------------------------------------------------------------------------------------- */

/* Ends the process at a system call that neither libc nor the program makes below. */
static struct sock_filter deadly[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 5, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 4, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 3, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigpending, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};
static struct sock_filter no_threads[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

/* What hardly any program asks for. */
static struct sock_filter narrow[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigpending, 3, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};

#define PROGRAM(filter) &(struct sock_fprog){sizeof filter / sizeof *filter, filter}

static void *leaves(void *unused) {
    pthread_exit(unused);
}

static void allow_filters(void) {
    pthread_join(start(leaves), NULL); /* libc opens a library at the first pthread_exit */
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/* What a program may go on to do in its sandbox. The clock is that of the vDSO: no system call. */
static void live_in_sandbox(void) {
    churn(SECONDS);
    pthread_join(start(leaves), NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    int status;
    waitpid(child, &status, 0);
    printf("child %x\n", status);
    say("unshare", unshare(0));
}

static void sandboxed_thread(void) {
    pthread_t thread = start(rest);
    tell_pacer("with a thread");
    allow_filters();
    say("filter for all threads", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, PROGRAM(deadly)));
    live_in_sandbox();
    join(thread);
    puts("alive");
}

static void sandboxed_alone(void) {
    puts("begin"); /* libc asks once about the file */
    churn(1);
    allow_filters();
    say("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PROGRAM(deadly), 0, 0));
    live_in_sandbox();
    puts("alive");
}

/* A program that starts so dies in ld.so. The clock reads the counter too, so none is read. */
static void counter_forbidden(void) {
    churn(1);
#ifdef __x86_64__
    say("no counter", prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0));
#endif
    for (int i = 0; i < SECONDS; i++)
        poll(NULL, 0, 1000);
    puts("alive");
}

static void threads_forbidden(void) {
    puts("begin");
    allow_filters();
    say("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PROGRAM(no_threads), 0, 0));
    start(rest);
    churn(SECONDS);
    puts("alive");
}

/* `hazards under-filter COMMAND...`: what it starts was never asked. */
static int start_under_filter(char **command) {
    allow_filters();
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PROGRAM(narrow), 0, 0) == 0)
        execv(command[0], command);
    return 2;
}

static void filtered(void) {
    churn(SECONDS);
    pthread_t thread = start(rest);
    churn(SECONDS);
    join(thread);
    puts("alive");
}

/* ---- other processes ----------------------------------------------------------------------------------- */

static void wait_for(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    printf("child %s %d\n", WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    fflush(stdout);
}

static void child_works(void) {
    bool has_pacer;
    printf("tasks in the child: %d\n", count_tasks(&has_pacer));
    pthread_t thread = start(rest);
    tell_pacer("in the child");
    churn(1);
    join(thread);
    /* The kernel may count it for a while yet; the pacer then ends only when it looks again. */
    for (int left = 1000; count_tasks(&has_pacer) > 1 && left > 0; left--)
        usleep(10000);
    printf("tasks in the child: %d\n", count_tasks(&has_pacer));
    fflush(stdout);
}

static void forks_alone(void) {
    bool has_pacer;
    start_and_forget();
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    printf("tasks after fork: %d\n", count_tasks(&has_pacer));
    wait_for(child);
}

static void forks(void) {
    pthread_t thread = start(rest);
    tell_pacer("in the parent");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        child_works();
        _exit(7);
    }
    wait_for(child);
    for (int i = 0; i < 200; i++) { /* a trim may be under way */
        child = fork();
        if (child == 0) {
            free(malloc(100000));
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status != 0)
            printf("child %x\n", status);
    }
    child = vfork();
    if (child == 0) {
        execl("/bin/echo", "echo", "by vfork", NULL);
        _exit(9);
    }
    wait_for(child);
    char *const echo[] = {"echo", "by posix_spawn", NULL};
    extern char **environ;
    posix_spawn(&child, "/bin/echo", NULL, NULL, echo, environ);
    wait_for(child);
    /* As clone does it: no fork handler runs. */
    fflush(stdout);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        poll(NULL, 0, 1200);
        unshare(0);
        _exit(5);
    }
    wait_for(child);
    join(thread);
    fflush(stdout);
    execl("/bin/echo", "echo", "by exec", NULL);
}

static void daemons(void) {
    pthread_t thread = start(rest);
    tell_pacer("in the parent");
    (void)thread;
    fflush(stdout);
    if (daemon(1, 1) != 0)
        exit(2);
    child_works();
    puts("daemon done");
}

static char notes[200];

static void note(const char *what) {
    free(malloc(10)); /* the allocator's locks are free */
    strcat(strcat(notes, " "), what);
}

static void first_before(void) { note("before-1"); }
static void first_in_parent(void) { note("parent-1"); }
static void first_in_child(void) { note("child-1"); }
static void second_before(void) { note("before-2"); }
static void second_in_parent(void) { note("parent-2"); }
static void second_in_child(void) {
    note("child-2");
    join(start(rest)); /* a library that brings its threads back */
}

static void atfork(void) {
    pthread_atfork(first_before, first_in_parent, first_in_child);
    pthread_t thread = start(rest);
    tell_pacer("with a thread");
    pthread_atfork(second_before, second_in_parent, second_in_child);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        puts(notes);
        fflush(stdout);
        _exit(3);
    }
    wait_for(child);
    puts(notes);
    join(thread);
}

/* ---- descriptors --------------------------------------------------------------------------------------- */

static int count_files(const char *task) {
    char path[300];
    snprintf(path, sizeof path, "/proc/self/task/%s/fd", task);
    DIR *files = opendir(path);
    int count = 0;
    for (struct dirent *file; (file = readdir(files)) != NULL;)
        count += file->d_name[0] != '.';
    closedir(files);
    return count;
}

/* It has none: what it opened would take a number of the program's, what it inherited would stay open. */
static void tell_files_of_pacer(void) {
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] != '.' && is_pacer(task->d_name) && count_files(task->d_name) != 0)
            printf("the pacer has files: %d\n", count_files(task->d_name));
    }
    closedir(tasks);
}

static void descriptors(void) {
    close_range(3, ~0U, 0);
    pthread_t thread = start(rest);
    tell_pacer("with a thread");
    long wrong = 0, churned = 0;
    for (double until = clock_s(CLOCK_MONOTONIC) + SECONDS + 1; clock_s(CLOCK_MONOTONIC) < until; churned++) {
        int file = open("/dev/null", O_RDONLY);
        wrong += file != 3;
        close(file);
        if (churned % 1000 == 0)
            close_range(3, ~0U, 0);
    }
    int ends[2];
    if (pipe(ends) != 0)
        exit(2);
    close(ends[1]);
    char byte;
    long got = read(ends[0], &byte, 1); /* nobody else holds the other end */
    tell_files_of_pacer();
    printf("%s number, end of pipe %ld\n", wrong == 0 ? "always the lowest" : "not always the lowest", got);
    join(thread);
}

/* ---- threads that end ---------------------------------------------------------------------------------- */

static void cleaned(void *name) {
    printf("cleaned up %s\n", (const char *)name);
}

static void *waits_in(void *way) {
    pthread_cleanup_push(cleaned, way);
    if (strcmp(way, "poll") == 0)
        poll(NULL, 0, -1);
    else if (strcmp(way, "sleep") == 0)
        sleep(1000);
    else
        select(0, NULL, NULL, NULL, NULL);
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancelled(void) {
    static const char *const ways[] = {"poll", "sleep", "select"};
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, waits_in, (void *)ways[i]);
        usleep(20000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        printf("%s %s\n", ways[i], result == PTHREAD_CANCELED ? "cancelled" : "returned");
    }
}

static void *speaks_late(void *unused) {
    usleep(300000);
    puts("last words");
    fflush(stdout);
    return unused;
}

static void main_ends(void) {
    start(speaks_late);
    tell_pacer("with a thread");
    pthread_exit(NULL);
}

/* Unseen by any function that could be wrapped. */
static void main_vanishes(void) {
    start(speaks_late);
    fflush(stdout);
    syscall(SYS_exit, 0);
}

/* ---- signals ------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t handled, handled_elsewhere;
static pid_t main_thread;

static void handle(int signal) {
    (void)signal;
    handled++;
    handled_elsewhere += gettid() != main_thread;
    for (int i = 0; i < 100; i++)
        free(malloc(1000));
}

/* poll ends by each signal, also by one that comes while pages are given back. */
static void interrupted(void) {
    main_thread = gettid();
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    int missed = 0;
    for (double until = clock_s(CLOCK_MONOTONIC) + SECONDS + 1; clock_s(CLOCK_MONOTONIC) < until;) {
        sigset_t alarm_only, before;
        sigemptyset(&alarm_only);
        sigaddset(&alarm_only, SIGALRM);
        for (double busy = clock_s(CLOCK_PROCESS_CPUTIME_ID) + 0.005; clock_s(CLOCK_PROCESS_CPUTIME_ID) < busy;) {
        }
        sigprocmask(SIG_BLOCK, &alarm_only, &before);
        kill(getpid(), SIGALRM);
        struct timespec most = {30, 0};
        missed += !(ppoll(NULL, 0, &most, &before) == -1 && errno == EINTR);
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
    printf("missed %d, elsewhere %d, handled %s\n", missed, (int)handled_elsewhere, handled > 0 ? "yes" : "no");
}

/* Sent to the process: a thread of the program's handles it. */
static void to_the_process(void) {
    pthread_t thread = start(rest);
    tell_pacer("with a thread");
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGTERM, &action, NULL);
    main_thread = gettid();
    pid_t own = getpid();
    released = 1;
    pthread_join(thread, NULL);
    released = 0;
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    thread = start(rest); /* inherits the mask: nobody takes the signal but sigwait */
    tell_pacer("with a thread");
    kill(own, SIGTERM);
    int signal = 0;
    sigwait(&term, &signal);
    printf("sigwait %d, handled %d\n", signal, (int)handled);
    join(thread);
}

/* A thread that others made need not be real-time, nor bound to their processor. */
static void real_time(void) {
    cpu_set_t at_start, one, found;
    sched_getaffinity(0, sizeof at_start, &at_start);
    int first = 0;
    while (!CPU_ISSET(first, &at_start))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    say("real-time", sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 5}));
    say("bound", sched_setaffinity(0, sizeof one, &one));
    pthread_t thread = start(rest);
    tell_pacer("with a thread");
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(folder)) != NULL;) {
        if (task->d_name[0] == '.' || !is_pacer(task->d_name))
            continue;
        pid_t id = atoi(task->d_name);
        sched_getaffinity(id, sizeof found, &found);
        if (sched_getscheduler(id) != SCHED_OTHER || !CPU_EQUAL(&found, &at_start))
            printf("the pacer has policy %d and %d processors\n", sched_getscheduler(id), CPU_COUNT(&found));
    }
    closedir(folder);
    join(thread);
}

static void identities(void) {
    pthread_t thread = start(rest);
    tell_pacer("with a thread");
    say("setresuid", setresuid(65534, 65534, 65534));
    DIR *folder = opendir("/proc/self/task");
    int others = 0;
    for (struct dirent *task; (task = readdir(folder)) != NULL;) {
        char path[300], text[4096] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        int file = open(path, O_RDONLY);
        if (task->d_name[0] == '.' || file < 0 || read(file, text, sizeof text - 1) <= 0)
            continue;
        others += strstr(text, "Uid:\t65534\t65534\t65534\t65534") == NULL;
        close(file);
    }
    printf("threads of another user: %d\n", others);
    join(thread);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"unshares-joined", unshares_joined}, {"unshares-detached", unshares_detached},
               {"unshares-by-syscall", unshares_by_syscall}, {"unshares-at-once", unshares_at_once}, {"enters", enters}, {"tasks", tasks}, {"sandboxed-thread", sandboxed_thread},
               {"sandboxed-alone", sandboxed_alone}, {"counter-forbidden", counter_forbidden}, {"threads-forbidden", threads_forbidden}, {"forks", forks}, {"forks-alone", forks_alone},
               {"daemons", daemons}, {"atfork", atfork}, {"descriptors", descriptors}, {"cancelled", cancelled},
               {"main-ends", main_ends}, {"main-vanishes", main_vanishes}, {"interrupted", interrupted},
               {"filtered", filtered}, {"to-the-process", to_the_process}, {"real-time", real_time}, {"identities", identities}};
    if (argc > 2 && strcmp(argv[1], "under-filter") == 0)
        return start_under_filter(argv + 2);
    if (argc != 2)
        return 2;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, argv[1]) == 0)
            all[i].run();
    }
    return 0;
}
