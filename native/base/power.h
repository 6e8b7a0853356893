/* power.h: priority -> mass = priority^alpha * 2^26, in integers only, the same on every machine.
 *
 * libm's pow() differs in its last bits between libraries and processors, so a seed would not
 * reproduce its draws. This function is specified to the bit; >> rounds down, all words are signed
 * and 64 bits wide but for the product in y, which needs 89.
 *
 *   z    the double as a fixed-point number: its exponent, bias taken off, and 52 fraction bits (a
 *        subnormal is normalised first)
 *   r    (z + 2^19) >> 20: rounded to 32 fraction bits. e = r >> 32, x = r mod 2^32
 *   F    log2(1 + x / 2^32) in units of 2^-38: 16 polynomials of degree 5 (power_tables.h)
 *   y    e * A + ((F * A) >> 38), A = floor(alpha * 2^48): alpha * log2(priority) in units of 2^-48
 *   q    (y + 2^15) >> 16: rounded to 32 fraction bits. n = q >> 32, g = q mod 2^32
 *   M    2^(g / 2^32) in units of 2^-39: 16 polynomials of degree 4
 *   mass M * 2^(n + 26 - 39), rounded to the nearest integer (halves up), between 1 and mass_max
 *
 * What follows from it, and is tested:
 *   0 < p <= q  =>  1 <= mass(p) <= mass(q): the roundings and the product are monotone by
 *       construction, F and M because their errors stay below half of their smallest step
 *   mass(1.0) = 2^26 for every alpha, as F(0) = 0 and M(0) = 2^39; alpha = 0 gives 2^26 to all
 *   mass(0) = 0 for every alpha, 0^0 included: stored, never drawn
 *   |mass / (p^alpha * 2^26) - 1| <= (1.4 * alpha + 1) * 1e-10, plus the rounding to an integer
 */
#ifndef RP_POWER_H
#define RP_POWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define RP_POWER_ONE ((uint64_t)1 << 26) /* the mass of priority 1.0 */
#define RP_POWER_ALPHA_MAX 8.0

/* An exponent, ready for use. Process-local: `wide` says what this processor can do. */
struct rp_power {
    uint64_t alpha; /* floor(alpha * 2^48), at most 2^51 */
    bool wide;      /* rp_power_masses takes eight lanes at a time */
};

/* Prepare an exponent. Returns 0, or -1 where alpha is not in [0, 8] (NaN included). */
int rp_power_exponent(double alpha, struct rp_power *out);

/* From now on rp_power_masses takes the portable path, whose answers are the same. */
void rp_power_use_portable(struct rp_power *power);

/* Whether this is a priority at all: zero of either sign, or positive and finite. A bit test. */
static inline bool rp_power_valid(double priority) {
    uint64_t bits;
    memcpy(&bits, &priority, sizeof bits);
    return bits < (uint64_t)0x7ff << 52 || bits == (uint64_t)1 << 63;
}

/* The mass of one valid priority (asserted), at most mass_max. 1 <= mass_max <= 2^63. */
uint64_t rp_power_mass(const struct rp_power *power, double priority, uint64_t mass_max);

/* The masses of n valid priorities; adds to *saturated how many were cut down to mass_max. */
void rp_power_masses(const struct rp_power *power, const double *priority, uint64_t *mass,
                     size_t n, uint64_t mass_max, uint64_t *saturated);

#endif
