// SPDX-License-Identifier: Apache-2.0
/* Runs one program on a terminal of its own, preloaded or not, and prints what came of it as CSV.
 *
 *   fit-driver [--preload LIBRARY] PROGRAM [ARGUMENT...]
 *
 * The terminal is the point: the published runs were made in one, and there glibc's stdio takes a
 * buffer of 1,024 bytes (the terminal's st_blksize), where it takes 4,096 for a pipe.
 *
 * Rows `key,value`: exit status, times of wait4, the program's own "key value" lines from the
 * terminal, and the "label: value" lines of the allocator's statistics from stderr.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OUTPUT_MAX = 64 * 1024, KEY_MAX = 63 };

struct output {
    int fd;
    size_t length;
    char text[OUTPUT_MAX + 1];
};

struct terminal {
    int controller;
    char name[64];
};

static void fail(const char *what)
{
    fprintf(stderr, "imas: %s: %s\n", what, strerror(errno));
    exit(2);
}

static struct terminal open_terminal(void)
{
    struct terminal terminal;
    terminal.controller = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal.controller < 0 || grantpt(terminal.controller) || unlockpt(terminal.controller) ||
        ptsname_r(terminal.controller, terminal.name, sizeof terminal.name))
        fail("cannot open a pseudo-terminal");
    return terminal;
}

/* In the child: never returns. */
static void become(const struct terminal *terminal, int errors, const char *library, char **argv)
{
    setsid();
    int screen = open(terminal->name, O_RDWR);
    if (screen < 0 || dup2(screen, STDOUT_FILENO) < 0 || dup2(errors, STDERR_FILENO) < 0)
        _exit(126);
    if (library && (setenv("LD_PRELOAD", library, 1) || setenv("IMAS_FIT_STATS", "1", 1)))
        _exit(126);
    execv(argv[0], argv);
    _exit(127);
}

/* Returns false at the end: for a terminal that is EIO, once the last writer is gone. */
static bool read_some(struct output *output)
{
    char discarded[4096];
    size_t room = OUTPUT_MAX - output->length;
    ssize_t got = room ? read(output->fd, output->text + output->length, room)
                       : read(output->fd, discarded, sizeof discarded);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    if (room)
        output->length += (size_t)got;
    return true;
}

static void read_both(struct output *screen, struct output *errors)
{
    struct pollfd wait[2] = {{.fd = screen->fd, .events = POLLIN},
                             {.fd = errors->fd, .events = POLLIN}};
    while (wait[0].fd >= 0 || wait[1].fd >= 0) {
        if (poll(wait, 2, -1) < 0 && errno != EINTR)
            fail("cannot wait for the program");
        if (wait[0].revents && !read_some(screen))
            wait[0].fd = -1;
        if (wait[1].revents && !read_some(errors))
            wait[1].fd = -1;
    }
}

/* "max heap" as a column's name: max_heap. */
static void print_row(const char *key, size_t length, unsigned long long value)
{
    char name[KEY_MAX + 1] = "";
    for (size_t i = 0; i < length && i < KEY_MAX; i++)
        name[i] = key[i] == ' ' ? '_' : key[i];
    printf("%s,%llu\n", name, value);
}

/* One line "WORDS<separator>NUMBER"; anything else is not ours to report. */
static void print_line(const char *line, char separator)
{
    const char *at = strchr(line, separator);
    if (!at || at == line)
        return;
    const char *digits = at + 1 + strspn(at + 1, " ");
    char *end;
    unsigned long long value = strtoull(digits, &end, 10);
    if (isdigit((unsigned char)*digits) && *end == '\0')
        print_row(line, (size_t)(at - line), value);
}

static void print_lines(struct output *output, char separator)
{
    char *rest = NULL;
    output->text[output->length] = '\0';
    for (char *line = strtok_r(output->text, "\r\n", &rest); line;
         line = strtok_r(NULL, "\r\n", &rest))
        print_line(line, separator);
}

static unsigned long long micros(struct timeval time)
{
    return (unsigned long long)time.tv_sec * 1000000u + (unsigned long long)time.tv_usec;
}

static void print_process(int status, const struct rusage *usage, unsigned long long wall_ns)
{
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    printf("key,value\nexit,%d\nwall_ns,%llu\ncpu_us,%llu\nmax_resident_kib,%ld\n", code, wall_ns,
           micros(usage->ru_utime) + micros(usage->ru_stime), usage->ru_maxrss);
}

static unsigned long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
}

static void run(const char *library, char **argv)
{
    static struct output screen, errors;
    struct terminal terminal = open_terminal();
    int pipe_ends[2];
    if (pipe2(pipe_ends, O_CLOEXEC))
        fail("cannot open a pipe");
    unsigned long long start_ns = now_ns();
    pid_t child = fork();
    if (child < 0)
        fail("cannot start the program");
    if (child == 0)
        become(&terminal, pipe_ends[1], library, argv);
    close(pipe_ends[1]);
    screen.fd = terminal.controller;
    errors.fd = pipe_ends[0];
    read_both(&screen, &errors);
    int status;
    struct rusage usage;
    while (wait4(child, &status, 0, &usage) < 0)
        if (errno != EINTR)
            fail("cannot wait for the program");
    print_process(status, &usage, now_ns() - start_ns);
    print_lines(&screen, ' ');
    print_lines(&errors, ':');
}

int main(int argc, char **argv)
{
    const char *library = NULL;
    char **program = argv + 1;
    if (argc > 2 && strcmp(program[0], "--preload") == 0) {
        library = program[1];
        program += 2;
    }
    if (!program[0]) {
        fputs("imas: fit-driver: usage: [--preload LIBRARY] PROGRAM [ARGUMENT...]\n", stderr);
        return 2;
    }
    run(library, program);
    return fflush(stdout) == 0 ? 0 : 2;
}
