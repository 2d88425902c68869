// SPDX-License-Identifier: Apache-2.0
/* process WHAT: what programs do with processes, descriptors, limits and the words that the kernel left on
 * their stack. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "choice.h"

extern char **environ;
static char **argument;

static void use(void) {
    for (int i = 1; i < 3000; i++)
        free(memset(malloc((size_t)i * 31 % 9000 + 1), i, 1));
}

static int ended(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

/* The auxiliary vector follows the environment's NULL. Go's runtime and others find it there. */
static int auxiliary(void) {
    char **entry = argument;
    while (*entry != NULL)
        entry++;
    for (entry++; *entry != NULL; entry++) {
    }
    long page = 0, base = 0;
    for (ElfW(auxv_t) *pair = (ElfW(auxv_t) *)(entry + 1); pair->a_type != AT_NULL; pair++) {
        if (pair->a_type == AT_PAGESZ)
            page = (long)pair->a_un.a_val;
        if (pair->a_type == AT_PHDR)
            base = (long)pair->a_un.a_val;
    }
    printf("%ld %d\n", page, base == (long)getauxval(AT_PHDR));
    return 0;
}

/* setproctitle: everything from argv[0] to the end of the last variable is one area, as postgres, nginx and
 * redis take it. */
static int title(void) {
    char *end = argument[0], *start = argument[0];
    for (int i = 0; argument[i] != NULL; i++)
        end = end == argument[i] ? end + strlen(end) + 1 : end;
    char **copy = calloc(200, sizeof *copy);
    for (int i = 0; environ[i] != NULL && i < 199; i++)
        copy[i] = strdup(environ[i]);
    environ = copy;
    memset(start, 0, (size_t)(end - start));
    strcpy(start, "a");
    char shown[4] = "";
    int fd = open("/proc/self/cmdline", O_RDONLY);
    printf("%zd %s %d\n", read(fd, shown, 1), shown, getenv("PATH") != NULL);
    use();
    return 0;
}

static int no_environment(void) {
    clearenv();
    use();
    printf("%d\n", environ == NULL || *environ == NULL);
    fflush(stdout);
    return execl("/bin/sh", "sh", "-c", "echo child; set | grep -c IMAS", (char *)NULL);
}

/* A daemon closes every descriptor it did not open. */
static int close_all(void) {
    use();
    syscall(SYS_close_range, 3, ~0u, 0);
    use();
    int fd = open("/dev/null", O_RDONLY);
    printf("%d\n", fd);
    pid_t child = fork();
    if (child == 0) {
        use();
        exit(5);
    }
    printf("%d\n", ended(child));
    return 0;
}

/* The first descriptor a program opens is 3: shells and servers are started with that in mind. */
static int first_descriptor(void) {
    int fd = open("/dev/null", O_RDONLY);
    printf("%d\n", fd);
    return 0;
}

static int standard_closed(void) {
    close(0), close(1), close(2);
    use();
    int fd = open("out.txt", O_RDWR | O_CREAT, 0600);
    dprintf(fd, "fd %d\n", fd);
    _exit(fd == 0 ? 7 : 8);
}

static int daemonized(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int out = dup(1);
        if (daemon(0, 0) != 0)
            _exit(1);
        use();
        dprintf(out, "daemon\n");
        exit(0);
    }
    ended(child);
    while (lseek(1, 0, SEEK_CUR) < 7)
        usleep(1000);
    return 0;
}

static int vforked(void) {
    for (volatile int i = 0; i < 20; i++) {
        pid_t child = vfork();
        if (child == 0)
            _exit(i);
        printf("%d ", WEXITSTATUS(ended(child)));
    }
    return puts("");
}

static int spawned(void) {
    pid_t child;
    char *words[] = {"sh", "-c", "echo spawned; exit 4", NULL};
    fflush(stdout);
    int error = posix_spawnp(&child, "sh", NULL, NULL, words, environ);
    int status = error == 0 ? ended(child) : -1;
    printf("%d %d\n", error, WEXITSTATUS(status));
    return 0;
}

/* A raw clone3 that acts like fork, behind libc's back. */
static int clone3_raw(void) {
    struct clone_args how = {.exit_signal = SIGCHLD};
    use();
    long child = syscall(SYS_clone3, &how, sizeof how);
    if (child == 0)
        syscall(SYS_exit_group, 6);
    printf("%d\n", WEXITSTATUS(ended((pid_t)child)));
    return 0;
}

static int shared_thread(void *stop) {
    *(volatile int *)stop = 1;
    return 0;
}

/* clone with a stack of its own and shared memory, no thread area of libc's: must not allocate, as here. */
static int clone_shared(void) {
    static char stack[65536];
    volatile int reached = 0;
    pid_t child = clone(shared_thread, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)&reached);
    ended(child);
    use();
    printf("%d\n", reached);
    return 0;
}

