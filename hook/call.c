// SPDX-License-Identifier: Apache-2.0
#include "call.h"

#include <errno.h>

#include "boot.h"
#include "full.h"
#include "libc.h"
#include "lineage.h"
#include "live.h"
#include "next.h"
#include "page.h"
#include "plausible.h"
#include "sample.h"
#include "sandbox.h"
#include "snapshot.h"
#include "sys.h"
#include "thread.h"

uint64_t call_empty_pair;

/* ---- making the call ----------------------------------------------------------------------------------- */

static void copy_bytes(void *to, const void *from, size_t bytes) {
    unsigned char *t = to;
    const unsigned char *f = from;
    while (bytes-- > 0)
        *t++ = *f++;
}

static size_t whole_pages(size_t bytes) {
    return bytes > PTRDIFF_MAX ? bytes : (bytes + page_bytes() - 1) & -page_bytes();
}

static void *next_posix_memalign(struct call *call) {
    void *block = NULL;
    call->error = next.posix_memalign(&block, call->alignment, call->size);
    return call->error == 0 ? block : NULL;
}

/* A block of the arena stays where it is, its bytes move to the real allocator. */
static void *leave_arena(const struct call *call) {
    void *block = next.malloc(call->size);
    size_t known = boot_size(call->old);
    if (block != NULL)
        copy_bytes(block, call->old, known < call->size ? known : call->size);
    return block;
}

static NOINLINE void *perform_other(struct call *call) {
    switch (call->kind) {
    case CALL_MALLOC:
        return next.malloc(call->size);
    case CALL_CALLOC:
        return next.calloc(call->count, call->size);
    case CALL_REALLOC:
        return unlikely(call->old != NULL && boot_owns(call->old)) ? leave_arena(call) : next.realloc(call->old, call->size);
    case CALL_MEMALIGN:
        return next.memalign(call->alignment, call->size);
    case CALL_POSIX_MEMALIGN:
        return next_posix_memalign(call);
    case CALL_ALIGNED_ALLOC:
        return next.aligned_alloc(call->alignment, call->size);
    case CALL_VALLOC:
        return next.valloc(call->size);
    case CALL_PVALLOC:
        return next.pvalloc != NULL ? next.pvalloc(call->size) : next.memalign(page_bytes(), whole_pages(call->size));
    }
    return NULL;
}

/* Whether the call is made by a single call of the next function. */
static bool is_plain(const struct call *call) {
    if (call->kind == CALL_REALLOC)
        return call->old == NULL || !boot_owns(call->old);
    return call->kind == CALL_MALLOC || call->kind == CALL_CALLOC;
}

static inline void *perform(struct call *call) {
    if (call->kind == CALL_MALLOC)
        return next.malloc(call->size);
    return perform_other(call);
}

/* ---- before the constructor ---------------------------------------------------------------------------- */

static size_t power_of_two_from(size_t alignment) {
    return alignment <= 16 ? 16 : (size_t)1 << (64 - __builtin_clzl(alignment - 1));
}

static void *boot_realloc(const struct call *call) {
    if (call->old == NULL)
        return boot_allocate(16, call->size);
    if (!boot_owns(call->old) || call->size == 0)
        return NULL; /* not a block of ours: its size is not known */
    if (call->size <= boot_size(call->old))
        return call->old;
    void *block = boot_allocate(16, call->size);
    if (block != NULL)
        copy_bytes(block, call->old, boot_size(call->old));
    return block;
}

static size_t boot_alignment(const struct call *call) {
    switch (call->kind) {
    case CALL_MEMALIGN:
    case CALL_POSIX_MEMALIGN:
    case CALL_ALIGNED_ALLOC:
        return power_of_two_from(call->alignment);
    case CALL_VALLOC:
    case CALL_PVALLOC:
        return page_bytes();
    default:
        return 16;
    }
}

static void *boot_call(struct call *call) {
    void *block = call->kind == CALL_REALLOC ? boot_realloc(call) : boot_allocate(boot_alignment(call), call->bytes);
    bool refused = block == NULL && call->bytes != 0;
    if (call->kind == CALL_POSIX_MEMALIGN)
        call->error = refused ? ENOMEM : 0;
    else if (refused)
        errno = ENOMEM;
    return block;
}

/* From an IFUNC resolver of a library that was relocated before us. */
static NOINLINE void *call_in_relocation(struct call *call) {
    next_note_call_in_relocation();
    return boot_call(call);
}

