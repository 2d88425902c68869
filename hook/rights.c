// SPDX-License-Identifier: Apache-2.0
#include "rights.h"

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>

#include "sys.h"
#include "text.h"

#define SETS _LINUX_CAPABILITY_U32S_3

/* ---- at its birth -------------------------------------------------------------------------------------- */

static bool has_any(const struct __user_cap_data_struct *data) {
    uint32_t all = 0;
    for (int i = 0; i < SETS; i++)
        all |= data[i].permitted | data[i].inheritable;
    return all != 0;
}

/* The bounding set only where the thread may: without CAP_SETPCAP the first call fails. */
static void drop_bounding(void) {
    for (long capability = 0; sys2(SYS_prctl, PR_CAPBSET_DROP, capability) == 0; capability++) {
    }
}

#define OF_IDENTITY (UINT64_C(1) << (__SIGRTMIN + 1 - 1)) /* libc's signal for setuid in all threads */

static bool can_filter(void) {
    return sys1(SYS_prctl, PR_GET_SECCOMP) == 0;
}

bool rights_drop(struct rights *rights) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    struct __user_cap_data_struct data[SETS];
    if (sys2(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1) != 0 || sys2(SYS_capget, &header, data) != 0)
        return false;
    if (!has_any(data))
        return true;
    uint64_t signals = OF_IDENTITY;
    if (!can_filter() || sys4(SYS_rt_sigprocmask, SIG_BLOCK, &signals, NULL, sizeof signals) != 0)
        return false;
    rights->dropped = true;
    drop_bounding();
    for (int i = 0; i < SETS; i++)
        data[i] = (struct __user_cap_data_struct){0, 0, 0};
    return sys2(SYS_capset, &header, data) == 0; /* the ambient set goes with the permitted one */
}

/* ---- at each look -------------------------------------------------------------------------------------- */

#define TEXT_BYTES 8192

/* What follows the first `name` in the text, or NULL. */
static const char *line_of(const char *text, const char *name) {
    for (; *text != '\0'; text++) {
        const char *value = text_after(text, name);
        if (value != NULL)
            return value;
    }
    return NULL;
}

static bool same_line(const char *a, const char *b) {
    while (*a == *b && *a != '\n' && *a != '\0') {
        a++;
        b++;
    }
    return *a == *b;
}

static bool same_lines(const char *a, const char *b) {
    static const char *const names[] = {"\nUid:", "\nGid:", "\nGroups:", "\nSeccomp:"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *first = line_of(a, names[i]), *second = line_of(b, names[i]);
        if ((first == NULL) != (second == NULL) || (first != NULL && !same_line(first, second)))
            return false;
    }
    return true;
}

/* Of the main thread, and of this one. */
static bool read_both(const char *of_main, const char *of_this, char *first, char *second) {
    return sys_read_text(of_main, first, TEXT_BYTES) > 0 && sys_read_text(of_this, second, TEXT_BYTES) > 0;
}

bool rights_are_shared(void) {
    char first[TEXT_BYTES], second[TEXT_BYTES];
    if (!read_both("/proc/self/status", "/proc/thread-self/status", first, second) || !same_lines(first, second))
        return false;
    /* AppArmor's and SELinux's context; without either there is nothing to read. */
    bool labelled = read_both("/proc/self/attr/current", "/proc/thread-self/attr/current", first, second);
    return !labelled || text_equal(first, second);
}

bool rights_are_left_alone(const struct rights *rights) {
    uint64_t pending = 0;
    return !rights->dropped || (sys2(SYS_rt_sigpending, &pending, sizeof pending) == 0 && (pending & OF_IDENTITY) == 0);
}

/* ---- at its end ---------------------------------------------------------------------------------------- */

#define IS(number, left) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##number, left, 0)

/* libc aborts the process where one thread may do what another may not. This thread may not, and is about to end: the
 * call, which libc's handler makes in it, answers 0 and does nothing. */
static struct sock_filter seems_done[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    IS(setuid, 7), IS(setgid, 6), IS(setreuid, 5), IS(setregid, 4), IS(setresuid, 3), IS(setresgid, 2), IS(setgroups, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
};

void rights_leave(const struct rights *rights) {
    if (!rights->dropped)
        return;
    const struct sock_fprog program = {sizeof seems_done / sizeof *seems_done, seems_done};
    sys3(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    uint64_t signals = OF_IDENTITY;
    sys4(SYS_rt_sigprocmask, SIG_UNBLOCK, &signals, NULL, sizeof signals);
}
