// SPDX-License-Identifier: Apache-2.0
#include "sample.h"

static uint64_t multiply(uint64_t a, uint64_t b) {
    return (uint64_t)((unsigned __int128)a * b >> 63);
}

#define HALVINGS 16

/* For y = x / 2^16, d = 1 - exp(-y) by its series to y^3 (y < 7e-4, so the next term is below 1e-14); then
 * 1 - exp(-2y) = 2d - d^2, sixteen times. No digits are lost for small x, as they would be in 1 - exp(-x). */
probability sample_probability(uint64_t bytes, unsigned shift) {
    if (bytes >> shift >= 44)
        return PROBABILITY_ONE; /* exp(-44) is below 2^-63 */
    uint64_t y = bytes << (63 - HALVINGS - shift);
    uint64_t square = multiply(y, y);
    uint64_t d = y - square / 2 + multiply(square, y) / 6;
    for (int i = 0; i < HALVINGS; i++)
        d = 2 * d - multiply(d, d);
    return d < PROBABILITY_ONE ? d : PROBABILITY_ONE;
}

#define LOG_BITS 24

/* -log2(u) in 32.32 for u = random / 2^64: leading zeros, then one binary digit per squaring of the mantissa. */
static uint64_t minus_log2(uint64_t random) {
    unsigned zeros = (unsigned)__builtin_clzll(random);
    uint64_t mantissa = random << zeros; /* 1 <= mantissa / 2^63 < 2 */
    uint64_t fraction = 0;
    for (int i = 0; i < LOG_BITS; i++) {
        unsigned __int128 square = (unsigned __int128)mantissa * mantissa >> 63; /* below 4 * 2^63 */
        unsigned digit = (unsigned)(square >> 64);
        fraction = fraction << 1 | digit;
        mantissa = (uint64_t)(square >> digit);
    }
    return ((uint64_t)(zeros + 1) << 32) - (fraction << (32 - LOG_BITS));
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
