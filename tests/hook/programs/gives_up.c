// SPDX-License-Identifier: Apache-2.0
/*
 * gives_up WAY ROUTE - has two threads, each of which gives a right up, and says whether another thread of the process
 * then has it. ROUTE: how it is asked for: `libc` (a function of libc's), `syscall`, `raw` (none of libc's functions), or
 * `handle` (libc's function, found by a handle of libc's own). At once; where the call cannot be seen, within ten seconds.
 * EXPECT_PACER as in hazards.c.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../../allocators/glue/kernel_call.h"
#include "hazards.h"

#define NOBODY 65534
#define LANDLOCK_CREATE_RULESET 444
#define LANDLOCK_RESTRICT_SELF 446

extern int capset(cap_user_header_t header, const cap_user_data_t data);

static const char *route;

static bool is_by(const char *name) {
    return strcmp(route, name) == 0;
}

static void *of_libc(const char *name) {
    return is_by("handle") ? dlsym(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), name) : dlsym(RTLD_DEFAULT, name);
}

static void must(long answer, const char *what) {
    if (answer < 0) {
        printf("%s failed\n", what);
        exit(2);
    }
}

static long call(long number, long a, long b, long c, long d) {
    return is_by("raw") ? kernel_call(number, a, b, c, d, 0, 0) : syscall(number, a, b, c, d, 0);
}

static void ask(long option, long a, long b) {
    must(is_by("libc") ? prctl((int)option, a, b, 0, 0) : call(SYS_prctl, option, a, b, 0), "prctl");
}

/* ---- the ways ------------------------------------------------------------------------------------------ */

static void set_capabilities(uint32_t all) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{all, all, all}, {0, 0, 0}};
    must(is_by("libc") ? capset(&header, data) : call(SYS_capset, (long)&header, (long)data, 0, 0), "capset");
}

static void capabilities(void) { set_capabilities(0); }
static void no_new_privileges(void) { ask(PR_SET_NO_NEW_PRIVS, 1, 0); }
static void ambient(void) { ask(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0); }

static void bounding(void) {
    for (long capability = 0; capability <= 20; capability++)
        ask(PR_CAPBSET_DROP, capability, 0);
}

static void users(void) {
    int (*change)(uid_t, uid_t, uid_t) = of_libc("setresuid");
    must(is_by("libc") || is_by("handle") ? change(NOBODY, NOBODY, NOBODY) : call(SYS_setresuid, NOBODY, NOBODY, NOBODY, 0), "setresuid");
}

static void groups(void) {
    int (*change)(gid_t) = of_libc("setgid"), (*list)(size_t, const gid_t *) = of_libc("setgroups");
    must(is_by("libc") || is_by("handle") ? list(0, NULL) : call(SYS_setgroups, 0, 0, 0, 0), "setgroups");
    must(is_by("libc") || is_by("handle") ? change(NOBODY) : call(SYS_setgid, NOBODY, 0, 0, 0), "setgid");
}

static void filter(void) {
    static struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, all};
    no_new_privileges();
    ask(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program);
}

static void namespace(void) {
    must(is_by("libc") ? unshare(CLONE_NEWNS) : call(SYS_unshare, CLONE_NEWNS, 0, 0, 0), "unshare");
}

static void landlock(void) {
    struct {
        uint64_t of_files;
    } rules = {1 << 11 /* making of a device */};
    long set = syscall(LANDLOCK_CREATE_RULESET, &rules, sizeof rules, 0);
    must(set, "landlock");
    no_new_privileges();
    must(call(LANDLOCK_RESTRICT_SELF, set, 0, 0, 0), "landlock_restrict_self");
}

static const struct {
    const char *name;
    void (*give_up)(void);
} ways[] = {{"capabilities", capabilities}, {"no-new-privileges", no_new_privileges}, {"ambient", ambient}, {"bounding", bounding},
            {"users", users}, {"groups", groups}, {"filter", filter}, {"namespace", namespace}, {"landlock", landlock}};

static void (*give_up)(void);

/* ---- what the others have ------------------------------------------------------------------------------ */

static pid_t threads[2];

