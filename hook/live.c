// SPDX-License-Identifier: Apache-2.0
#include "live.h"

#include "sys.h"
#include "thread.h"

unsigned char live_filter[1u << LIVE_FILTER_BITS];

/* Blocks go into one of the eight places of a bucket, or of the bucket's neighbour: a search reads two cache
 * lines. */
#define BUCKET 8u
#define BUCKETS 2048u
#define PLACES (BUCKET * BUCKETS)

/* Keys: a block's address, or */
#define EMPTY ((uintptr_t)0)
#define BUSY ((uintptr_t)1)  /* being entered or taken: its owner writes the body */
#define FREED ((uintptr_t)2) /* freed while a sweep held it: the sweep accounts for it */
#define SWEEPING ((uintptr_t)1) /* this bit in an address: a sweep owns the body */

static _Alignas(64) uintptr_t keys[PLACES];
static struct live_block bodies[PLACES];
unsigned live_current_shift = SAMPLE_FIRST_SHIFT;
static bool sweep_taken;

static unsigned char *filter_of(uintptr_t block) {
    return &live_filter[live_hash((const void *)block)];
}

static void filter_add(uintptr_t block) {
    unsigned char *byte = filter_of(block);
    unsigned char seen = get_relaxed(*byte);
    while (seen != LIVE_STICKY && !__atomic_compare_exchange_n(byte, &seen, (unsigned char)(seen + 1), true,
                                                               __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static void filter_drop(uintptr_t block) {
    unsigned char *byte = filter_of(block);
    unsigned char seen = get_relaxed(*byte);
    while (seen != LIVE_STICKY && seen != 0 &&
           !__atomic_compare_exchange_n(byte, &seen, (unsigned char)(seen - 1), true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
}

void live_mark_boot(const void *block) {
    set_relaxed(*filter_of((uintptr_t)block), LIVE_STICKY);
}

static unsigned bucket_of(uintptr_t block) {
    return (unsigned)((block >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 53); /* Fibonacci hashing; 2^11 buckets */
}
_Static_assert(BUCKETS == 1u << 11, "bucket_of");

static bool swap_key(uintptr_t *key, uintptr_t from, uintptr_t to) {
    return __atomic_compare_exchange_n(key, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void set_key(uintptr_t *key, uintptr_t to) {
    __atomic_store_n(key, to, __ATOMIC_RELEASE);
}

static void count_in(const struct live_block *body) {
    struct imas_sampled *sampled = &thread_page->sampled;
    add_relaxed(sampled->live_samples, 1);
    add_relaxed(sampled->live_requested, (int64_t)body->share_requested);
    int64_t live = add_relaxed(sampled->live_bytes, (int64_t)body->share) + (int64_t)body->share;
    if (live > 0)
        raise_to(&thread_page->header.live_bytes_peak, (uint64_t)live);
}

static void count_out(const struct live_block *body) {
    struct imas_sampled *sampled = &thread_page->sampled;
    add_relaxed(sampled->live_samples, (uint64_t)-1);
    add_relaxed(sampled->live_bytes, -(int64_t)body->share);
    add_relaxed(sampled->live_requested, -(int64_t)body->share_requested);
}

/* Place `i` of the sixteen in which a block may stand. */
static unsigned place_of(unsigned bucket, unsigned i) {
    return (bucket ^ i / BUCKET) * BUCKET + i % BUCKET;
}

static bool enter(uintptr_t block, const struct live_block *body) {
    unsigned bucket = bucket_of(block);
    for (unsigned i = 0; i < 2 * BUCKET; i++) {
        unsigned place = place_of(bucket, i);
        if (get_relaxed(keys[place]) != EMPTY || !swap_key(&keys[place], EMPTY, BUSY))
            continue;
        bodies[place] = *body;
        count_in(body);
        filter_add(block);
        set_key(&keys[place], block);
        return true;
    }
    add_relaxed(thread_page->sampled.live_dropped, 1);
    return false;
}

/* One try to take `place`, which held `block`. True when the block is out of the table. */
static bool take_place(unsigned place, uintptr_t block, struct live_block *taken, bool *known) {
    if (swap_key(&keys[place], block, BUSY)) {
        *taken = bodies[place];
        count_out(taken);
        filter_drop(block);
        set_key(&keys[place], EMPTY);
        *known = true;
        return true;
    }
    *known = false;
    return swap_key(&keys[place], block | SWEEPING, FREED);
}

bool live_take(const void *address, struct live_block *taken) {
    uintptr_t block = (uintptr_t)address;
    if (block <= FREED) /* free(NULL): an empty place must not be taken for it */
        return false;
    unsigned bucket = bucket_of(block);
    for (unsigned i = 0; i < 2 * BUCKET; i++) {
        unsigned place = place_of(bucket, i);
        bool known;
        while ((get_relaxed(keys[place]) & ~SWEEPING) == block) {
            if (take_place(place, block, taken, &known))
                return known;
        }
    }
    return false;
}

/* ---- doubling S ---------------------------------------------------------------------------------------- */

/* What becomes of an entry under the new S: false when it is out. */
static bool survives(struct live_block *body, unsigned shift, uint64_t *random) {
    if (body->shift >= shift)
        return true;
    probability before = sample_probability(body->requested, body->shift);
    probability after = sample_probability(body->requested, shift);
    if (!sample_keep(after, before, random))
        return false;
    uint64_t share = sample_share(body->usable, after);
    uint64_t share_requested = sample_share(body->requested, after);
    add_relaxed(thread_page->sampled.live_bytes, (int64_t)(share - body->share));
    add_relaxed(thread_page->sampled.live_requested, (int64_t)(share_requested - body->share_requested));
    body->share = share;
    body->share_requested = share_requested;
    body->shift = shift;
    return true;
}

static void sweep_place(unsigned place, unsigned shift, uint64_t *random) {
    uintptr_t block = get_relaxed(keys[place]);
    if (block <= FREED || !swap_key(&keys[place], block, block | SWEEPING))
        return;
    bool stays = survives(&bodies[place], shift, random);
    if (stays && swap_key(&keys[place], block | SWEEPING, block))
        return;
    /* removed by chance, or freed meanwhile by its owner, who left the sums to us */
    count_out(&bodies[place]);
    filter_drop(block);
    set_key(&keys[place], EMPTY);
}

/* Most are in a small heap, and this is paid within one call. */
static bool is_empty(unsigned bucket) {
    uintptr_t any = EMPTY;
    for (unsigned i = 0; i < BUCKET; i++)
        any |= get_relaxed(keys[bucket * BUCKET + i]);
    return any == EMPTY;
}

static void double_interval(uint64_t *random) {
    unsigned shift = live_shift() + 1;
    if (shift > SAMPLE_LAST_SHIFT)
        return;
    set_relaxed(live_current_shift, shift);
    set_relaxed(thread_page->sampled.sample_interval_bytes, UINT64_C(1) << shift);
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        if (!is_empty(bucket))
            for (unsigned i = 0; i < BUCKET; i++)
                sweep_place(bucket * BUCKET + i, shift, random);
    }
}

/* Skipped while another thread sweeps, or this one does, interrupted by a signal handler. */
void live_coarsen(uint64_t *random) {
    if (__atomic_exchange_n(&sweep_taken, true, __ATOMIC_ACQUIRE))
        return;
    double_interval(random);
    __atomic_store_n(&sweep_taken, false, __ATOMIC_RELEASE);
}

void live_after_fork(void) {
    sweep_taken = false;
}

/* ---- entering ------------------------------------------------------------------------------------------ */

void live_enter(const void *block, uint64_t requested, uint64_t usable, const struct live_chance *known, uint64_t *random) {
    /* at least 1: a block of no bytes is live too, and a probability of 0 has no share */
    struct live_block body = {.requested = requested != 0 ? requested : 1, .usable = usable, .shift = live_shift()};
    bool same = body.shift == known->shift && requested != 0;
    probability chance = same ? known->bytes : sample_probability(body.requested, body.shift);
    if (!sample_keep(chance, known->sampled, random))
        return;
    struct live_block stale;
    if (live_maybe(block))
        live_take(block, &stale); /* freed unseen, by a library whose calls do not reach us */
    body.share = sample_share(usable, chance);
    body.share_requested = sample_share(body.requested, chance);
    if (enter((uintptr_t)block, &body) && get_relaxed(thread_page->sampled.live_samples) > LIVE_LIMIT)
        live_coarsen(random);
}

void live_put_back(const void *block, const struct live_block *taken) {
    enter((uintptr_t)block, taken);
}
