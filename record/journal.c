// SPDX-License-Identifier: Apache-2.0
#include "journal.h"

#include "../hook/sandbox.h"
#include "raw_file.h"
#include "resident.h"

#define BUFFER_WORDS (IMAS_RECORD_BUFFER_BYTES / sizeof(uint64_t))
#define STAMP_WORDS 512
/* A program that makes few calls is looked at as well: its first stamps are closer together. */
#define FIRST_STAMP_WORDS 4
#define FIRST_STAMPS 64
#define SPINS 100
#define YIELDS 100
#define LONGEST_PAUSE_NS 1000000
_Static_assert(BUFFER_WORDS > 2 * (STAMP_WORDS + JOURNAL_SLACK), "room for stamps");

/* Words of calls before the constructor: constructors of other libraries run earlier. */
static uint64_t early_words[BUFFER_WORDS];
static struct journal early = {
    .next = early_words,
    .stop = early_words + BUFFER_WORDS - JOURNAL_SLACK,
    .phase = IMAS_WORD_PHASE,
    .buffer = early_words,
};
static struct journal off; /* never has room */
struct journal *journal = &early;

static const char several_threads;
const char *journal_single = &several_threads;
__thread struct journal_thread journal_self;
void (*journal_new_thread)(void);

static struct raw_file file;
static uint32_t threads;
static uint64_t early_lost;

/* ---- words --------------------------------------------------------------------------------------------- */

/* In the child of a signal handler that forked meanwhile, the kernel has cleared the page (journal.h). `next` is
 * read first: if `buffer` is still there afterwards, `next` leads into a buffer, which stays mapped. */
static void put(struct journal *to, uint64_t word) {
    uint64_t *next = get_relaxed(to->next);
    journal_barrier();
    if (unlikely(get_relaxed(to->buffer) == NULL))
        return;
    *next = word | to->phase;
    to->next = next + 1;
}

static void put_value(struct journal *to, enum imas_word kind, uint64_t value) {
    put(to, (uint64_t)kind << IMAS_WORD_KIND_SHIFT | (value & IMAS_WORD_VALUE_MASK));
}

static void put_thread(struct journal *to) {
    if (to->thread == journal_self.number)
        return;
    to->thread = journal_self.number;
    put_value(to, IMAS_WORD_THREAD, to->thread);
}

static void put_call(struct journal *to, enum imas_word kind, const void *block, uint64_t size, uint64_t aligned) {
    if (aligned != 0)
        put_value(to, IMAS_WORD_ALIGNED, aligned);
    if (size >= IMAS_WORD_SIZE_MOST) {
        put_value(to, IMAS_WORD_LARGE, size < IMAS_WORD_VALUE_MASK ? size : IMAS_WORD_VALUE_MASK);
        size = IMAS_WORD_SIZE_MOST;
    }
    put(to, journal_word(kind, block, size));
}

static void put_stamp(struct journal *to, bool at_end) {
    struct resident_look look;
    const struct imas_record_header *header = file.header;
    uint64_t now = sys_monotonic_ns();
    if (header == NULL) /* a child that could make no file, see put */
        return;
    put_value(to, IMAS_WORD_TIME, now - header->made_ns);
    if (!resident_look(&look, now, at_end))
        return;
    put_value(to, IMAS_WORD_CPU, look.cpu_ns);
    put_value(to, IMAS_WORD_RESIDENT, look.pages);
}

/* ---- the lock ------------------------------------------------------------------------------------------ */

/* A thread of real-time priority must sleep: when it yields, the holder of the lock still does not run. In a
 * sandbox, no system call is made. */
static void wait_for_lock(unsigned tries) {
    if (tries <= SPINS || sandbox_entered())
        return;
    if (tries <= SPINS + YIELDS) {
        sys0(SYS_sched_yield);
        return;
    }
    unsigned doublings = tries - SPINS - YIELDS;
    struct {
        int64_t seconds, nanoseconds;
    } pause = {0, doublings < 10 ? INT64_C(1000) << doublings : LONGEST_PAUSE_NS};
    sys2(SYS_nanosleep, &pause, NULL);
}