/* ---- counting ------------------------------------------------------------------------------------------ */

static enum imas_op class_of(enum call_kind kind) {
    if (kind == CALL_MALLOC || kind == CALL_CALLOC)
        return IMAS_OP_MALLOC;
    return kind == CALL_REALLOC ? IMAS_OP_REALLOC : IMAS_OP_MEMALIGN;
}

static bool was_refused(const struct call *call, const void *block) {
    return block == NULL && call->bytes != 0;
}

/* A thread's own slot has one writer: no atomic instruction is needed. */
static void count_own(struct imas_slot *slot, const struct call *call) {
    slot->calls[class_of(call->kind)]++;
    slot->bytes_requested += call->bytes;
}

static void count_shared(struct imas_slot *slot, const struct call *call) {
    add_relaxed(slot->calls[class_of(call->kind)], 1);
    add_relaxed(slot->bytes_requested, call->bytes);
}

static void count(const struct thread *thread, const struct call *call) {
    if (thread->mode == THREAD_SHARED)
        count_shared(thread->slot, call);
    else
        count_own(thread->slot, call);
}

/* The allocator refused: the bytes, often absurdly many, are subtracted again. */
static void count_refusal(const struct thread *thread, const struct call *call) {
    add_relaxed(thread->slot->refused, 1);
    add_relaxed(thread->slot->bytes_requested, (uint64_t)0 - call->bytes);
}

/* ---- sampling ------------------------------------------------------------------------------------------ */

/*
 * Between two clock reads there is only the call, and all of it lies in one line of the instruction cache.
 * Code that runs once in a hundred calls is neither cached nor predicted in a large program, and a fetched
 * line or a mispredicted branch between the reads costs as much as a malloc. Hence one function for each kind
 * of call, without a shared end.
 */
#define CLOCKED NOINLINE __attribute__((aligned(64)))

static CLOCKED void *clocked_malloc(struct call *call, uint64_t *ticks) {
    uint64_t start = ticks_now();
    void *block = full_sampled(IMAS_OP_MALLOC, NULL, call->bytes, next.malloc(call->size));
    *ticks = ticks_now() - start;
    return block;
}

static CLOCKED void *clocked_calloc(struct call *call, uint64_t *ticks) {
    uint64_t start = ticks_now();
    void *block = full_sampled(IMAS_OP_MALLOC, NULL, call->bytes, next.calloc(call->count, call->size));
    *ticks = ticks_now() - start;
    return block;
}

static CLOCKED void *clocked_realloc(struct call *call, uint64_t *ticks) {
    uint64_t start = ticks_now();
    void *block = full_sampled(IMAS_OP_REALLOC, call->old, call->bytes, next.realloc(call->old, call->size));
    *ticks = ticks_now() - start;
    return block;
}

static CLOCKED uint64_t clocked_free(void *block) {
    uint64_t start = ticks_now();
    full_free_sampled(block);
    return ticks_now() - start;
}

static void *clocked_other(struct call *call, uint64_t *ticks) {
    uint64_t start = ticks_now();
    void *block = full_sampled(class_of(call->kind), call->old, call->bytes, perform_other(call));
    *ticks = ticks_now() - start;
    return block;
}

static void *clocked(struct call *call, uint64_t *ticks) {
    if (!is_plain(call))
        return clocked_other(call, ticks);
    if (call->kind == CALL_MALLOC)
        return clocked_malloc(call, ticks);
    return call->kind == CALL_CALLOC ? clocked_calloc(call, ticks) : clocked_realloc(call, ticks);
}

static void note_time(enum imas_op op, uint64_t bytes, uint64_t ticks, uint64_t weight) {
    if (sandbox_entered())
        return;
    struct imas_sampled_op *sampled = &thread_page->sampled.op[op];
    unsigned bucket = sample_log2(ticks > call_empty_pair ? ticks - call_empty_pair : 0);
    full_noted(op, bytes, ticks, weight);
    add_relaxed(sampled->sampled, 1);
    if (likely(plausible_duration(ticks, bytes))) {
        add_relaxed(sampled->weight, weight);
        add_relaxed(sampled->ticks, weight * ticks / IMAS_WEIGHT_ONE);
    }
    add_relaxed(sampled->histogram[bucket < IMAS_LATENCY_BUCKETS ? bucket : IMAS_LATENCY_BUCKETS - 1], weight);
}

