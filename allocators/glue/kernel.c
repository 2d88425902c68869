// SPDX-License-Identifier: Apache-2.0
//
// The calls of the kernel that allocators make, bound inside their library. Linked into each that we build.
//
// glibc's own malloc maps memory by names that no program can define. An allocator that calls mmap by its public name
// reaches the program's mmap instead, if it has one: a program that keeps a list of its mappings, a preloaded library
// that fakes the clock or wraps sockets. What they define may call malloc, which is then entered a second time while
// it holds its locks, or before it is ready, and the program hangs before main. These definitions are hidden, so the
// linker binds the allocator's calls to them, and the program's are never reached (docs/decisions/0034).
//
// Each is libc's function of that name, as its manual page has it, but no cancellation point. Not here: what has a
// state in libc that the program shares (sbrk, pthread_*, streams).
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "../../hook/loaded.h"
#include "../../hook/text.h"
#include "kernel_call.h"

#define CALL(name, a, b, c, d, e, f) \
    kernel_answer(kernel_call(SYS_##name, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)))
#define CALL4(name, a, b, c, d) CALL(name, a, b, c, d, 0, 0)
#define CALL3(name, a, b, c) CALL(name, a, b, c, 0, 0, 0)

static long kernel_answer(long answer)
{
    if (answer >= 0 || answer < -4095)
        return answer;
    errno = (int)-answer;
    return -1;
}

long syscall(long number, ...)
{
    long given[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        given[i] = va_arg(list, long);
    va_end(list);
    return kernel_answer(kernel_call(number, given[0], given[1], given[2], given[3], given[4], given[5]));
}

// ---- memory

// What takes pages away runs libc's own code, as glibc's malloc does. Libraries for remote memory access
// (UCX, Open MPI, libfabric) patch that code in place, to hear of each page that leaves. Unheard, their card
// goes on writing into pages that are gone. The code is found in libc's table of symbols: its name could lead
// to the program.
#pragma weak _r_debug

static void *find_in_libc(const char *name)
{
    for (const struct link_map *object = &_r_debug != NULL ? _r_debug.r_map : NULL; object != NULL; object = object->l_next) {
        struct loaded tables = loaded_read(object);
        if (tables.soname == NULL || !text_equal(tables.soname, "libc.so.6"))
            continue;
        const ElfW(Sym) *symbol = loaded_definition(&tables, name, loaded_hash(name));
        return symbol != NULL && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC ? (void *)(object->l_addr + symbol->st_value) : NULL;
    }
    return NULL;
}

static void *in_libc(void **kept, const char *name)
{
    void *found = __atomic_load_n(kept, __ATOMIC_RELAXED);
    if (__builtin_expect(found == NULL, 0)) {
        found = find_in_libc(name);
        __atomic_store_n(kept, found, __ATOMIC_RELAXED);
    }
    return found;
}

// A pointer to libc's function, or NULL.
#define IN_LIBC(name)                              \
    ({                                             \
        static void *kept;                         \
        (__typeof__(name) *)in_libc(&kept, #name); \
    })

// gperftools has these three of its own.
#define UNLESS_DEFINED __attribute__((weak))

UNLESS_DEFINED void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    __typeof__(mmap) *libc = (flags & MAP_FIXED) != 0 ? IN_LIBC(mmap) : NULL; // it may take pages that are there
    return libc != NULL ? libc(at, bytes, protection, flags, fd, offset)
                        : (void *)CALL(mmap, at, bytes, protection, flags, fd, offset);
}

UNLESS_DEFINED int munmap(void *at, size_t bytes)
{
    __typeof__(munmap) *libc = IN_LIBC(munmap);
    return libc != NULL ? libc(at, bytes) : (int)CALL3(munmap, at, bytes, 0);
}

UNLESS_DEFINED void *mremap(void *at, size_t bytes, size_t wanted, int flags, ...)
{
    __typeof__(mremap) *libc = IN_LIBC(mremap);
    va_list list;
    va_start(list, flags);
    void *place = (flags & MREMAP_FIXED) != 0 ? va_arg(list, void *) : NULL;
    va_end(list);
    return libc != NULL ? libc(at, bytes, wanted, flags, place) : (void *)CALL(mremap, at, bytes, wanted, flags, place, 0);
}

int madvise(void *at, size_t bytes, int advice)
{
    __typeof__(madvise) *libc = IN_LIBC(madvise);
    return libc != NULL ? libc(at, bytes, advice) : (int)CALL3(madvise, at, bytes, advice);
}

int mprotect(void *at, size_t bytes, int protection)
{
    return (int)CALL3(mprotect, at, bytes, protection);
}

int mincore(void *at, size_t bytes, unsigned char *resident)
{
    return (int)CALL3(mincore, at, bytes, resident);
}

int munlock(const void *at, size_t bytes)
{
    return (int)CALL3(munlock, at, bytes, 0);
}

int getpagesize(void)
{
    return (int)getauxval(AT_PAGESZ);
}

// ---- files

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    int mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(list, int) : 0;
    va_end(list);
    return (int)CALL4(openat, AT_FDCWD, path, flags, mode);
}

int close(int fd)
{
    return (int)CALL3(close, fd, 0, 0);
}

ssize_t read(int fd, void *to, size_t bytes)
{
    return CALL3(read, fd, to, bytes);
}

ssize_t write(int fd, const void *from, size_t bytes)
{
    return CALL3(write, fd, from, bytes);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    return CALL3(writev, fd, parts, count);
}

off_t lseek(int fd, off_t offset, int whence)
{
    return CALL3(lseek, fd, offset, whence);
}

ssize_t readlink(const char *path, char *to, size_t bytes)
{
    return CALL4(readlinkat, AT_FDCWD, path, to, bytes);
}

int fsync(int fd)
{
    return (int)CALL3(fsync, fd, 0, 0);
}

int ftruncate(int fd, off_t bytes)
{
    return (int)CALL3(ftruncate, fd, bytes, 0);
}

int fstatfs(int fd, struct statfs *about)
{
    return (int)CALL3(fstatfs, fd, about, 0);
}

int unlink(const char *path)
{
    return (int)CALL3(unlinkat, AT_FDCWD, path, 0);
}

int poll(struct pollfd *files, nfds_t count, int limit_ms)
{
    struct timespec limit = { limit_ms / 1000, limit_ms % 1000 * 1000000L };
    return (int)CALL(ppoll, files, count, limit_ms < 0 ? NULL : &limit, 0, 0, 0);
}

// ---- the process and the machine

// Its own: the program's may look into variables of a shell.
char *getenv(const char *name)
{
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        size_t at = 0;
        while (name[at] != '\0' && (*entry)[at] == name[at])
            at++;
        if (name[at] == '\0' && (*entry)[at] == '=')
            return *entry + at + 1;
    }
    return NULL;
}

char *secure_getenv(const char *name)
{
    return getauxval(AT_SECURE) != 0 ? NULL : getenv(name);
}

int prctl(int option, ...)
{
    unsigned long given[4];
    va_list list;
    va_start(list, option);
    for (int i = 0; i < 4; i++)
        given[i] = va_arg(list, unsigned long);
    va_end(list);
    return (int)CALL(prctl, option, given[0], given[1], given[2], given[3], 0);
}

ssize_t getrandom(void *to, size_t bytes, unsigned flags)
{
    return CALL3(getrandom, to, bytes, flags);
}

int getrusage(__rusage_who_t who, struct rusage *usage)
{
    return (int)CALL3(getrusage, who, usage, 0);
}

int sysinfo(struct sysinfo *about)
{
    return (int)CALL3(sysinfo, about, 0, 0);
}

int sched_yield(void)
{
    return (int)CALL3(sched_yield, 0, 0, 0);
}

int sched_setaffinity(pid_t thread, size_t bytes, const cpu_set_t *cpus)
{
    return (int)CALL3(sched_setaffinity, thread, bytes, cpus);
}

// The kernel tells how many bytes it has filled in.
int sched_getaffinity(pid_t thread, size_t bytes, cpu_set_t *cpus)
{
    long filled = CALL3(sched_getaffinity, thread, bytes, cpus);
    for (size_t i = filled < 0 ? bytes : (size_t)filled; i < bytes; i++)
        ((volatile unsigned char *)cpus)[i] = 0;
    return filled < 0 ? -1 : 0;
}

// ---- time

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    return (int)CALL3(nanosleep, wanted, left, 0);
}

