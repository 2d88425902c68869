// SPDX-License-Identifier: Apache-2.0
#include "unfit.h"

#include <sys/auxv.h>
#include <sys/stat.h>

#include "environment.h"
#include "libc.h"
#include "object.h"
#include "sys.h"
#include "text.h"

bool unfit_sanitizer(void) {
    static const char *const runtimes[] = {
        "libasan.so",          "libtsan.so",          "libmsan.so",          "liblsan.so",           "libhwasan.so",
        "libclang_rt.asan",    "libclang_rt.tsan",    "libclang_rt.msan",    "libclang_rt.lsan",     "libclang_rt.hwasan",
    };
    return object_loaded(runtimes, sizeof runtimes / sizeof *runtimes);
}

bool unfit_split_family(const void *serving) {
    static const char *const family[] = {"malloc",         "free",          "calloc",   "realloc", "posix_memalign",
                                         "aligned_alloc",  "memalign",      "valloc",   "pvalloc", "malloc_usable_size"};
    for (size_t i = 0; i < sizeof family / sizeof *family; i++) {
        const void *reached = object_reached(family[i]);
        if (reached == NULL || reached == serving)
            continue;
        /* `serving` may be ourselves, where the search for the next definition does not look */
        if (serving == object_of((const void *)unfit_split_family) || object_of(object_next(family[i])) == serving)
            return true;
    }
    return false;
}

static bool same_file(const char *a, const char *b) {
    struct stat first, second;
    return sys4(SYS_newfstatat, AT_FDCWD, a, &first, 0) == 0 && sys4(SYS_newfstatat, AT_FDCWD, b, &second, 0) == 0 &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

#define SELF "/proc/self/exe"

/* The name the executable was started by, if that is still it (for a script it is the script), else the path the
 * kernel knows, else the link itself, which works for a deleted file too. */
static const char *own_path(char *buffer, size_t size) {
    const char *started_as = (const char *)libc_getauxval(AT_EXECFN);
    if (started_as != NULL && same_file(started_as, SELF))
        return started_as;
    long length = sys4(SYS_readlinkat, AT_FDCWD, SELF, buffer, size - 1);
    if (length <= 0)
        return SELF;
    buffer[length] = '\0';
    return same_file(buffer, SELF) ? buffer : SELF;
}

void unfit_start_clean(char **arguments, char **environment) {
    static char path[4096];
    environment_restore_all(environment);
    const char *preloads = environment_value(environment, "LD_PRELOAD");
    if (preloads != NULL && text_contains(preloads, "libimas"))
        return; /* we would be back at once, for ever */
    sys3(SYS_execve, own_path(path, sizeof path), arguments, environment);
}
