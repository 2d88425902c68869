// SPDX-License-Identifier: Apache-2.0
#include "sample.h"

static uint64_t multiply(uint64_t a, uint64_t b) {
    return (uint64_t)((unsigned __int128)a * b >> 63);
}

/* exp(-k/16), k from 0 to 63. */
static const probability exponentials[64] = {
    UINT64_C(0x8000000000000000), UINT64_C(0x783eafef1c0a9000), UINT64_C(0x70f5a893b6088800), UINT64_C(0x6a1da04b021df000),
    UINT64_C(0x63afbe7ab2082c00), UINT64_C(0x5da594b7c8bdf800), UINT64_C(0x57f91857a63a3c00), UINT64_C(0x52a49c64dbf42400),
    UINT64_C(0x4da2cbf1be582800), UINT64_C(0x48eea4c3055a2c00), UINT64_C(0x4483724d264fa000), UINT64_C(0x405cc8ff64008000),
    UINT64_C(0x3c7681d7df9afc00), UINT64_C(0x38ccb63c3e3c1a00), UINT64_C(0x355bbc12bb5a9600), UINT64_C(0x32202217c0d2ec00),
    UINT64_C(0x2f16ac6c59de7000), UINT64_C(0x2c3c515a0f1efe00), UINT64_C(0x298e3648ef564000), UINT64_C(0x2709ace4ba906600),
    UINT64_C(0x24ac306e54b09e00), UINT64_C(0x22736336d0989000), UINT64_C(0x205d0c418ec05800), UINT64_C(0x1e67150b112b0200),
    UINT64_C(0x1c8f87724b5c1d00), UINT64_C(0x1ad48bc25771c700), UINT64_C(0x193466da99ee6400), UINT64_C(0x17ad78737c2e8200),
    UINT64_C(0x163e397e02207300), UINT64_C(0x14e53a9c9ab08600), UINT64_C(0x13a122b3a399d500), UINT64_C(0x1270ad903100b900),
    UINT64_C(0x1152aaa3bf81cc00), UINT64_C(0x1045fbd38c4c7300), UINT64_C(0x0f49945a6287b600), UINT64_C(0x0e5c77bbbfb6e300),
    UINT64_C(0x0d7db8c7422bfb80), UINT64_C(0x0cac78ab64e15700), UINT64_C(0x0be7e6169b628900), UINT64_C(0x0b2f3c65eecde080),
    UINT64_C(0x0a81c2e04a7a1280), UINT64_C(0x09decbfdb37c4980), UINT64_C(0x0945b4b9b236c100), UINT64_C(0x08b5e3f0404aff80),
    UINT64_C(0x082ec9c497d00800), UINT64_C(0x07afdf114a8efe00), UINT64_C(0x0738a4e111516cc0), UINT64_C(0x06c8a3efcc0547c0),
    UINT64_C(0x065f6c3333ac2bc0), UINT64_C(0x05fc946ac6bddec0), UINT64_C(0x059fb9b67fe11f00), UINT64_C(0x05487f33eda8ab00),
    UINT64_C(0x04f68da148640b40), UINT64_C(0x04a9930629122700), UINT64_C(0x046142618a255580), UINT64_C(0x041d535cc012da40),
    UINT64_C(0x03dd82031c9fecc0), UINT64_C(0x03a18e7df4899460), UINT64_C(0x03693cd4c3875520), UINT64_C(0x033454b12ec75b60),
    UINT64_C(0x0302a126a9e1a520), UINT64_C(0x02d3f07d85e26960), UINT64_C(0x02a8140135765c40), UINT64_C(0x027edfd19478d9a0),
};
#define EXP_4 UINT64_C(0x02582ab704279e80)
#define EXP_TOLL UINT64_C(0x7f00ff55aa889400) /* exp(-1/128) */
_Static_assert(SAMPLE_TOLL_SHIFT == 7, "EXP_TOLL");