int usleep(useconds_t microseconds)
{
    struct timespec wanted = { microseconds / 1000000, microseconds % 1000000 * 1000L };
    return nanosleep(&wanted, NULL);
}

unsigned sleep(unsigned seconds)
{
    struct timespec wanted = { seconds, 0 }, left = { 0, 0 };
    return nanosleep(&wanted, &left) == 0 ? 0 : (unsigned)left.tv_sec;
}

typedef int clock_call(clockid_t clock, struct timespec *now);

static int clock_by_call(clockid_t clock, struct timespec *now)
{
    return (int)CALL3(clock_gettime, clock, now, 0);
}

#if defined(__x86_64__)
#define CLOCK_NAME "__vdso_clock_gettime"
#else
#define CLOCK_NAME "__kernel_clock_gettime"
#endif

static int is_clock(const char *name)
{
    const char *wanted = CLOCK_NAME;
    while (*wanted != '\0' && *wanted == *name)
        wanted++, name++;
    return *wanted == *name;
}

// The number of symbols by the newer table of them, which lists those that are defined: they are the last.
static ElfW(Word) symbols_by_newer(const ElfW(Word) *table)
{
    const ElfW(Word) buckets = table[0], first = table[1];
    const ElfW(Word) *bucket = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof *table), *chain = bucket + buckets;
    ElfW(Word) last = 0;
    for (ElfW(Word) i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    if (last < first || last == 0)
        return 0;
    while ((chain[last - first] & 1) == 0)
        last++;
    return last + 1;
}

