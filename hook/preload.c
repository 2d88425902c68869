// SPDX-License-Identifier: Apache-2.0
/*
 * preload.c - libimas-preload.so: named in /etc/ld.so.preload, and so loaded into every process of the
 * machine.
 *
 * It defines and needs no symbol, no library, no TLS and no relocation, and makes raw system calls only, so
 * that it can be loaded into any process, whatever its libc. Its constructor runs before all others and looks
 * the executable up in the index (abi/imas_index.h). Nearly always there is no entry, and six system calls
 * were all that happened. Where there is a decision it executes the same file once more under guard or hook
 * (docs/decisions/0007). Whenever anything is not as expected it returns, and the program runs as if we had
 * never been there.
 *
 * It does in the process what `imas run` (crates/imas/src/start/mod.rs) does before it, after a decision made
 * before: index.c finds the decision, interpreter_target.c what an interpreter is to run, service_unit.c the
 * systemd service, started_name.c the name by which the executable was started, ineligible.c finds processes that must not be changed, table.c reads the allocators that
 * root approved, ticket.c makes the page, reexec.c makes the environment and calls exec.
 */
#include <sys/stat.h>

#include "../abi/imas_abi.h"
#include "../abi/imas_index.h"
#include "environment.h"
#include "index.h"
#include "ineligible.h"
#include "interpreter_target.h"
#include "preloaded.h"
#include "reexec.h"
#include "service_unit.h"
#include "start.h"
#include "started_name.h"
#include "sys.h"
#include "table.h"
#include "text.h"
#include "ticket.h"

#define RUN_BYTES 200
#define PATH_BYTES 256

/* Whose decisions are followed. */
struct realm {
    const char *run;
    uid_t owner;
};

static char *join(char to[PATH_BYTES], const char *folder, const char *file) {
    text_copy(to + text_copy(to, PATH_BYTES, folder), PATH_BYTES - RUN_BYTES, file);
    return to;
}

/* The machine's, or the tree of one user, who must own it. */
static bool find_realm(struct realm *realm, const struct start *start) {
    const char *own = environment_value(start->envp, IMAS_ENV_RUN);
    *realm = (struct realm){.run = IMAS_RUN_FOLDER, .owner = 0};
    if (own == NULL)
        return true;
    struct stat folder;
    *realm = (struct realm){.run = own, .owner = start->uid};
    return *own == '/' && text_length(own) < RUN_BYTES && sys4(SYS_newfstatat, AT_FDCWD, own, &folder, 0) == 0 &&
           S_ISDIR(folder.st_mode) && folder.st_uid == start->uid && (folder.st_mode & 022) == 0;
}

/* ---- the decision -------------------------------------------------------------------------------------- */

struct found {
    struct stat executable;
    struct imas_index_entry entry;
    char program[IMAS_PROGRAM_BYTES];
    const char *detail; /* in the words of the command line */
    char unit[UNIT_BYTES];
};

static bool is_the_file(const struct imas_index_entry *entry, const struct stat *file) {
    return entry->exe_bytes == (uint64_t)file->st_size &&
           entry->exe_mtime_ns == (int64_t)file->st_mtim.tv_sec * 1000000000 + file->st_mtim.tv_nsec;
}

#define SELF "/proc/self/exe"

static bool read_program(char program[IMAS_PROGRAM_BYTES]) {
    long length = sys4(SYS_readlinkat, AT_FDCWD, SELF, program, IMAS_PROGRAM_BYTES);
    if (length <= 0 || length >= (long)IMAS_PROGRAM_BYTES)
        return false;
    program[length] = '\0';
    return true;
}

/* Replaces the executable's own entry by that of the program it is given to run, if there is one. */
static void look_closer(struct found *found, const struct index *index, struct index_key key, const struct start *start) {
    struct imas_index_entry closer;
    uint32_t flags = found->entry.flags;
    const char *word = "";
    if ((flags & (IMAS_ENTRY_INTERPRETER | IMAS_ENTRY_JAVA)) != 0 &&
        interpreter_target_find(&key, found->program, start->argc, start->argv, &word) && index_find_for(index, key, &closer)) {
        found->entry = closer;
        found->detail = word;
    } else if ((flags & IMAS_ENTRY_BY_UNIT) != 0 && service_unit_find(&key, found->unit) && index_find_for(index, key, &closer)) {
        found->entry = closer;
        found->detail = found->unit;
    } else if ((flags & IMAS_ENTRY_BY_NAME) != 0 && started_name_find(&key, found->program, start->execfn, &word)) {
        found->entry = index_find_for(index, key, &closer) ? closer : (struct imas_index_entry){.candidate = IMAS_CANDIDATE_SYSTEM};
        found->detail = word;
    }
}

