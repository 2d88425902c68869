// SPDX-License-Identifier: Apache-2.0
/*
 * imas_abi.h - the one definition of what the injected C code and the Rust programs share:
 * the trial page and the environment through which a launcher speaks to the hook and the guard.
 *
 * The mirror in Rust is crates/imas-abi; a test there compiles this header and compares every offset.
 * All integers are in the machine's byte order: a page never leaves the machine it was written on.
 */
#ifndef IMAS_ABI_H
#define IMAS_ABI_H

#include <stddef.h>
#include <stdint.h>

/* ---- Environment: launcher -> guard / hook ------------------------------------------------------------- */

/* Absolute path of the page the launcher prepared for this process (its pid stands in the header). */
#define IMAS_ENV_PAGE "IMAS_PAGE"
/* "1": leave the environment as it is, so that children run under the same candidate. */
#define IMAS_ENV_FOLLOW "IMAS_FOLLOW"
/* "1": every process of the tree counts into a page of its own, made beside IMAS_PAGE (implies FOLLOW), named
 * <pid>-<process_start_ticks>-<n>.page with the first free n from 0: exec keeps pid and start. */
#define IMAS_ENV_TREE "IMAS_TREE"
/* "1" beside IMAS_FOLLOW: the candidate is libc's malloc, so that no library follows ours in LD_PRELOAD. */
#define IMAS_ENV_ALONE "IMAS_ALONE"
/* Prefix: IMAS_WAS_<NAME>=<value> is the value <NAME> had before the launcher changed it. */
#define IMAS_ENV_WAS "IMAS_WAS_"
/* Colon-separated names that did not exist before the launcher set them. */
#define IMAS_ENV_UNSET "IMAS_UNSET"
/* Set where needed to make the number of variables that are taken away again an even one. Go's runtime, for one, looks
 * for the auxiliary vector after the NULL that ends the environment, and reads what it finds there in pairs. */
#define IMAS_ENV_PAD "IMAS_PAD"
/* Colon-separated names of variables that libimas-settings.so answers getenv for, after they were taken away again. */
#define IMAS_ENV_SETTINGS "IMAS_SETTINGS"
/* Before a name there: every question for it is answered. Without it, the first one is. */
#define IMAS_SETTINGS_LASTING '+'
/* Flags of the JVM, which libimas-settings.so sets, with spaces between: `+Name`, `-Name`, `Name=number`. */
#define IMAS_ENV_JVM_FLAGS "IMAS_JVM_FLAGS"
/* Beginnings of options, with spaces between: a JVM with one of them gets none of those flags. */
#define IMAS_ENV_JVM_YIELDS "IMAS_JVM_YIELDS"
/* "1": do nothing at all. */
#define IMAS_ENV_DISABLE "IMAS_DISABLE"

/* ---- Trial page ---------------------------------------------------------------------------------------- */

#define IMAS_PAGE_MAGIC UINT64_C(0x31454741505341A9) /* bytes A9 'A' 'S' 'P' 'A' 'G' 'E' '1': no text file starts so */
#define IMAS_PAGE_VERSION 1u

#define IMAS_HEADER_BYTES 4096u /* a flight page is the header alone */
#define IMAS_SAMPLED_BYTES 4096u
#define IMAS_SLOT_BYTES 64u
#define IMAS_OWN_SLOTS 112u   /* one writer each: plain stores */
#define IMAS_SHARED_SLOTS 16u /* threads beyond the own slots share these: atomic adds */
#define IMAS_SLOTS (IMAS_OWN_SLOTS + IMAS_SHARED_SLOTS)
#define IMAS_TRIAL_PAGE_BYTES (IMAS_HEADER_BYTES + IMAS_SAMPLED_BYTES + IMAS_SLOTS * IMAS_SLOT_BYTES)

#define IMAS_CANDIDATE_BYTES 64u
#define IMAS_SERVED_BYTES 128u
#define IMAS_BOOT_ID_BYTES 40u
#define IMAS_TRIAL_ID_BYTES 40u
#define IMAS_PROGRAM_BYTES 1024u
#define IMAS_DETAIL_BYTES 1024u
#define IMAS_BUILD_ID_BYTES 72u

