// SPDX-License-Identifier: Apache-2.0
#include "fatal.h"

#include "action.h"
#include "page.h"
#include "sys.h"

static const int fatal[] = {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGSYS, SIGFPE};
#define FATALS (sizeof fatal / sizeof *fatal)

/* What the program would read where our handler is set: a default action with the flags it was last given. */
static struct kernel_action shown[FATALS];
static bool installed;

static size_t index_of(int signal) {
    size_t index = 0;
    while (index < FATALS && fatal[index] != signal)
        index++;
    return index;
}

/* ---- the handler --------------------------------------------------------------------------------------- */

/* Where our handler returns to when the kernel has called it, and no other one's does. Debuggers know the
 * place by its name and by these instructions; unwinders look at the instruction before it, hence the nop. */
extern HIDDEN void return_from_signal(void) __asm__("__restore_rt");
#if defined(__x86_64__)
__asm__(".pushsection .text\n\tnop\n\t.type __restore_rt, @function\n__restore_rt:\n\tmovq $15, %rax\n\tsyscall\n\t"
        ".size __restore_rt, . - __restore_rt\n\t.popsection");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n\tnop\n\t.type __restore_rt, %function\n__restore_rt:\n\tmov x8, 139\n\tsvc 0\n\t"
        ".size __restore_rt, . - __restore_rt\n\t.popsection");
#endif

static void note(int signal, int code) {
    if (!page_is_ours())
        return;
    set_relaxed(page_header->fatal_code, (uint32_t)code);
    set_relaxed(page_header->fatal_signal, (uint32_t)signal);
}

/* Ends the process by the signal once more, now with its default action, keeping sender and code. What the process has sent
 * itself goes by the call that sent it (abort and raise, or kill): a seccomp filter may allow no other. */
static void send_again(int signal, siginfo_t *info) {
    const long process = sys0(SYS_getpid);
    const bool by_itself = info->si_pid == (pid_t)process;
    if (by_itself && info->si_code == SI_USER)
        sys2(SYS_kill, process, signal);
    else if (by_itself && info->si_code == SI_TKILL)
        sys3(SYS_tgkill, process, sys0(SYS_gettid), signal);
    else
        sys4(SYS_rt_tgsigqueueinfo, process, sys0(SYS_gettid), signal, info);
}

#ifndef SEGV_MTEAERR
#define SEGV_MTEAERR 8
#endif

/* Returning from the handler runs the faulting instruction again. That is so for faults, not for signals that
 * were sent, for a system call that seccomp trapped (it would be skipped), nor for memory errors reported
 * ahead of use, or behind it (wrong tags on arm64). */
static bool comes_back_by_itself(int signal, const siginfo_t *info) {
    if (info->si_code <= 0 || signal == SIGSYS)
        return false;
    return !(signal == SIGBUS && info->si_code == BUS_MCEERR_AO) && !(signal == SIGSEGV && info->si_code == SEGV_MTEAERR);
}

/* A handler of the program's has called ours: it read the disposition by a system call of its own. It may
 * have passed one argument only, so `info` is not touched; and the kernel has reset nothing, so without this
 * the fault would be back for ever. What is sent arrives when the program's handler returns. */
static void end_by_default(int signal) {
    static const struct kernel_action by_default;
    note(signal, SI_TKILL); /* sent by the process itself, whatever the program's handler was called for */
    action_swap(signal, &by_default, NULL);
    sys3(SYS_tgkill, sys0(SYS_getpid), sys0(SYS_gettid), signal);
}

/* A signal that a process sends itself by kill counts as its own, like abort and raise: imas_linux::ingest takes
 * SI_USER for another process. */
static int code_of(const siginfo_t *info) {
    bool by_itself = info->si_code == SI_USER && info->si_pid == (pid_t)sys0(SYS_getpid);
    return by_itself ? SI_TKILL : info->si_code;
}

/* Called by the kernel it makes no system call for a fault: a seccomp filter might end the process by another
 * signal. */
static NOINLINE void note_fatal(int signal, siginfo_t *info, void *context) {
    (void)context;
    if (__builtin_return_address(0) != (void *)return_from_signal) {
        end_by_default(signal);
        return;
    }
    note(signal, code_of(info));
    if (!comes_back_by_itself(signal, info))
        send_again(signal, info);
}

static const struct kernel_action ours = {
    .handler = (void *)note_fatal,
    .flags = SA_ONSTACK | (unsigned long)SA_RESETHAND | SA_NODEFER | SA_SIGINFO | ACTION_RESTORER,
    .restorer = return_from_signal,
};

/* ---- setting it ---------------------------------------------------------------------------------------- */

/* Installed first and taken back if it displaced anything: nearly always that is one call instead of two. */
void fatal_install(void) {
    for (size_t i = 0; i < FATALS; i++) {
        action_swap(fatal[i], &ours, &shown[i]);
        if (shown[i].handler != (void *)SIG_DFL)
            action_swap(fatal[i], &shown[i], NULL);
    }
    installed = true;
}

bool fatal_watches(int signal) {
    return get_relaxed(installed) && index_of(signal) < FATALS;
}

bool fatal_is_handler(const void *handler) {
    return handler == (const void *)note_fatal;
}

/* libc fills only the part of the mask that the kernel has. */
static void show(const struct kernel_action *action, struct sigaction *to) {
    to->sa_sigaction = (void (*)(int, siginfo_t *, void *))action->handler;
    to->sa_flags = (int)action->flags;
    to->sa_restorer = action->restorer;
    __builtin_memcpy(&to->sa_mask, &action->mask, sizeof action->mask);
}

void fatal_show_default(int signal, struct sigaction *action) {
    show(&shown[index_of(signal)], action);
    action->sa_handler = SIG_DFL;
}

/* Linux forgets the others since 5.11. */
#define KERNEL_FLAGS \
    (SA_NOCLDSTOP | SA_NOCLDWAIT | SA_SIGINFO | 0x800UL | SA_ONSTACK | SA_RESTART | SA_NODEFER | (unsigned long)SA_RESETHAND)

void fatal_set_default(int signal, const struct sigaction *action, struct sigaction *before) {
    struct kernel_action *slot = &shown[index_of(signal)], next = {.flags = action->sa_flags & KERNEL_FLAGS}, last;
    __builtin_memcpy(&next.mask, &action->sa_mask, sizeof next.mask);
    action_swap(signal, &ours, &last);
    if (fatal_is_handler(last.handler))
        last = *slot;
    next.flags |= last.flags & ACTION_RESTORER; /* libc sets it and its function in every action */
    next.restorer = last.restorer;
    *slot = next;
    if (before != NULL)
        show(&last, before);
}

void fatal_withdraw(int signal) {
    struct kernel_action now;
    action_swap(signal, NULL, &now);
    if (fatal_is_handler(now.handler))
        action_swap(signal, &shown[index_of(signal)], NULL);
}

int fatal_set_by_kernel(int signal, const struct sigaction *action, struct sigaction *before) {
    struct kernel_action next = {.flags = 0}, last = {.flags = 0};
    if (action != NULL) {
        next = (struct kernel_action){.handler = (void *)action->sa_sigaction,
                                      .flags = (unsigned)action->sa_flags | ACTION_RESTORER,
                                      .restorer = return_from_signal};
        __builtin_memcpy(&next.mask, &action->sa_mask, sizeof next.mask);
    }
    if (sys4(SYS_rt_sigaction, signal, action != NULL ? &next : NULL, &last, sizeof last.mask) != 0)
        return -1;
    if (before != NULL)
        show(&last, before);
    return 0;
}