static void note_sizes(uint64_t requested, uint64_t usable, uint64_t weight) {
    struct imas_sampled *sampled = &thread_page->sampled;
    add_relaxed(sampled->size_histogram[sample_log2(requested)], weight);
    add_relaxed(sampled->requested_bytes_256, weight * requested);
    add_relaxed(sampled->usable_bytes_256, weight * usable);
}

/* live_take, but not out of the parent's sums in a child for which no fork handler ran. */
static bool take_known(const void *block, struct live_block *taken) {
    if (unlikely(thread_counting && !page_is_ours()))
        lineage_lost();
    return live_take(block, taken);
}

/* Makes the call between two clock reads. The old block of a realloc leaves the live table before its address
 * can be handed to another thread, and comes back if the call fails. */
static void *perform_timed(struct call *call, uint64_t *ticks) {
    struct live_block old;
    bool known = call->kind == CALL_REALLOC && live_maybe(call->old) && take_known(call->old, &old);
    void *block;
    if (unlikely(sandbox_entered())) { /* reading the clock could end the process */
        *ticks = 0;
        block = full_call(class_of(call->kind), call->old, call->bytes, perform(call));
    } else {
        block = clocked(call, ticks);
        full_timed(class_of(call->kind), call->bytes, *ticks);
    }
    if (known && was_refused(call, block))
        live_put_back(call->old, &old);
    return block;
}

#define SAMPLES_PER_CHECK 256
#define CALLS_PER_SAMPLE 40
#define COARSEST_BY_RATE 14 /* S of 16 KiB: coarser, the live bytes of small heaps would blur */

/* A program with large blocks and a small heap would have every second call sampled: S grows until it is 1 in
 * 40. */
static void hold_rate(struct thread *thread) {
    if (++thread->samples < SAMPLES_PER_CHECK || thread->mode != THREAD_OWN)
        return;
    const uint64_t *calls = thread->slot->calls;
    uint64_t made = calls[IMAS_OP_MALLOC] + calls[IMAS_OP_REALLOC] + calls[IMAS_OP_MEMALIGN];
    if (made - thread->calls_at_check < SAMPLES_PER_CHECK * CALLS_PER_SAMPLE && live_shift() < COARSEST_BY_RATE)
        live_coarsen(&thread->random);
    thread->calls_at_check = made;
    thread->samples = 0;
}

static void note_sample(struct thread *thread, const struct call *call, void *block, uint64_t ticks,
                        const struct live_chance *chance) {
    uint64_t weight = sample_weight(chance->sampled, &thread->random);
    note_time(class_of(call->kind), call->bytes, ticks, weight);
    if (block == NULL)
        return;
    uint64_t usable = next.usable_size(block);
    note_sizes(call->bytes, usable, weight);
    live_enter(block, call->bytes, usable, chance, &thread->random);
    hold_rate(thread);
}

/* The toll of a thread that shares a slot stays zero, so that its calls always come here; it pays the
 * same. */
static uint64_t price(const struct thread *thread, const struct call *call) {
    return call->bytes + thread_toll(thread);
}

static struct live_chance chance_of(const struct call *call, unsigned shift) {
    struct live_chance chance = {.shift = shift, .bytes = sample_probability(call->bytes, shift)};
    chance.sampled = sample_probability_with_toll(chance.bytes, shift);
    return chance;
}

/* All that can wait is done after the call: work before it would evict the call's code and data from the
 * caches. */
static void *sampled_call(struct thread *thread, struct call *call) {
    unsigned shift = thread->shift;
    thread_refill(thread); /* before the call: a signal handler that runs in between finds a full purse */
    count(thread, call);
    uint64_t ticks;
    void *block = perform_timed(call, &ticks);
    if (was_refused(call, block))
        count_refusal(thread, call);
    if (unlikely(!page_is_ours())) {
        lineage_lost();
        return block;
    }
    struct live_chance chance = chance_of(call, shift);
    note_sample(thread, call, block, ticks, &chance);
    bool may_ask = call->kind == CALL_MALLOC; /* an allocator may hold its locks while it starts a thread, for which libc calls calloc */
    snapshot_if_due(may_ask);
    if (may_ask)
        full_look();
    return block;
}

/* ---- the ways in --------------------------------------------------------------------------------------- */