/* What the page is for. */
enum imas_page_kind {
    IMAS_PAGE_TRIAL = 1,  /* libimas.so counts into it */
    IMAS_PAGE_FLIGHT = 2, /* libimas-guard.so notes entry, fatal signal and clean exit only */
};

/* How far the injected code came. Only ever grows, but for an exec of the own file: then the page is armed again. */
enum imas_state {
    IMAS_STATE_ARMED = 0,   /* written by the launcher before exec; still so after death = died before our constructor */
    IMAS_STATE_ENTERED = 1, /* constructor began */
    IMAS_STATE_ACTIVE = 2,  /* candidate serves, not counted (guard) */
    IMAS_STATE_TRIAL = 3,   /* candidate serves and is counted */
    IMAS_STATE_PASS = 4,    /* stood aside, see pass_reason */
};

/* Why the injected code stood aside. */
enum imas_pass_reason {
    IMAS_PASS_NONE = 0,
    IMAS_PASS_DISABLED = 1,       /* IMAS_DISABLE=1 or /run/imas/disabled */
    IMAS_PASS_OWN_MALLOC = 2,     /* the executable (or a library before us) defines malloc itself */
    IMAS_PASS_SECCOMP = 3,        /* already under seccomp */
    IMAS_PASS_RLIMIT_AS = 4,      /* finite RLIMIT_AS */
    IMAS_PASS_LD_AUDIT = 5,       /* LD_AUDIT set */
    IMAS_PASS_VALGRIND = 6,       /* running under valgrind */
    IMAS_PASS_SANITIZER = 7,      /* a sanitizer runtime is loaded */
    IMAS_PASS_NO_ALLOCATOR = 8,   /* the next malloc family was not found or came from more than one object */
    IMAS_PASS_PAGE = 9,           /* the page is missing, foreign, of wrong size or version */
    IMAS_PASS_NOT_THE_PROGRAM = 10, /* a child of the program under trial; counted only with IMAS_TREE */
    IMAS_PASS_PID1 = 11,
    IMAS_PASS_INTERFACE = 12, /* the program calls functions of an allocator's own beside malloc (imas_interface.h) */
    IMAS_PASS_WRAPPED = 13, /* the program defines a function that the candidate calls, or a library of it something else by the name of one of ours */
    IMAS_PASS_TOO_EARLY = 14, /* malloc was called while ld.so relocated: most allocators cannot serve that yet */
    IMAS_PASS_OWN_FILTER = 15, /* the program sets a filter of system calls by an instruction of its own (hook/raw_filter.h) */
    IMAS_PASS_REASONS = 16,
};

/* Operation classes of the paper (Algorithms 2 to 5): calloc counts as malloc, every aligned form as memalign. */
enum imas_op { IMAS_OP_MALLOC = 0, IMAS_OP_REALLOC = 1, IMAS_OP_MEMALIGN = 2, IMAS_OP_FREE = 3, IMAS_OPS = 4 };

#define IMAS_LATENCY_BUCKETS 48u /* bucket b: 2^b <= ticks < 2^(b+1), ticks already less the empty pair; bucket 0 holds 0 too */
#define IMAS_SIZE_BUCKETS 64u    /* bucket b: 2^b <= bytes requested < 2^(b+1); bucket 0 holds 0 too */

/* Weights are fixed point: a call sampled with probability p adds 256/p. */
#define IMAS_WEIGHT_ONE 256u

/*
 * The first 4096 bytes. The launcher writes the first part before exec, the process under trial all from `state` on
 * (the guard: state to served, ticks_start and ns_start); nobody else writes. Each field is valid on its own at any instant: kill -9 loses nothing but the
 * fields of the exit snapshot.
 */