static struct journal *lock(void) {
    for (unsigned tries = 0;; tries++) {
        struct journal *to = __atomic_load_n(&journal, __ATOMIC_ACQUIRE);
        if (to == &off)
            return NULL;
        if (__atomic_exchange_n(&to->lock, 1, __ATOMIC_ACQUIRE) == 0) {
            if (likely(to == __atomic_load_n(&journal, __ATOMIC_RELAXED)))
                return to;
            __atomic_store_n(&to->lock, 0, __ATOMIC_RELEASE); /* it was replaced meanwhile */
        } else {
            wait_for_lock(tries);
        }
    }
}

static void unlock(struct journal *to) {
    __atomic_store_n(&to->lock, 0, __ATOMIC_RELEASE);
}

static void turn_off(enum imas_record_stop why) {
    if (file.header != NULL)
        set_relaxed(file.header->stop, (uint32_t)why);
    __atomic_store_n(&journal, &off, __ATOMIC_RELEASE);
}

/* ---- no room ------------------------------------------------------------------------------------------- */

static void set_stop(struct journal *to) {
    if (to->buffer == NULL)
        return; /* see put */
    uint64_t *last = to->buffer + BUFFER_WORDS - JOURNAL_SLACK;
    ptrdiff_t gap = to->stamps < FIRST_STAMPS ? FIRST_STAMP_WORDS : STAMP_WORDS;
    to->stop = last - to->next > gap ? to->next + gap : last;
}

/* Each buffer begins with the number of the thread: a call follows, and put_thread finds no number. */
static enum imas_record_stop begin_turn(struct journal *to) {
    while (to->buffer != NULL && to->next < to->buffer + BUFFER_WORDS)
        put(to, 0);
    if (to->buffer == NULL)
        return IMAS_RECORD_FILE;
    enum imas_record_stop why = raw_file_append(&file, to->buffer, IMAS_RECORD_BUFFER_BYTES);
    if (why != IMAS_RECORD_RUNS)
        return why;
    to->next = to->buffer;
    to->phase ^= IMAS_WORD_PHASE;
    to->thread = 0;
    return IMAS_RECORD_RUNS;
}

static enum imas_record_stop make_room(struct journal *to) {
    if (sandbox_entered())
        return IMAS_RECORD_SANDBOX;
    put_stamp(to, false);
    to->stamps++;
    if (raw_file_is_over(&file))
        return IMAS_RECORD_TIME;
    if (to->buffer + BUFFER_WORDS - to->next <= JOURNAL_SLACK) {
        enum imas_record_stop why = begin_turn(to);
        if (why != IMAS_RECORD_RUNS)
            return why;
    }
    set_stop(to);
    return IMAS_RECORD_RUNS;
}

/* Whether there is room; locked. */
static bool has_room(struct journal *to) {
    if (likely(to->next < to->stop))
        return true;
    /* The early buffer is full. Either the constructor has replaced it by the file already, or the call is
     * lost. */
    if (to == &early) {
        add_relaxed(early_lost, 1);
        return false;
    }
    /* A signal handler forked since lock(): the child has a journal of its own by now. */
    if (to != __atomic_load_n(&journal, __ATOMIC_RELAXED))
        return false;
    /* The kernel cleared the page: this is a child without fork handlers. The file belongs to its parent. */
    if (to->buffer == NULL)
        file.header = NULL;
    enum imas_record_stop why = to->buffer == NULL ? IMAS_RECORD_FILE : make_room(to);
    /* A handler that forked may have begun a journal of the child's own, which goes on. */
    if (why != IMAS_RECORD_RUNS && to == __atomic_load_n(&journal, __ATOMIC_RELAXED))
        turn_off(why);
    return why == IMAS_RECORD_RUNS;
}

/* ---- the ways in --------------------------------------------------------------------------------------- */

static void enter_thread(struct journal_thread *self) {
    self->number = add_relaxed(threads, 1) + 1;
    if (file.header != NULL)
        add_relaxed(file.header->threads, 1);
    void (*watch)(void) = __atomic_load_n(&journal_new_thread, __ATOMIC_ACQUIRE);
    if (self->number > 1 && watch != NULL)
        watch();
}

static void lose(void) {
    if (file.header != NULL)
        add_relaxed(file.header->lost, 1);
}

