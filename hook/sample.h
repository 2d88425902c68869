// SPDX-License-Identifier: Apache-2.0
/*
 * sample.h - which calls are timed, and with which weight they represent all.
 *
 * An allocating call of n bytes pays n + S/128 + 1 out of an exponentially distributed purse of mean S; when
 * the purse is empty the call is sampled and a new one is drawn. The exponential has no memory, so a call is
 * sampled with probability p = 1 - exp(-(n + S/128 + 1)/S) independently of all others: at least about 1/128,
 * near 1 for large blocks. Whatever is summed over sampled calls divided by p estimates the sum over all
 * calls without bias (D. G. Horvitz and D. J. Thompson, JASA 47 (1952), equation 5).
 *
 * Integers only: floating point inside malloc could raise exceptions that the program traps, or set its
 * sticky flags.
 */
#ifndef IMAS_HOOK_SAMPLE_H
#define IMAS_HOOK_SAMPLE_H

#include <stdint.h>

/* A probability: 2^63 is 1. */
typedef uint64_t probability;
#define PROBABILITY_ONE (UINT64_C(1) << 63)

#define SAMPLE_FIRST_SHIFT 12 /* S starts at 4,096 bytes */
#define SAMPLE_LAST_SHIFT 36

/* Next number of a xorshift64* generator (S. Vigna, ACM TOMS 42 (2016)); state must not be 0. */
static inline uint64_t sample_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(0x2545F4914F6CDD1D);
}

/* What each call pays besides its bytes, and 1: S/128. */
#define SAMPLE_TOLL_SHIFT 7

/* 1 - exp(-bytes / 2^shift). */
probability sample_probability(uint64_t bytes, unsigned shift);

/* 1 - (1 - p) exp(-1/128 - 2^-shift): that of a call, where p is that of its bytes. */
probability sample_probability_with_toll(probability p, unsigned shift);

/* An exponentially distributed number of bytes of mean 2^shift. */
uint64_t sample_gap(uint64_t *state, unsigned shift);

/* 256/p, rounded up or down at random so that its mean is exact. */
uint64_t sample_weight(probability p, uint64_t *state);

/* bytes/p. */
uint64_t sample_share(uint64_t bytes, probability p);

/* True with probability part/whole; part <= whole. */
int sample_keep(probability part, probability whole, uint64_t *state);

/* Position of the highest bit: 2^b <= value < 2^(b+1); 0 for 0. */
static inline unsigned sample_log2(uint64_t value) {
    return value == 0 ? 0 : 63u - (unsigned)__builtin_clzll(value);
}

#endif