struct imas_page_header {
    /* written by whoever makes the file */
    uint64_t magic;
    uint32_t version;
    uint32_t page_bytes; /* of the whole file: IMAS_HEADER_BYTES or IMAS_TRIAL_PAGE_BYTES */
    uint32_t kind;       /* enum imas_page_kind */
    uint32_t pid;
    uint32_t uid;
    uint32_t armed;                /* 1 once everything above and below is in place */
    uint64_t process_start_ticks;  /* field 22 of /proc/PID/stat: tells a reused pid; exec keeps it */
    uint64_t made_unix_ns;         /* CLOCK_REALTIME */
    char boot_id[IMAS_BOOT_ID_BYTES];
    char trial_id[IMAS_TRIAL_ID_BYTES];    /* unique per trial; pages of children repeat it, and boot_id and candidate */
    char candidate[IMAS_CANDIDATE_BYTES];  /* name in the catalogue */
    char program[IMAS_PROGRAM_BYTES];      /* resolved path of the executable; a child notes its own */
    char detail[IMAS_DETAIL_BYTES];        /* script, jar or main class of an interpreter; else empty */
    char build_id[IMAS_BUILD_ID_BYTES];    /* hex, of the executable; else empty */

    /* written by the injected code */
    uint32_t state;       /* enum imas_state */
    uint32_t pass_reason; /* enum imas_pass_reason */
    /* A process that becomes another program by exec, is killed, or overflows a stack notes neither an exit nor a signal. A
     * fatal signal outweighs a clean exit: it may come in a destructor, and under the guard a vfork child's _exit is, but
     * for one whose exec failed, taken for its parent's until that ends. */
    uint32_t clean_exit;  /* 1: exit handlers ran, or _exit was called */
    int32_t exit_status;  /* with clean_exit: the status, -1 after quick_exit; -1 before */
    uint32_t fatal_signal; /* SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGSYS or SIGFPE that is ending the process; else 0 */
    uint32_t fatal_code;   /* si_code of it; SI_TKILL where the process sent it to itself by kill, so that SI_USER is another's */
    uint32_t forks;        /* children made by fork, seen in the parent */
    uint32_t threads;      /* threads that ever allocated */
    /* The object whose malloc serves: imas_allocator_name, else the file's base name. Where nothing of ours is loaded, the
     * launcher writes "measured from outside" here, and below in user_us the CPU time before its exec. */
    char served[IMAS_SERVED_BYTES];

    /* clocks: ticks (rdtsc / cntvct) and CLOCK_MONOTONIC_RAW at start and at the latest snapshot */
    uint64_t ticks_start, ns_start;
    uint64_t ticks_last, ns_last;
    uint64_t empty_pair_ticks_256; /* cost of two clock reads with nothing between, in 1/256 ticks */

    /* Memory seen by snapshots: every 5 s, at each doubling of the live bytes beyond 1 MiB, and at exit. The sums hold
     * the exit snapshot only when it is the only one: a program that has just freed everything says nothing about its
     * fragmentation. live_bytes_peak is kept up to date between snapshots too. */
    uint64_t snapshots;
    uint64_t heap_bytes_sum, heap_bytes_peak;         /* rw-p anonymous and [heap] mappings, thread stacks left out */
    uint64_t live_bytes_sum, live_bytes_peak;         /* estimate of usable bytes in live blocks */
    uint64_t resident_bytes_sum, resident_bytes_peak; /* smaps_rollup: Pss_Anon - LazyFree + SwapPss */

    /* exit snapshot: getrusage(RUSAGE_SELF) and VmHWM; zero when the process was killed */
    uint64_t user_us, system_us;
    uint64_t minor_faults, major_faults;
    uint64_t max_rss_bytes;
    uint64_t voluntary_switches, involuntary_switches;

    /* The resident bytes over time, the exit snapshot included: each step from one snapshot to the next adds the mean of the
     * two, in KiB, times its length in units of 2^16 ns (65.5 us). Growth snapshots come early and close together, so that
     * resident_bytes_sum / snapshots says what a short program held while it began, not what it held. */
    uint64_t resident_kib_time;