static void *perform_untimed(struct call *call) {
    struct live_block old;
    bool known = call->kind == CALL_REALLOC && live_maybe(call->old) && take_known(call->old, &old);
    void *block = full_call(class_of(call->kind), call->old, call->bytes, perform(call));
    if (known && was_refused(call, block))
        live_put_back(call->old, &old);
    return block;
}

static void *shared_call(struct thread *thread, struct call *call) {
    thread->gap = 0;
    if (overdraw64(&thread->shared_gap, price(thread, call)))
        return sampled_call(thread, call);
    count_shared(thread->slot, call);
    return perform_untimed(call);
}

static void *first_call(struct thread *thread, struct call *call) {
    thread->gap = 0;
    if (!next_found())
        return next_serves_early() ? perform(call) : boot_call(call);
    thread_enter(thread);
    return call_make(call);
}

NOINLINE void *call_overdrawn(struct call *call) {
    struct thread *thread = &thread_self;
    if (unlikely(!libc_is_reached()))
        return call_in_relocation(call);
    switch (thread->mode) {
    case THREAD_OWN:
        return sampled_call(thread, call);
    case THREAD_SHARED:
        return shared_call(thread, call);
    case THREAD_IDLE:
        thread->gap = UINT64_MAX / 2;
        return perform_untimed(call);
    default:
        return first_call(thread, call);
    }
}

NOINLINE void *call_make(struct call *call) {
    struct thread *thread = &thread_self;
    if (unlikely(!libc_is_reached()) || overdraw64(&thread->gap, call->bytes + thread->toll))
        return call_overdrawn(call);
    count_own(thread->slot, call);
    return perform_untimed(call);
}

/* ---- free ---------------------------------------------------------------------------------------------- */

/* bytes: of the block; 0 where they are not known without asking the allocator. */
static void timed_free(void *block, uint64_t bytes, uint64_t weight) {
    if (unlikely(sandbox_entered())) {
        full_free(block);
        return;
    }
    uint64_t ticks = clocked_free(block);
    full_timed(IMAS_OP_FREE, bytes, ticks);
    note_time(IMAS_OP_FREE, bytes, ticks, weight);
}

static void sampled_free(struct thread *thread, void *block) {
    thread_refill_free(thread);
    timed_free(block, 0, (uint64_t)THREAD_FREE_MEAN * IMAS_WEIGHT_ONE);
}

static void shared_free(struct thread *thread, void *block) {
    thread->free_gap = 0;
    add_relaxed(thread->slot->calls[IMAS_OP_FREE], 1);
    if (overdraw32(&thread->shared_free_gap))
        sampled_free(thread, block);
    else
        full_free(block);
}

static void free_unmarked(void *block) {
    struct thread *thread = &thread_self;
    if (unlikely(overdraw32(&thread->free_gap))) {
        call_free_overdrawn(block);
        return;
    }
    thread->slot->calls[IMAS_OP_FREE]++;
    full_free(block);
}

NOINLINE void call_free_overdrawn(void *block) {
    struct thread *thread = &thread_self;
    if (unlikely(!libc_is_reached()))
        return; /* no block of ours: see below */
    switch (thread->mode) {
    case THREAD_OWN:
        thread->slot->calls[IMAS_OP_FREE]++;
        sampled_free(thread, block);
        return;
    case THREAD_SHARED:
        shared_free(thread, block);
        return;
    case THREAD_IDLE:
        thread->free_gap = UINT32_MAX;
        full_free(block);
        return;
    default:
        thread->free_gap = 0;
        if (!next_found()) {
            /* else neither of the arena nor of a known allocator: losing it is better than freeing it in the wrong one */
            if (next_found_early())
                next.free(block);
            return;
        }
        thread_enter(thread);
        free_unmarked(block);
    }
}

NOINLINE void call_free_marked(void *block) {
    struct live_block taken;
    if (boot_owns(block))
        return;
    /* Large blocks take long to free: if 1 in 128 were timed, the mean would depend on those few. */
    if (take_known(block, &taken) && live_was_certain(&taken) && thread_self.slot != NULL && page_is_ours()) {
        add_relaxed(thread_self.slot->calls[IMAS_OP_FREE], 1);
        timed_free(block, taken.usable, IMAS_WEIGHT_ONE);
        return;
    }
    free_unmarked(block);
}
