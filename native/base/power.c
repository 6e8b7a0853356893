/* power.c: the steps of power.h one priority at a time, and the choice of the batch path.
 *
 * Why it is monotone. The bits of a positive double grow with its value, and so does z, subnormals
 * included. Rounding z, multiplying by A >= 0, rounding y and shifting M keep the order. What is
 * left are the two polynomials. Next to each other, two arguments of F differ by 2^-32, so the true
 * logarithms differ by at least 2^-32 / (2 ln 2), which is 46 units of 2^-38; each value is wrong
 * by less than 12 units (six rounded coefficients, five products rounded down, and an interpolation
 * error of 2 or 3), and the two errors together are less than the difference. For M the same holds
 * with 88 units of 2^-39. At a seam, x or g = 2^32 - 1 and the next binade's 0, likewise.
 *
 * Why e * A and F * A apart: together they would need 101 bits; e * A fits 63 exactly, and F * A
 * is one product of 38 by 52 bits.
 */
#include "base/power.h"

#include "base/minmax.h"
#include "base/power_kernel.h"
#include "base/power_tables.h"

#include <assert.h>
#include <string.h>

enum { SEGMENT_BITS = 28, ALPHA_BITS = 48, MASS_LOG2_MAX = 63, ONE_LOG2 = 26, EXP2_BITS = 39 };

static uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

int rp_power_exponent(double alpha, struct rp_power *out) {
    if (!rp_power_valid(alpha) || alpha > RP_POWER_ALPHA_MAX) {
        return -1;
    }
    /* A product with a power of two is exact, and so is the truncation. */
    out->alpha = (uint64_t)(alpha * (double)((uint64_t)1 << ALPHA_BITS));
    out->wide = rp_power_avx512_able();
    return 0;
}

void rp_power_use_portable(struct rp_power *power) {
    power->wide = false;
}

/* F: log2(1 + x / 2^32) in units of 2^-38. */
static uint64_t log2_of(uint32_t x) {
    uint64_t i = x >> SEGMENT_BITS;
    uint64_t w = x & (((uint32_t)1 << SEGMENT_BITS) - 1);
    uint64_t sum = rp_power_log2[5][i];
    sum = rp_power_log2[4][i] - (w * sum >> SEGMENT_BITS);
    sum = rp_power_log2[3][i] - (w * sum >> SEGMENT_BITS);
    sum = rp_power_log2[2][i] - (w * sum >> SEGMENT_BITS);
    sum = rp_power_log2[1][i] - (w * sum >> SEGMENT_BITS);
    return rp_power_log2[0][i] + (w * sum >> SEGMENT_BITS);
}

/* M: 2^(g / 2^32) in units of 2^-39. */
static uint64_t exp2_of(uint32_t g) {
    uint64_t i = g >> SEGMENT_BITS;
    uint64_t w = g & (((uint32_t)1 << SEGMENT_BITS) - 1);
    uint64_t sum = rp_power_exp2[4][i];
    sum = rp_power_exp2[3][i] + (w * sum >> SEGMENT_BITS);
    sum = rp_power_exp2[2][i] + (w * sum >> SEGMENT_BITS);
    sum = rp_power_exp2[1][i] + (w * sum >> SEGMENT_BITS);
    return rp_power_exp2[0][i] + (w * sum >> SEGMENT_BITS);
}

/* M * 2^shift, rounded to the nearest integer. */
static uint64_t scaled(uint64_t m, int64_t shift) {
    if (shift >= 0) {
        return m << shift;
    }
    if (shift < -EXP2_BITS - 2) {
        return 0;
    }
    return ((m >> (-shift - 1)) + 1) >> 1;
}

/* The mass before it is cut, UINT64_MAX for anything from 2^63 on. */
static uint64_t mass_of(uint64_t alpha, uint64_t bits) {
    if (bits << 1 == 0) {
        return 0;
    }
    int leading = __builtin_clzll(bits);
    uint64_t s = leading > 11 ? (uint64_t)leading - 11 : 0; /* 0 for every normal number */
    int64_t z = (int64_t)((bits << s) - ((1023 + s) << 52));
    int64_t r = (z + ((int64_t)1 << 19)) >> 20;
    uint64_t f = log2_of((uint32_t)r);
    int64_t y = (r >> 32) * (int64_t)alpha + (int64_t)((unsigned __int128)f * alpha >> 38);
    int64_t q = (y + ((int64_t)1 << 15)) >> 16;
    int64_t n = q >> 32;
    if (n >= MASS_LOG2_MAX - ONE_LOG2) {
        return UINT64_MAX;
    }
    uint64_t mass = scaled(exp2_of((uint32_t)q), n + ONE_LOG2 - EXP2_BITS);
    return mass > 0 ? mass : 1;
}

uint64_t rp_power_mass(const struct rp_power *power, double priority, uint64_t mass_max) {
    assert(rp_power_valid(priority) && mass_max >= 1);
    uint64_t mass = mass_of(power->alpha, bits_of(priority));
    return rp_min(mass, mass_max);
}

void rp_power_masses(const struct rp_power *power, const double *priority, uint64_t *mass,
                     size_t n, uint64_t mass_max, uint64_t *saturated) {
    assert(mass_max >= 1 && mass_max <= (uint64_t)1 << MASS_LOG2_MAX);
    if (power->wide) {
        *saturated += rp_power_masses_avx512(power->alpha, priority, mass, n, mass_max);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        assert(rp_power_valid(priority[i]));
        uint64_t full = mass_of(power->alpha, bits_of(priority[i]));
        *saturated += full > mass_max;
        mass[i] = rp_min(full, mass_max);
    }
}
