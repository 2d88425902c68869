// SPDX-License-Identifier: Apache-2.0
/*
 * imas_index.h - how a program finds its decision by itself: the index that imasd publishes, the catalogue table that root
 * makes, and where both stand. Read by libimas-preload.so (hook/preload.c), written by Rust (crates/imas-linux).
 *
 * Layout below a run folder, /run/imas system-wide, $IMAS_RUN for a user's own tree:
 *   catalogue            owned by root (own tree: the user); candidate id -> library, environment
 *   disabled             when it exists, the stub does nothing in any process
 *   state/               owned by the daemon's user (the uid that the catalogue names)
 *   state/index          replaced by rename only
 *   state/u/UID/         0700, owned by UID: pages of that user's processes
 *     <trial_token, 16 hex digits>.page      a trial: whoever creates it runs it
 *     <pid>-<process_start_ticks>[-n].page   a production start with IMAS_ENTRY_FLIGHT; n from 1 when exec repeats pid and start
 * A page's trial id is "<token>-<program_id>", in 16 hex digits each; a flight's token is start << 22 | pid.
 *
 * The index holds ids, never paths: whoever writes it can choose among the candidates that root approved, no more.
 * Both files are read with pread, never mapped: a file that shrinks under the reader is a short read, not SIGBUS.
 * All integers in the machine's byte order; padding is named and zero.
 */
#ifndef IMAS_INDEX_H
#define IMAS_INDEX_H

#include <stddef.h>
#include <stdint.h>

#define IMAS_RUN_FOLDER "/run/imas"
/* Another run folder, for a tree of one user's processes; honoured when the folder and its files are the user's own. */
#define IMAS_ENV_RUN "IMAS_RUN"
/* Set, to the candidate's name, for the second exec: this process has been placed already. A launcher that wants a program left
 * alone sets it to "system"; the stub takes it away again, unless IMAS_FOLLOW=1 says that the whole tree is meant. */
#define IMAS_ENV_PLACED "IMAS_PLACED"

#define IMAS_ANY_UID UINT32_MAX

/* Check sums are FNV-1a, 32 bits, over the record's bytes with `check` as zero: against damage, not against forgery. */
#define IMAS_FNV32_START UINT32_C(0x811c9dc5)
#define IMAS_FNV32_PRIME UINT32_C(0x01000193)
/* Hash of a key: FNV-1a, 64 bits, over the first IMAS_KEY_BYTES bytes of the entry. */
#define IMAS_FNV64_START UINT64_C(0xcbf29ce484222325)
#define IMAS_FNV64_PRIME UINT64_C(0x00000100000001b3)

/* ---- Index --------------------------------------------------------------------------------------------- */

#define IMAS_INDEX_MAGIC UINT64_C(0x31584449534149A9) /* bytes A9 'I' 'A' 'S' 'I' 'D' 'X' '1' */
#define IMAS_INDEX_VERSION 1u
#define IMAS_INDEX_HEADER_BYTES 128u
#define IMAS_INDEX_ENTRY_BYTES 128u
/* An entry is in its home slot (hash modulo slots) or one of the next IMAS_INDEX_PROBES - 1. As many spill slots follow
 * the table, so that one read of IMAS_INDEX_PROBES entries finds it or shows that it is not there. */
#define IMAS_INDEX_PROBES 16u

enum imas_index_flag {
    IMAS_INDEX_DISABLED = 1, /* the stub does nothing in any process; set when an allocator or the hook may be at fault */
};

struct imas_index_header {
    uint64_t magic;
    uint32_t version;
    uint32_t check;
    uint64_t file_bytes;   /* header + (slots + IMAS_INDEX_PROBES - 1) entries */
    uint64_t generation;   /* grows with each publication */
    uint64_t catalogue_id; /* of the catalogue table the ids belong to; with another one the stub does nothing */
    uint64_t made_boot_ns; /* CLOCK_BOOTTIME */
    uint64_t slots;        /* power of two */
    uint64_t entries;
    uint32_t flags; /* enum imas_index_flag */
    uint32_t reserved;
    char boot_id[40]; /* of this boot, NUL-terminated; the hook copies it into pages */
    uint64_t reserved2[2];
};

/* What tells programs of one executable apart. */
enum imas_detail_kind {
    IMAS_DETAIL_NONE = 0,
    IMAS_DETAIL_FILE = 1, /* script or jar: detail = {st_dev, st_ino} of the file named on the command line */
    IMAS_DETAIL_TEXT = 2, /* module or main class: detail = {FNV-1a 64 of the text, its length} */
    IMAS_DETAIL_UNIT = 3, /* systemd unit: detail = {FNV-1a 64 of the unit's name, its length} */
    IMAS_DETAIL_NAME = 4, /* base name of the path that is executed, where it is another than the file's: detail = {FNV-1a 64 of
                             it, its length} */
};

enum imas_entry_flag {
    /* On the entry without detail: programs of this executable are distinguished by what it is given to run / by unit. */
    IMAS_ENTRY_INTERPRETER = 1,
    IMAS_ENTRY_JAVA = 2,
    IMAS_ENTRY_BY_UNIT = 4,
    /* Write a flight page at production starts, so that a crash is seen. */
    IMAS_ENTRY_FLIGHT = 8,
    /* May be placed even as process 1. */
    IMAS_ENTRY_PID1 = 16,
    /* On the entry without detail: programs of this executable are distinguished by the name by which it is started. An older stub
     * takes all of them for one. */
    IMAS_ENTRY_BY_NAME = 32,
};