static void *forking(void *nothing) {
    (void)nothing;
    long bad = 0;
    for (int i = 0; i < 12; i++) {
        pid_t child = fork();
        if (child == 0) {
            use();
            _exit(0);
        }
        use();
        bad += ended(child) != 0;
    }
    return (void *)bad;
}

static int fork_in_threads(void) {
    pthread_t thread[8];
    long bad = 0;
    for (int i = 0; i < 8; i++)
        pthread_create(&thread[i], NULL, forking, NULL);
    for (int i = 0; i < 8; i++) {
        void *result;
        pthread_join(thread[i], &result);
        bad += (long)result;
    }
    printf("%ld\n", bad);
    return 0;
}

/* Children of children, ten deep, each with memory of its own. */
static int deep(void) {
    int depth = 0;
    while (depth < 10) {
        use();
        pid_t child = fork();
        if (child != 0)
            exit(WEXITSTATUS(ended(child)) + (depth == 0 ? 0 : 1));
        depth++;
    }
    exit(1);
}

static int traced(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        use();
        _exit(9);
    }
    int status = ended(child), stops = 1;
    for (; WIFSTOPPED(status); stops++) {
        ptrace(PTRACE_CONT, child, NULL, NULL);
        status = ended(child);
    }
    printf("%d %d\n", stops, WEXITSTATUS(status));
    return 0;
}

static int undumpable(void) {
    printf("%d ", prctl(PR_GET_DUMPABLE));
    prctl(PR_SET_DUMPABLE, 0);
    use();
    prctl(PR_SET_NAME, "another");
    prctl(PR_SET_NO_NEW_PRIVS, 1);
    use();
    printf("%d\n", prctl(PR_GET_DUMPABLE));
    return 0;
}

/* What the process is to itself at the start: limits, mask, dispositions, session, umask, nice, OOM score,
 * threads. */
static int inherited(void) {
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int i = 1; i < 65; i++) {
        struct sigaction action;
        if (sigaction(i, NULL, &action) == 0)
            printf("%c", sigismember(&mask, i) == 1 ? 'b' : action.sa_handler == SIG_DFL ? '.' : action.sa_handler == SIG_IGN ? 'i' : 'H');
    }
    stack_t stack;
    sigaltstack(NULL, &stack);
    printf(" %d %o %d %d\n", stack.ss_flags == SS_DISABLE, umask(0), getpriority(PRIO_PROCESS, 0), (int)prctl(PR_GET_SECCOMP));
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        getrlimit((__rlimit_resource_t)i, &limit);
        printf("%lx %lx ", (long)limit.rlim_cur, (long)limit.rlim_max);
    }
    puts("");
    return system("ls /proc/$PPID/task | wc -l; ls -l /proc/$PPID/fd | grep -c shm");
}

/* The same as the kernel shows it: signals that are blocked, ignored, caught, and the number of threads. */
static int shown(void) {
    char line[300];
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status) != NULL) {
        if (strncmp(line, "Sig", 3) == 0 || strncmp(line, "Threads", 7) == 0 || strncmp(line, "NoNewPrivs", 10) == 0)
            fputs(strncmp(line, "SigQ", 4) == 0 ? "" : line, stdout);
    }
    return fclose(status);
}

/* Every variable, in its order. */
static int variables(void) {
    for (char **entry = environ; *entry != NULL; entry++)
        puts(*entry);
    return 0;
}

static int cpu_limit(void) {
    setrlimit(RLIMIT_CPU, &(struct rlimit){1, 2});
    for (volatile int on = 1; on;)
        use();
    return 0;
}

static int file_limit(void) {
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, 3});
    use();
    int fd = open("/dev/null", O_RDONLY);
    printf("%d %s\n", fd, strerror(errno));
    FILE *stream = fopen("/dev/null", "r");
    printf("%d\n", stream == NULL);
    return 0;
}

static const struct choice CHOICES[] = {
    {"auxiliary", auxiliary}, {"title", title}, {"no-environment", no_environment}, {"close-all", close_all},
    {"first-descriptor", first_descriptor}, {"standard-closed", standard_closed}, {"daemonized", daemonized},
    {"vforked", vforked}, {"spawned", spawned}, {"clone3", clone3_raw}, {"clone-shared", clone_shared},
    {"fork-in-threads", fork_in_threads}, {"deep", deep}, {"traced", traced}, {"undumpable", undumpable},
    {"inherited", inherited}, {"shown", shown}, {"variables", variables}, {"cpu-limit", cpu_limit}, {"file-limit", file_limit}, {NULL, NULL},
};

int main(int count, char **words) {
    argument = words;
    return choose(CHOICES, count, words);
}
