// SPDX-License-Identifier: Apache-2.0
/*
 * old_glibc.c - linked into every program of the product, so that it starts under glibc 2.28 although it was built with a
 * newer one. Names that got a new version since are bound to their first one, which every glibc keeps. Those that are newer
 * than 2.28 are made of system calls. packaging/lowest-glibc fails where a program asks for what is missing here.
 *
 * Until 2.33 pthread_create is in libpthread, which must then be loaded with the program: each program is linked with
 * a library of that name, which defines pthread_create alone (build.rs of imas-cli, record/Makefile).
 */
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#define FIRST_SETNAME "GLIBC_2.12"
#define JUMP(name) "endbr64\n\tjmp *" name "@GOTPCREL(%rip)\n"
#elif defined(__aarch64__)
#define FIRST "GLIBC_2.17"
#define FIRST_SETNAME FIRST
/* hint 34: a landing pad of branch protection */
#define JUMP(name) "hint 34\n\tadrp x16, :got:" name "\n\tldr x16, [x16, :got_lo12:" name "]\n\tbr x16\n"
#else
#error "the programs know x86-64 and aarch64"
#endif

/* The name is a jump to its first version: arguments and results stay where they are. Each has a section, so that the linker
 * drops those that the program does not call, and the loader has not to look for them. */
#define FORWARD(name, version)                                                                          \
    __asm__(".symver first_" #name ", " #name "@" version "\n"                                          \
            ".pushsection .text." #name ", \"ax\", %progbits\n\t.balign 16\n"                           \
            "\t.globl " #name "\n\t.hidden " #name "\n\t.type " #name ", %function\n"                   \
            #name ":\n\t" JUMP("first_" #name) "\t.size " #name ", . - " #name "\n.popsection\n");

FORWARD(pthread_attr_getguardsize, FIRST)
FORWARD(pthread_attr_getstack, FIRST)
FORWARD(pthread_attr_setstacksize, FIRST)
FORWARD(pthread_create, FIRST)
FORWARD(pthread_detach, FIRST)
FORWARD(pthread_getattr_np, FIRST)
FORWARD(pthread_getspecific, FIRST)
FORWARD(pthread_join, FIRST)
FORWARD(pthread_key_create, FIRST)
FORWARD(pthread_key_delete, FIRST)
FORWARD(pthread_kill, FIRST)
FORWARD(pthread_mutex_trylock, FIRST)
FORWARD(pthread_mutexattr_destroy, FIRST)
FORWARD(pthread_mutexattr_init, FIRST)
FORWARD(pthread_mutexattr_settype, FIRST)
FORWARD(pthread_once, FIRST)
FORWARD(pthread_setname_np, FIRST_SETNAME)
FORWARD(pthread_setspecific, FIRST)
FORWARD(pthread_sigmask, FIRST)

#ifdef WITH_LIBM
/* The first ones look whether the program asks for the errors of System V (matherr), and answer the same. */
FORWARD(exp, FIRST)
FORWARD(exp2, FIRST)
FORWARD(log, FIRST)
FORWARD(log2, FIRST)
FORWARD(pow, FIRST)
#endif

/* Rust's library looks for what a libc may have or not. A libc before 2.34 in a program without libdl has nothing to find. */
extern void *first_dlsym(void *handle, const char *name) __attribute__((weak));
__asm__(".symver first_dlsym, dlsym@" FIRST);

HIDDEN void *dlsym(void *handle, const char *name);
HIDDEN void *dlsym(void *handle, const char *name) {
    return first_dlsym != NULL ? first_dlsym(handle, name) : NULL;
}

/* Names that Rust's library uses where they are there. As weak and hidden ones they are nowhere, and it does without. */
#define NOWHERE(name) __asm__(".pushsection .data.rel.ro, \"aw\"\n\t.weak " #name "\n\t.hidden " #name "\n\t.quad " #name "\n.popsection\n");

NOWHERE(posix_spawn_file_actions_addchdir_np) /* 2.29 */
NOWHERE(posix_spawn_file_actions_addchdir)    /* 2.43 */
NOWHERE(pidfd_getpid)                         /* 2.39 */
NOWHERE(pidfd_spawnp)                         /* 2.39 */

/* ---- functions that are newer --------------------------------------------------------------------------- */

HIDDEN pid_t gettid(void);
HIDDEN pid_t gettid(void) {
    return (pid_t)syscall(SYS_gettid);
}

/* The kernel's structure is libc's on both machines. */
#define STATS(suffix)                                                                                   \
    HIDDEN int fstat##suffix(int file, struct stat##suffix *found) {                                    \
        return (int)syscall(SYS_fstat, file, found);                                                    \
    }                                                                                                   \
    HIDDEN int fstatat##suffix(int folder, const char *restrict path, struct stat##suffix *restrict found, int flags) { \
        return (int)syscall(SYS_newfstatat, folder, path, found, flags);                                \
    }                                                                                                   \
    HIDDEN int stat##suffix(const char *restrict path, struct stat##suffix *restrict found) {           \
        return (int)syscall(SYS_newfstatat, AT_FDCWD, path, found, 0);                                  \
    }                                                                                                   \
    HIDDEN int lstat##suffix(const char *restrict path, struct stat##suffix *restrict found) {          \
        return (int)syscall(SYS_newfstatat, AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW);                \
    }

STATS()
STATS(64)

/* ---- the start ------------------------------------------------------------------------------------------ */

/* What begins a program of 2.34 leaves its constructors to libc. An older libc leaves them to a function that the program
 * brings, and a newer one calls such a function where it is given. */
typedef int main_function(int count, char **words, char **environment);
typedef void constructor(int count, char **words, char **environment);

extern int first_start(main_function *program, int count, char **words, constructor *begin, void (*end)(void),
                       void (*end_of_loader)(void), void *stack);
__asm__(".symver first_start, __libc_start_main@" FIRST);

HIDDEN extern void _init(void);
HIDDEN extern constructor *const __init_array_start[];
HIDDEN extern constructor *const __init_array_end[];

static void construct(int count, char **words, char **environment) {
    _init();
    for (constructor *const *one = __init_array_start; one < __init_array_end; one++)
        (*one)(count, words, environment);
}

HIDDEN int __libc_start_main(main_function *program, int count, char **words, constructor *begin, void (*end)(void),
                             void (*end_of_loader)(void), void *stack);
HIDDEN int __libc_start_main(main_function *program, int count, char **words, constructor *begin, void (*end)(void),
                             void (*end_of_loader)(void), void *stack) {
    return first_start(program, count, words, begin != NULL ? begin : construct, end, end_of_loader, stack);
}