static bool asks_for_something(const struct imas_index_entry *entry) {
    return entry->candidate != IMAS_CANDIDATE_SYSTEM || entry->trial_candidate != 0;
}

static bool look_up(struct found *found, const struct index *index, const struct start *start) {
    if (sys4(SYS_newfstatat, AT_FDCWD, SELF, &found->executable, 0) != 0)
        return false;
    const struct index_key key = {.exe_dev = found->executable.st_dev, .exe_ino = found->executable.st_ino, .uid = start->uid};
    if (!index_find_for(index, key, &found->entry))
        return false;
    const uint32_t distinguished = IMAS_ENTRY_INTERPRETER | IMAS_ENTRY_JAVA | IMAS_ENTRY_BY_UNIT | IMAS_ENTRY_BY_NAME;
    if ((found->entry.flags & distinguished) == 0 && !asks_for_something(&found->entry))
        return false; /* the usual case: `system`, for good */
    if (!read_program(found->program))
        return false;
    found->detail = "";
    look_closer(found, index, key, start);
    return is_the_file(&found->entry, &found->executable) && asks_for_something(&found->entry);
}

/* ---- the start ----------------------------------------------------------------------------------------- */

struct choice {
    struct table table;
    struct imas_catalogue_entry candidate;
};

/* The library that candidates with the flag need: "" for any other, NULL if it is not the one that was approved. */
static const char *needed(const struct choice *choice, uint32_t flag, const char *library, const struct imas_file_identity *approved) {
    if ((choice->candidate.flags & flag) == 0)
        return "";
    return table_approves(library, approved) ? library : NULL;
}

static const char *ours(const struct table *table, bool trial) {
    const struct imas_catalogue_header *header = &table->header;
    if (trial)
        return table_approves(header->hook, &header->hook_identity) ? header->hook : NULL;
    return table_approves(header->guard, &header->guard_identity) ? header->guard : NULL;
}

static void start_under(struct choice *choice, const struct start *start, char **arguments, struct ticket *ticket, bool with_page) {
    const struct imas_catalogue_header *header = &choice->table.header;
    const struct beside beside = {
        .ours = ours(&choice->table, ticket->kind == IMAS_PAGE_TRIAL),
        .settings = needed(choice, IMAS_CANDIDATE_HAS_SETTINGS, header->settings, &header->settings_identity),
    };
    ticket->candidate = choice->candidate.name;
    if (beside.ours != NULL && beside.settings != NULL)
        reexec_start(start, arguments, &choice->candidate, &beside, with_page ? ticket->path : NULL);
}

static bool choose(struct choice *choice, uint32_t id, const struct start *start) {
    return table_candidate(&choice->table, id, &choice->candidate) && !reexec_overrides(&choice->candidate, start);
}

/* True when another process runs the trial. */
static bool try_trial(struct choice *choice, uint32_t candidate, uint64_t token, const struct start *start, char **arguments,
                      struct ticket *ticket, const char *run) {
    if (!choose(choice, candidate, start))
        return false;
    ticket->kind = IMAS_PAGE_TRIAL;
    ticket->token = token;
    ticket->candidate = choice->candidate.name;
    enum ticket_answer answer = ticket_make(ticket, run);
    if (answer == TICKET_MADE) {
        start_under(choice, start, arguments, ticket, true);
        ticket_discard(ticket);
    }
    return answer == TICKET_TAKEN;
}

/* The first trial on offer that no other process runs. True when others run all of them, so that this start is one in production. */
static bool try_trials(struct choice *choice, const struct imas_index_entry *entry, const struct start *start, char **arguments,
                       struct ticket *ticket, const char *run) {
    if (entry->trial_candidate == 0)
        return true;
    bool is_taken = try_trial(choice, entry->trial_candidate, entry->trial_token, start, arguments, ticket, run);
    for (unsigned i = 0; is_taken && i < IMAS_MORE_TRIALS && entry->more_trials[i].candidate != 0; i++) {
        const struct imas_more_trial *more = &entry->more_trials[i];
        is_taken = try_trial(choice, more->candidate, entry->trial_token + more->after, start, arguments, ticket, run);
    }
    return is_taken;
}