/* 1 - exp(-y) for y = x / 2^63 below 1/16, by its series; the next term is y * 1.3e-7. */
static probability small_probability(uint64_t y) {
    uint64_t square = multiply(y, y);
    uint64_t cube = multiply(square, y);
    return y - square / 2 + cube / 6 - multiply(cube, y) / 24;
}

/* With y = k/16 + rest: 1 - exp(-y) = 1 - exp(-k/16) (1 - d), d = 1 - exp(-rest). Below 1/16 it is d itself:
 * no digits are lost for small y, as they would be in 1 - exp(-y). */
probability sample_probability(uint64_t bytes, unsigned shift) {
    if (bytes >> shift >= 44)
        return PROBABILITY_ONE; /* exp(-44) is below 2^-63 */
    probability whole = PROBABILITY_ONE;
    for (; bytes >> shift >= 4; bytes -= UINT64_C(4) << shift)
        whole = multiply(whole, EXP_4);
    uint64_t sixteenths = bytes >> (shift - 4);
    probability d = small_probability((bytes << (63 - shift)) & (PROBABILITY_ONE / 16 - 1));
    if (sixteenths == 0 && whole == PROBABILITY_ONE)
        return d;
    return PROBABILITY_ONE - multiply(multiply(whole, exponentials[sixteenths]), PROBABILITY_ONE - d);
}

/* exp(-1/S) = 1 - 1/S + 1/(2 S^2), to 1e-11. */
probability sample_probability_with_toll(probability p, unsigned shift) {
    probability spared = multiply(PROBABILITY_ONE - p, EXP_TOLL);
    spared = spared - (spared >> shift) + (spared >> (2 * shift + 1));
    return PROBABILITY_ONE - spared;
}

static int64_t scale(int64_t a, int64_t b) {
    return a * b >> 32;
}

/* log2(1 + f), f and the answer in 0.32, as f + f(1-f)q(f): exact at both ends, and within 5e-5 between with
 * this q, which goes through the function at the four Chebyshev nodes of [0, 1]. */
static uint64_t log2_of_1_plus(int64_t f) {
    const int64_t q0 = 1900173326, q1 = -1157828758, q2 = 646535156, q3 = -192732170;
    int64_t q = q0 + scale(q1 + scale(q2 + scale(q3, f), f), f);
    int64_t bend = (int64_t)((uint64_t)f * ((UINT64_C(1) << 32) - (uint64_t)f) >> 32);
    return (uint64_t)(f + scale(bend, q));
}

/* -log2(random / 2^64) in 32.32. */
static uint64_t minus_log2(uint64_t random) {
    unsigned zeros = (unsigned)__builtin_clzll(random);
    uint64_t f = random << zeros << 1 >> 32; /* after the leading 1 */
    return ((uint64_t)(zeros + 1) << 32) - log2_of_1_plus((int64_t)f);
}

uint64_t sample_gap(uint64_t *state, unsigned shift) {
    const uint64_t ln2 = 2977044472; /* ln 2 in 0.32 */
    uint64_t log2 = minus_log2(sample_random(state) | 1);
    return (uint64_t)((unsigned __int128)log2 * ln2 >> (64 - shift));
}

uint64_t sample_weight(probability p, uint64_t *state) {
    uint64_t divisor = p >> 8;
    uint64_t weight = PROBABILITY_ONE / divisor;
    uint64_t rest = PROBABILITY_ONE - weight * divisor;
    return weight + (multiply(sample_random(state) >> 1, divisor) < rest);
}

uint64_t sample_share(uint64_t bytes, probability p) {
    uint64_t weight = PROBABILITY_ONE / (p >> 24); /* 1/p in 40.24 */
    return (uint64_t)((unsigned __int128)bytes * weight >> 24);
}

int sample_keep(probability part, probability whole, uint64_t *state) {
    return multiply(sample_random(state) >> 1, whole) < part;
}
