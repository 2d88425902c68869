// SPDX-License-Identifier: Apache-2.0
#include "fatal.h"

#include <signal.h>

#include "page.h"
#include "sys.h"

/* Ends the process by the signal once more, now with its default action, keeping sender and code. */
static void send_again(int signal, siginfo_t *info) {
    sys4(SYS_rt_tgsigqueueinfo, sys0(SYS_getpid), sys0(SYS_gettid), signal, info);
}

/* Returning from the handler runs the faulting instruction again. That is so for faults, not for signals that were
 * sent, for a system call that seccomp trapped (it would be skipped), nor for memory errors reported ahead of use. */
static bool comes_back_by_itself(int signal, const siginfo_t *info) {
    if (info->si_code <= 0 || signal == SIGSYS)
        return false;
    return !(signal == SIGBUS && info->si_code == BUS_MCEERR_AO);
}

/* What a process sends itself by kill is its own doing, as abort and raise are: imas_ingest takes SI_USER for another process. */
static uint32_t code_of(const siginfo_t *info) {
    bool by_itself = info->si_code == SI_USER && info->si_pid == (pid_t)sys0(SYS_getpid);
    return (uint32_t)(by_itself ? SI_TKILL : info->si_code);
}

static void note_fatal(int signal, siginfo_t *info, void *context) {
    (void)context;
    if (page_is_ours()) {
        set_relaxed(page_header->fatal_code, code_of(info));
        set_relaxed(page_header->fatal_signal, (uint32_t)signal);
    }
    if (!comes_back_by_itself(signal, info))
        send_again(signal, info);
}

/* Installed first and taken back if it displaced anything: nearly always that is one call instead of two. */
static void install_if_default(int signal) {
    struct sigaction ours = {.sa_sigaction = note_fatal, .sa_flags = SA_ONSTACK | SA_RESETHAND | SA_NODEFER | SA_SIGINFO};
    struct sigaction before;
    if (sigaction(signal, &ours, &before) != 0)
        return;
    if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL)
        sigaction(signal, &before, NULL);
}

void fatal_install(void) {
    static const int fatal[] = {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGSYS, SIGFPE};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        install_if_default(fatal[i]);
}