static void go_into_production(struct choice *choice, const struct found *found, const struct start *start, char **arguments,
                               struct ticket *ticket, const char *run) {
    if (found->entry.candidate == IMAS_CANDIDATE_SYSTEM || !choose(choice, found->entry.candidate, start))
        return;
    bool with_page = (found->entry.flags & IMAS_ENTRY_FLIGHT) != 0;
    ticket->kind = IMAS_PAGE_FLIGHT;
    ticket->candidate = choice->candidate.name;
    if (with_page && ticket_make(ticket, run) != TICKET_MADE)
        return;
    start_under(choice, start, arguments, ticket, with_page);
    if (with_page)
        ticket_discard(ticket);
}

static void place(struct choice *choice, const struct found *found, const struct start *start, const struct index *index,
                  const char *run) {
    char **arguments;
    if (!reexec_arguments(start, &found->executable, &arguments))
        return;
    struct ticket ticket;
    ticket.uid = start->uid;
    ticket.program_id = found->entry.program_id;
    ticket.boot_id = index->header.boot_id;
    ticket.program = found->program;
    ticket.detail = found->detail;
    if (try_trials(choice, &found->entry, start, arguments, &ticket, run))
        go_into_production(choice, found, start, arguments, &ticket, run);
}

static bool switched_off(const char *run) {
    char path[PATH_BYTES];
    const long no_such_file = -2;
    return sys3(SYS_faccessat, AT_FDCWD, join(path, run, "/disabled"), 0) != no_such_file;
}

/* By /etc/ld.so.preload, where we are too: a candidate in LD_PRELOAD would come before it. */
static bool has_malloc_preloaded(const struct start *start) {
    const struct link_map *program = start_objects(start);
    return program != NULL && preloaded_defines_malloc(program, NULL);
}

/* The expensive checks, made only where there is a decision. */
static void consider(const struct found *found, const struct start *start, const struct index *index, const struct realm *realm) {
    char path[PATH_BYTES];
    struct choice choice;
    if (ineligible_by_environment(start->envp) || ineligible_by_state((found->entry.flags & IMAS_ENTRY_PID1) != 0) ||
        has_malloc_preloaded(start) || switched_off(realm->run) || !table_open(&choice.table, join(path, realm->run, "/catalogue"), realm->owner))
        return;
    if (choice.table.header.catalogue_id == index->header.catalogue_id &&
        index_trusted(index, realm->owner, choice.table.header.daemon_uid))
        place(&choice, found, start, index, realm->run);
    table_close(&choice.table);
}

static void look_and_place(const struct start *start, const struct realm *realm) {
    char path[PATH_BYTES];
    struct index index;
    struct found found;
    if (!index_open(&index, join(path, realm->run, "/state/index")))
        return;
    if (look_up(&found, &index, start))
        consider(&found, start, &index, realm);
    index_close(&index);
}

/* ---- the beginning ------------------------------------------------------------------------------------- */

/* This process has been started again already, or is to run unchanged. Guard and hook remove the mark with
 * the rest of what was set. Where nothing else was set it is removed here, except in a process tree that is
 * to run unchanged. */
static void take_mark_away(char **environment) {
    if (environment_value(environment, IMAS_ENV_UNSET) != NULL || environment_flag(environment, IMAS_ENV_FOLLOW))
        return;
    char **kept = environment;
    for (char **entry = environment; *entry != NULL; entry++) {
        if (text_after(*entry, IMAS_ENV_PLACED "=") == NULL && text_after(*entry, IMAS_ENV_PAD "=") == NULL)
            *kept++ = *entry;
    }
    *kept = NULL;
}

/* DT_INIT: called with the arguments of the program by every loader that passes any; needs no relocation. */
HIDDEN void imas_preload_enter(int argc, char **argv, char **envp) {
    struct start start;
    struct realm realm;
    if (!start_read(&start, argc, argv, envp) || environment_flag(envp, IMAS_ENV_DISABLE))
        return;
    if (environment_value(envp, IMAS_ENV_PLACED) != NULL)
        take_mark_away(envp);
    else if (find_realm(&realm, &start))
        look_and_place(&start, &realm);
}