/*
 * How a process finds its decision: the entry (executable, no detail, own uid), else (executable, no detail, IMAS_ANY_UID); that
 * one's flags say whether programs are distinguished. If so (executable, detail, own uid), else (executable, detail, IMAS_ANY_UID),
 * by what it is given to run first, by unit second, by name third; where none stands, the entry without detail holds, but not
 * for an executable that is distinguished by name and started by another than its own.
 */

/* A trial beside the entry's first one. */
struct imas_more_trial {
    uint16_t candidate; /* catalogue id; 0: none */
    uint16_t after;     /* its token is trial_token + after; tokens of one program follow each other */
};
#define IMAS_MORE_TRIALS 11u

/* One decision. Empty slot: all bytes zero (candidate 0 is no candidate). */
struct imas_index_entry {
    /* the key */
    uint64_t exe_dev, exe_ino;
    uint64_t detail[2];
    uint32_t detail_kind; /* enum imas_detail_kind */
    uint32_t uid;         /* whose decision; IMAS_ANY_UID: everybody's */
    /* the executable must still be the file that was learned about */
    int64_t exe_mtime_ns;
    uint64_t exe_bytes;
    /* the decision */
    uint16_t candidate;       /* catalogue id for a production start; never 0 */
    uint16_t trial_candidate; /* 0: no trial is due */
    uint32_t flags;           /* enum imas_entry_flag */
    uint64_t trial_token;     /* names the trial page: who creates it runs the trial, everybody else starts in production */
    uint64_t program_id;      /* the daemon's; the hook copies it into the page's trial id */
    /* Further trials that may run at the same time, each in another process; the first one without a candidate ends them. A start
     * takes the first trial, of all, whose page it can create. Zero in an index of an older imasd; an older stub sees the first trial
     * alone. */
    struct imas_more_trial more_trials[IMAS_MORE_TRIALS];
    uint32_t check;
};
#define IMAS_KEY_BYTES 40u

/* ---- Catalogue table ----------------------------------------------------------------------------------- */

#define IMAS_CATALOGUE_MAGIC UINT64_C(0x3154414353414DA9) /* bytes A9 'M' 'A' 'S' 'C' 'A' 'T' '1' */
#define IMAS_CATALOGUE_VERSION 2u /* 2: settings of language runtimes; stub and daemon read no other version */
#define IMAS_CATALOGUE_ENTRY_BYTES 1536u
#define IMAS_CATALOGUE_MAX 512u
#define IMAS_CATALOGUE_LIBRARY_BYTES 256u
#define IMAS_CATALOGUE_ENVIRONMENT_BYTES 632u
#define IMAS_CATALOGUE_YIELDS_BYTES 512u

#define IMAS_CANDIDATE_SYSTEM 1u /* the id of `system` in every catalogue */


/* A file as it was when root approved it; one that differs is not used. */
struct imas_file_identity {
    uint64_t dev, ino, bytes;
    int64_t mtime_ns;
};

struct imas_catalogue_header {
    uint64_t magic;
    uint32_t version;
    uint32_t check;
    uint64_t file_bytes; /* (1 + count) * IMAS_CATALOGUE_ENTRY_BYTES */
    uint64_t catalogue_id;
    uint32_t count;      /* entry of id n stands at n * IMAS_CATALOGUE_ENTRY_BYTES */
    uint32_t daemon_uid; /* who may own state/ and the index, besides the catalogue's own owner */
    char guard[IMAS_CATALOGUE_LIBRARY_BYTES]; /* absolute path of libimas-guard.so */
    char hook[IMAS_CATALOGUE_LIBRARY_BYTES];  /* absolute path of libimas.so */
    struct imas_file_identity guard_identity;
    struct imas_file_identity hook_identity;
    char settings[IMAS_CATALOGUE_LIBRARY_BYTES]; /* absolute path of libimas-settings.so; empty: no candidate is settings of a runtime */
    struct imas_file_identity settings_identity;
    unsigned char reserved[632];
};

enum imas_candidate_flag {
    IMAS_CANDIDATE_HAS_SETTINGS = 1, /* started with libimas-settings.so; IMAS_SETTINGS stands in its environment */
};

struct imas_catalogue_entry {
    char name[64];
    char library[IMAS_CATALOGUE_LIBRARY_BYTES]; /* absolute path; empty: settings only */
    struct imas_file_identity identity;         /* of the library; zeros without one */
    char environment[IMAS_CATALOGUE_ENVIRONMENT_BYTES]; /* NAME=VALUE, each ended by NUL, ended by an empty one */
    /* What the user may have set: a process that has one of them starts without the candidate. Listed as the environment is. A word
     * that begins with '-' is the beginning of an argument, any other the name of a variable. */
    char yields_to[IMAS_CATALOGUE_YIELDS_BYTES];
    uint32_t id;
    uint32_t flags; /* enum imas_candidate_flag; an entry with any other bit is no candidate */
    uint32_t reserved[7];
    uint32_t check;
};

_Static_assert(sizeof(struct imas_index_header) == IMAS_INDEX_HEADER_BYTES, "index header");
_Static_assert(sizeof(struct imas_index_entry) == IMAS_INDEX_ENTRY_BYTES, "index entry");
_Static_assert(offsetof(struct imas_index_entry, exe_mtime_ns) == IMAS_KEY_BYTES, "key comes first");
_Static_assert(sizeof(struct imas_catalogue_header) == IMAS_CATALOGUE_ENTRY_BYTES, "catalogue header");
_Static_assert(sizeof(struct imas_catalogue_entry) == IMAS_CATALOGUE_ENTRY_BYTES, "catalogue entry");

#endif