// The function among the symbols that a dynamic section names; the addresses there are relative to `bias`. Younger
// kernels for arm64 have the newer table alone.
static clock_call *clock_among(const ElfW(Dyn) *entry, uintptr_t bias)
{
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    ElfW(Word) count = 0;
    for (; entry->d_tag != DT_NULL; entry++) {
        const void *at = (const void *)(bias + entry->d_un.d_ptr);
        if (entry->d_tag == DT_SYMTAB)
            symbols = at;
        else if (entry->d_tag == DT_STRTAB)
            names = at;
        else if (entry->d_tag == DT_HASH)
            count = ((const ElfW(Word) *)at)[1];
        else if (entry->d_tag == DT_GNU_HASH && count == 0)
            count = symbols_by_newer(at);
    }
    for (ElfW(Word) i = 0; symbols != NULL && names != NULL && i < count; i++)
        if (symbols[i].st_shndx != SHN_UNDEF && is_clock(names + symbols[i].st_name))
            return (clock_call *)(bias + symbols[i].st_value);
    return clock_by_call;
}

// The clock that the kernel maps into each process (vdso(7)), which needs no system call.
static clock_call *find_clock(void)
{
    const ElfW(Ehdr) *image = (const void *)getauxval(AT_SYSINFO_EHDR);
    if (image == NULL)
        return clock_by_call;
    const ElfW(Phdr) *segment = (const void *)((uintptr_t)image + image->e_phoff);
    const ElfW(Dyn) *dynamic = NULL;
    uintptr_t bias = (uintptr_t)image;
    for (int i = image->e_phnum; i > 0; i--, segment++) {
        if (segment->p_type == PT_LOAD && segment->p_offset == 0)
            bias = (uintptr_t)image - segment->p_vaddr;
        else if (segment->p_type == PT_DYNAMIC)
            dynamic = (const void *)((uintptr_t)image + segment->p_offset);
    }
    return dynamic != NULL ? clock_among(dynamic, bias) : clock_by_call;
}

// imas-replayer, and no other program, has this one: an allocator that it replays must see the time of the recording.
extern __attribute__((weak, visibility("default"))) clock_call imas_replay_clock;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static clock_call *found;
    clock_call *call = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (__builtin_expect(call == NULL, 0)) {
        call = imas_replay_clock != NULL ? imas_replay_clock : find_clock();
        __atomic_store_n(&found, call, __ATOMIC_RELAXED);
    }
    return (int)kernel_answer(call(clock, now));
}

int gettimeofday(struct timeval *now, void *unused)
{
    struct timespec precise = { 0, 0 };
    (void)unused;
    int answer = clock_gettime(CLOCK_REALTIME, &precise);
    *now = (struct timeval){ precise.tv_sec, precise.tv_nsec / 1000 };
    return answer;
}

time_t time(time_t *also)
{
    struct timespec now = { 0, 0 };
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (also != NULL)
        *also = now.tv_sec;
    return now.tv_sec;
}