struct rights {
    char identity[3][600], space[100], files[100];
    uint64_t sets[5];
    int no_new_privileges, filter;
};

static void read_line(const char *text, const char *name, char *to, size_t room) {
    const char *at = strstr(text, name);
    snprintf(to, room, "%.*s", at != NULL ? (int)strcspn(at, "\n") : 0, at != NULL ? at : "");
}

static bool read_rights(const char *task, struct rights *rights) {
    static const char *const identities[] = {"Uid:", "Gid:", "Groups:"}, *const sets[] = {"CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"};
    char path[300], text[8192] = "";
    memset(rights, 0, sizeof *rights);
    snprintf(path, sizeof path, "/proc/self/task/%s/status", task);
    FILE *file = fopen(path, "r");
    if (file == NULL || fread(text, 1, sizeof text - 1, file) == 0 || strstr(text, "NoNewPrivs:") == NULL) {
        if (file != NULL)
            fclose(file);
        return false;
    }
    fclose(file);
    for (int i = 0; i < 3; i++)
        read_line(text, identities[i], rights->identity[i], sizeof rights->identity[i]);
    for (int i = 0; i < 5; i++)
        rights->sets[i] = strtoull(strstr(text, sets[i]) + 7, NULL, 16);
    rights->no_new_privileges = atoi(strstr(text, "NoNewPrivs:") + 11);
    rights->filter = atoi(strstr(text, "Seccomp:") + 8);
    snprintf(path, sizeof path, "/proc/self/task/%s/ns/mnt", task);
    return readlink(path, rights->space, sizeof rights->space - 1) > 0;
}

static bool has_more(const struct rights *other, const struct rights *own) {
    bool more = strcmp(other->space, own->space) != 0 || other->no_new_privileges < own->no_new_privileges || other->filter < own->filter;
    for (int i = 0; i < 3; i++)
        more = more || strcmp(other->identity[i], own->identity[i]) != 0;
    for (int i = 0; i < 5; i++)
        more = more || (other->sets[i] & ~own->sets[i]) != 0;
    return more;
}

static pid_t pacer_before;

/* Landlock is not in the status: who was there before it has no part in it. */
static bool anyone_has_more(void) {
    char id[20];
    struct rights own, other;
    bool more = false;
    snprintf(id, sizeof id, "%d", threads[0]);
    if (!read_rights(id, &own))
        return true;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        int thread = atoi(task->d_name);
        if (thread == 0 || thread == threads[0] || thread == threads[1] || !read_rights(task->d_name, &other))
            continue;
        more = more || has_more(&other, &own) || (give_up == landlock && thread == pacer_before);
    }
    closedir(tasks);
    return more;
}

static void find_pacer(void) {
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] != '.' && is_pacer(task->d_name))
            pacer_before = atoi(task->d_name);
    }
    closedir(tasks);
}

/* ---- the process --------------------------------------------------------------------------------------- */

static volatile int may_give_up, has_given_up;

static void *second(void *unused) {
    threads[1] = gettid();
    while (!may_give_up)
        usleep(1000);
    if (!is_by("libc") || (give_up != users && give_up != groups)) /* libc's are for all threads */
        if (!is_by("handle"))
            give_up();
    has_given_up = 1;
    while (!released)
        usleep(1000);
    return unused;
}

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 3 && i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(ways[i].name, argv[1]) == 0)
            give_up = ways[i].give_up;
    }
    if (give_up == NULL)
        return 2;
    threads[0] = getpid();
    route = "libc";
    if (give_up == ambient) {
        set_capabilities(1 << CAP_NET_RAW | 1 << CAP_SETPCAP);
        ask(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_RAW);
    }
    route = argv[2];
    pthread_t thread = start(second);
    tell_pacer("with a thread");
    find_pacer();
    may_give_up = 1;
    while (!has_given_up)
        usleep(1000);
    give_up();
    bool seen = is_by("libc") || is_by("syscall");
    for (int looks = 0; !seen && looks < 1000 && anyone_has_more(); looks++)
        usleep(10000);
    puts(anyone_has_more() ? "another thread has more" : "nobody has more");
    join(thread);
    return 0;
}
