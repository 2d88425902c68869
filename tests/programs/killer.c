// SPDX-License-Identifier: Apache-2.0
// killer NUMBER COMMAND...: runs the command and kills it, with all that it has started, where the thread that traces a process
// enters or leaves a system call for the NUMBER-th time from its first request of ptrace to the one that lets the process go.
// Prints "killed", or "ended" where it let go before. Between two system calls a thread does nothing that another process could
// see, so all moments are covered. Looks whether the traced thread stands, and the pauses between them, come by the thousand
// and are not counted.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BEFORE, DURING, AFTER };

static int now = BEFORE, tracer;

// Whether this stop is one that is counted.
static int counts(int thread)
{
    struct user_regs_struct registers;
    int then = now;
    if ((tracer && thread != tracer) || ptrace(PTRACE_GETREGS, thread, 0, &registers))
        return 0;
    if (registers.orig_rax == SYS_ptrace) {
        tracer = thread;
        now = registers.rdi == PTRACE_DETACH ? AFTER : DURING;
    }
    int is_look = registers.orig_rax == SYS_wait4 || registers.orig_rax == SYS_clock_nanosleep;
    return !is_look && (then == DURING || now == DURING);
}

int main(int count, char **words)
{
    long left = count > 2 ? strtol(words[1], NULL, 10) : 0;
    int child = fork(), status;
    if (!child) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0))
            _exit(127);
        raise(SIGSTOP);
        execvp(words[2], words + 2);
        _exit(127);
    }
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) {
        puts("it may not be traced");
        return 0;
    }
    // What is traced ends with this program.
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                   PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    ptrace(PTRACE_SETOPTIONS, child, 0, options);
    ptrace(PTRACE_SYSCALL, child, 0, 0);
    for (int thread; (thread = waitpid(-1, &status, __WALL)) > 0;) {
        if (!WIFSTOPPED(status)) {
            if (thread == child)
                break;
            continue;
        }
        int signal = WSTOPSIG(status);
        if (signal == (SIGTRAP | 0x80)) {
            if (counts(thread) && left-- == 0) {
                puts("killed");
                return 0;
            }
            signal = 0;
        } else if (signal == SIGTRAP || signal == SIGSTOP) {
            signal = 0;
        }
        ptrace(PTRACE_SYSCALL, thread, 0, signal);
    }
    puts("ended");
    return 0;
}