NOINLINE void journal_write(enum imas_word kind, const void *block, uint64_t size, uint64_t aligned) {
    struct journal_thread *self = &journal_self;
    if (__atomic_load_n(&journal, __ATOMIC_RELAXED) == &off)
        return;
    if (self->busy != 0) {
        lose();
        return;
    }
    self->busy = 1;
    if (unlikely(self->number == 0))
        enter_thread(self);
    struct journal *to = lock();
    if (to != NULL) {
        if (has_room(to)) {
            put_thread(to);
            put_call(to, kind, block, size, aligned);
        }
        unlock(to);
    }
    journal_barrier();
    self->busy = 0;
}

void journal_thread_end(void) {
    struct journal_thread *self = &journal_self;
    if (self->number == 0 || self->busy != 0)
        return;
    self->busy = 1;
    struct journal *to = lock();
    if (to != NULL) {
        if (has_room(to)) {
            put_thread(to);
            put_value(to, IMAS_WORD_THREAD_END, 0);
        }
        unlock(to);
    }
    journal_barrier();
    self->busy = 0;
}

/* A child without fork handlers, or of a process that stopped recording, still has its parent's header. */
static bool is_of_parent(const struct imas_record_header *header) {
    return (long)header->pid != sys0(SYS_getpid);
}

void journal_at_exit(void) {
    struct imas_record_header *header = file.header;
    if (header == NULL || sandbox_entered() || journal_self.busy != 0 || is_of_parent(header))
        return;
    journal_self.busy = 1;
    struct journal *to = lock();
    if (to != NULL) {
        if (to != &early && has_room(to))
            put_stamp(to, true);
        unlock(to);
    }
    set_relaxed(header->ended, 1);
    journal_barrier();
    journal_self.busy = 0;
}

/* ---- beginning and fork -------------------------------------------------------------------------------- */

/* Copies earlier words into the new buffer, with the new phase. */
static void carry_over(struct journal *to, const struct journal *from) {
    for (const uint64_t *word = from->buffer; word < from->next; word++)
        put(to, *word & ~IMAS_WORD_PHASE);
    to->thread = from->thread;
}

static struct journal *new_journal(void) {
    /* MADV_WIPEONFORK, since Linux 4.14. Before, children are only noticed by fork handlers. */
    const int wipe_on_fork = 18;
    struct journal *to = sys_anonymous(4096);
    if (to == NULL)
        return NULL;
    sys3(SYS_madvise, to, 4096, wipe_on_fork);
    to->buffer = file.buffer;
    to->next = to->buffer;
    to->phase = IMAS_WORD_PHASE;
    return to;
}

/* The caller holds the lock of `from`. NULL: there are no earlier words. */
static bool begin(const struct journal *from) {
    struct journal *to = new_journal();
    if (to == NULL)
        return false;
    if (from != NULL)
        carry_over(to, from);
    put_stamp(to, true);
    set_stop(to);
    file.header->threads = threads;
    file.header->lost = early_lost;
    __atomic_store_n(&journal, to, __ATOMIC_RELEASE);
    return true;
}

bool journal_open(const char *control_path) {
    journal_self.busy = 1;
    struct journal *from = lock(); /* constructors of other libraries may have started threads */
    bool begun = from != NULL && raw_file_control(control_path) && raw_file_make(&file, NULL) && begin(from);
    if (!begun)
        turn_off(IMAS_RECORD_FILE);
    if (from != NULL)
        unlock(from);
    journal_barrier();
    journal_self.busy = 0;
    return begun;
}

void journal_stop(enum imas_record_stop why) {
    turn_off(why);
}

/* The parent's buffer stays mapped, because a signal handler that forks may have interrupted a write into
 * it. */
void journal_in_child(void) {
    if (journal == &off)
        return;
    uint32_t parent = file.header != NULL ? file.header->number : 0;
    early_lost = 0;
    threads = 1;
    journal_self = (struct journal_thread){.number = 1, .busy = 1};
    resident_forget();
    if (file.header == NULL || sandbox_entered() || !raw_file_make(&file, &parent) || !begin(NULL)) {
        file.header = NULL;
        turn_off(IMAS_RECORD_FILE);
    } else {
        journal->thread = 1;
    }
    journal_barrier();
    journal_self.busy = 0;
}