    /*
     * Where the resident bytes are, over time, at moments of their own: some 10 ms after the start, then after twice as long
     * each time until it is every 5 s. Each moment stands for the time since the one before; sums are KiB times units of 2^16 ns.
     * Pages of earlier versions have zeros here: nothing is known.
     */
    uint64_t split_moments;
    uint64_t split_reported; /* moments at which the allocator reported the last four; they are valid if it is all of them */
    uint64_t split_time; /* units the moments stand for */
    uint64_t split_resident_kib_time;  /* as resident_bytes_sum */
    uint64_t split_usable_kib_time;    /* the estimate of live_bytes ... */
    uint64_t split_requested_kib_time; /* ... and of live_requested: rounding is what lies between */
    uint64_t split_in_use_kib_time;    /* the allocator's account of bytes in live blocks, with its headers */
    uint64_t split_cached_kib_time;    /* free blocks it keeps: thread caches, bins, holes in pages in use */
    uint64_t split_dirty_kib_time;     /* pages that hold nothing live and were not given back */
    uint64_t split_own_kib_time;       /* its own bookkeeping, where it tells */

    /* 1: made for a child of fork, that goes on from its parent's live blocks: they are in both pages' figures. 0 in pages
     * of earlier versions. After an exec the process has another page; or goes on with this one, if it is of its own file
     * under a candidate for the program alone (hook/again.h). */
    uint64_t forked;

    /* Threads that are in system calls which the program would not make: of a trial after its start. Not 0 in the page of
     * an ended process: a filter, which the program set unseen, ended it there. */
    uint64_t own_calls;
};

/* Sampled figures of one operation class; atomic adds, touched once in about 128 calls. */
struct imas_sampled_op {
    uint64_t sampled;                          /* calls timed */
    uint64_t weight;                           /* sum of weights of those not taken for interrupted (hook/plausible.h): estimates calls * 256 */
    uint64_t ticks;                            /* of the same: sum of weight * ticks / 256, empty pair not yet subtracted */
    uint64_t histogram[IMAS_LATENCY_BUCKETS];  /* weights of all by log2 of ticks less the empty pair */
};

struct imas_sampled {
    struct imas_sampled_op op[IMAS_OPS];
    uint64_t size_histogram[IMAS_SIZE_BUCKETS]; /* weights by log2 of bytes requested */
    int64_t live_bytes;                         /* running estimate of usable bytes in live blocks */
    uint64_t live_samples;                      /* blocks tracked now */
    uint64_t live_dropped;                      /* samples lost because the table was full */
    uint64_t sample_interval_bytes;             /* current mean distance between samples, in bytes + 1/128 per call */
    uint64_t usable_bytes_256;                  /* sum of weight * usable size: estimates bytes handed out */
    uint64_t requested_bytes_256;               /* sum of weight * requested size, same samples: rounding = usable - requested */
    int64_t live_requested;                     /* as live_bytes, of the bytes asked for: by the same blocks, so that both err alike */
};

/* Exact counts; one thread each up to IMAS_OWN_SLOTS, then shared. A thread may take over the slot of one that has ended
 * and count on. free(NULL) is a call: libc makes about twenty when a thread ends. */
struct imas_slot {
    uint32_t tid; /* 0: free */
    uint32_t unused;
    uint64_t calls[IMAS_OPS];
    uint64_t bytes_requested; /* sum over malloc, realloc and memalign classes */
    uint64_t refused;         /* sampled calls that returned NULL for a non-zero size: nearly all of those for large sizes */
    uint64_t reserved;
};

struct imas_page {
    struct imas_page_header header;
    unsigned char header_pad[IMAS_HEADER_BYTES - sizeof(struct imas_page_header)];
    struct imas_sampled sampled;
    unsigned char sampled_pad[IMAS_SAMPLED_BYTES - sizeof(struct imas_sampled)];
    struct imas_slot slot[IMAS_SLOTS];
};

_Static_assert(sizeof(struct imas_page_header) <= IMAS_HEADER_BYTES, "header fits its area");
_Static_assert(sizeof(struct imas_sampled) <= IMAS_SAMPLED_BYTES, "sampled figures fit their area");
_Static_assert(sizeof(struct imas_slot) == IMAS_SLOT_BYTES, "a slot is one cache line");
_Static_assert(sizeof(struct imas_page) == IMAS_TRIAL_PAGE_BYTES, "page size is part of the format");
_Static_assert(offsetof(struct imas_page, slot) % IMAS_SLOT_BYTES == 0, "slots start on cache lines");

#endif
