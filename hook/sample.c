// SPDX-License-Identifier: Apache-2.0
#include "sample.h"

static uint64_t multiply(uint64_t a, uint64_t b) {
    return (uint64_t)((unsigned __int128)a * b >> 63);
}

#define SMALL_BITS 7 /* the series is used below 2^-7 */

/* For y = x / 2^k below 2^-7, d = 1 - exp(-y) by its series to y^3 (the next term is y * 2e-8); then
 * 1 - exp(-2y) = 2d - d^2, k times. No digits are lost for small x, as they would be in 1 - exp(-x). */
probability sample_probability(uint64_t bytes, unsigned shift) {
    if (bytes >> shift >= 44)
        return PROBABILITY_ONE; /* exp(-44) is below 2^-63 */
    int halvings = (int)sample_log2(bytes) + 1 + SMALL_BITS - (int)shift;
    if (halvings < 0)
        halvings = 0;
    uint64_t y = bytes << (63 - shift - (unsigned)halvings);
    uint64_t square = multiply(y, y);
    uint64_t d = y - square / 2 + multiply(square, y) / 6;
    for (; halvings > 0; halvings--)
        d = 2 * d - multiply(d, d);
    return d < PROBABILITY_ONE ? d : PROBABILITY_ONE;
}

static int64_t scale(int64_t a, int64_t b) {
    return a * b >> 32;
}

/* log2(1 + f), f and the answer in 0.32, as f + f(1-f)q(f): exact at both ends, and within 5e-5 between with this q,
 * which goes through the function at the four Chebyshev nodes of [0, 1]. */
static uint64_t log2_of_1_plus(int64_t f) {
    const int64_t q0 = 1900173326, q1 = -1157828758, q2 = 646535156, q3 = -192732170;
    int64_t q = q0 + scale(q1 + scale(q2 + scale(q3, f), f), f);
    int64_t bend = (int64_t)((uint64_t)f * ((UINT64_C(1) << 32) - (uint64_t)f) >> 32);
    return (uint64_t)(f + scale(bend, q));
}

/* -log2(random / 2^64) in 32.32. */
static uint64_t minus_log2(uint64_t random) {
    unsigned zeros = (unsigned)__builtin_clzll(random);
    uint64_t f = random << zeros << 1 >> 32; /* behind the leading 1 */
    return ((uint64_t)(zeros + 1) << 32) - log2_of_1_plus((int64_t)f);
}

uint64_t sample_gap(uint64_t *state, unsigned shift) {
    const uint64_t ln2 = 2977044472; /* ln 2 in 0.32 */
    uint64_t log2 = minus_log2(sample_random(state) | 1);
    return (uint64_t)((unsigned __int128)log2 * ln2 >> (64 - shift));
}

uint64_t sample_weight(probability p, uint64_t *state) {
    uint64_t divisor = p >> 8;
    return (PROBABILITY_ONE + sample_random(state) % divisor) / divisor;
}

uint64_t sample_share(uint64_t bytes, probability p) {
    uint64_t weight = PROBABILITY_ONE / (p >> 24); /* 1/p in 40.24 */
    return (uint64_t)((unsigned __int128)bytes * weight >> 24);
}

int sample_keep(probability part, probability whole, uint64_t *state) {
    return multiply(sample_random(state) >> 1, whole) < part;
}
