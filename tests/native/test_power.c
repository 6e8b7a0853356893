/* test_power.c: priority -> mass is monotone, exact at its fixed points, accurate, and the same on
 * every path.
 *
 * The golden masses never change; no larger priority ever gets a smaller mass, tried at
 * neighbouring doubles of every binade, at every seam of the tables and at random; the error
 * against long double powl stays under the bound of power.h. `test_power all` walks all 2^32
 * mantissas in place of a sample (a minute).
 */
#include "check.h"
#include "base/power.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

#define MASS_MAX ((uint64_t)1 << 63)
#define EVERYTHING ((double)INFINITY)

static const double alphas[] = {0.0, 1e-9, 0.01, 0.3, 0.4, 0.5, 0.6, 0.7, 0.9, 1.0, 1.5, 2.0, 8.0};
enum { ALPHAS = sizeof(alphas) / sizeof(alphas[0]) };

static struct rp_power power_of(double alpha) {
    struct rp_power power;
    CHECK(rp_power_exponent(alpha, &power) == 0, "alpha %g refused", alpha);
    return power;
}

static double from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint64_t to_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static void validity(void) {
    static const double good[] = {0.0, -0.0, 5e-324, 1.0, 1.7976931348623157e308};
    static const double bad[] = {-5e-324, -1.0, -1e308, EVERYTHING, -EVERYTHING, NAN, -NAN};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        CHECK(rp_power_valid(good[i]), "%g refused", good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct rp_power power;
        CHECK(!rp_power_valid(bad[i]), "%g accepted as priority", bad[i]);
        CHECK(rp_power_exponent(bad[i], &power) == -1, "%g accepted as alpha", bad[i]);
    }
    struct rp_power power;
    CHECK(rp_power_exponent(8.000001, &power) == -1, "alpha above its limit accepted");
}

static void fixed_points(void) {
    for (int a = 0; a < ALPHAS; a++) {
        struct rp_power power = power_of(alphas[a]);
        CHECK(rp_power_mass(&power, 1.0, MASS_MAX) == RP_POWER_ONE, "1^%g", alphas[a]);
        CHECK(rp_power_mass(&power, 0.0, MASS_MAX) == 0, "0^%g", alphas[a]);
        CHECK(rp_power_mass(&power, -0.0, MASS_MAX) == 0, "-0^%g", alphas[a]);
        CHECK(rp_power_mass(&power, 5e-324, MASS_MAX) >= 1, "a positive priority became 0");
        CHECK(rp_power_mass(&power, 1e-310, MASS_MAX) >= 1, "a positive priority became 0");
        CHECK(rp_power_mass(&power, 1.0, 7) == 7, "not cut to mass_max");
    }
    struct rp_power none = power_of(0.0), half = power_of(0.5), one = power_of(1.0);
    CHECK(rp_power_mass(&none, 5e-324, MASS_MAX) == RP_POWER_ONE);
    CHECK(rp_power_mass(&none, 1e308, MASS_MAX) == RP_POWER_ONE);
    for (int k = -26; k <= 36; k++) {
        CHECK(rp_power_mass(&one, ldexp(1.0, k), MASS_MAX) == (uint64_t)1 << (26 + k));
        CHECK(rp_power_mass(&half, ldexp(1.0, 2 * k), MASS_MAX) == (uint64_t)1 << (26 + k));
    }
    CHECK(rp_power_mass(&one, 1e300, MASS_MAX) == MASS_MAX, "saturation");
}

static const struct {
    double priority, alpha;
    uint64_t mass;
} golden[] = {
    {0x1.0000000000000p+0, 0.6, 67108864},
    {0x1.0000000000000p+1, 0.6, 101718017},
    {0x1.0000000000000p-1, 0.6, 44275338},
    {0x1.8000000000000p+1, 1.0, 201326592},
    {0x1.999999999999ap-4, 1.0, 6710886},
    {0x1.0624dd2f1a9fcp-10, 0.6, 1063604},
    {0x1.f400000000000p+9, 0.6, 4234283062},
    {0x1.0c6f7a0b5ed8dp-20, 0.5, 67109},
    {0x0.0000000000001p-1022, 0.6, 1},
    {0x0.0000000000001p-1022, 0.01, 39239},
    {0x1.0000000000000p-1022, 0.02, 47},
    {0x1.fffffffffffffp+1023, 0.03, 118691974348668928},
    {0x1.921fb54442d18p+1, 0.7, 149549442},
    {0x1.000000006df38p+0, 8.0, 67108864},
    {0x1.8000000000000p+0, 8.0, 1719926784},
    {0x1.4000000000000p+4, 8.0, 1717986918502760448},
    {0x1.86a0000000000p+16, 2.0, 671088639993708544},
    {0x1.e240c9fbe76c9p+16, 0.9, 2565330748460},
    {0x1.ffffffffea028p-1, 0.4, 67108864},
    {0x1.d000000000000p+2, 0.0, 67108864},
    {0x1.fe185ca57c517p+78, 0.45, 3370294047208898560},
    {0x1.ad7f29abcaf48p-24, 1.0, 7},
    {0x1.0000000000000p-27, 1.0, 1},
    {0x1.12e0be826d695p-28, 1.0, 1},
};

static void golden_masses(void) {
    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        struct rp_power power = power_of(golden[i].alpha);
        uint64_t mass = rp_power_mass(&power, golden[i].priority, MASS_MAX);
        CHECK(mass == golden[i].mass, "%a ^ %g is %" PRIu64, golden[i].priority, golden[i].alpha,
              mass);
    }
}

/* A positive finite double with uniformly random bits. */
static double random_priority(struct rp_random *random) {
    return from_bits(1 + rp_random_below(random, ((uint64_t)0x7ff << 52) - 1));
}

/* Given priorities whose mass is representable. Expect the bound of power.h. */
static void accuracy(uint64_t seed) {
    struct rp_random random;
    rp_random_seed(&random, seed);
    double worst = 0;
    for (int i = 0; i < check_rounds(300000); i++) {
        double alpha = (double)rp_random_below(&random, 1u << 20) / (1 << 17);
        alpha = i % 2 == 0 ? alpha / 8 : alpha;
        struct rp_power power = power_of(alpha);
        double reach = alpha > 0.05 ? 62 / alpha : 1000;
        double exponent = (double)rp_random_below(&random, 1u << 30) / (1 << 30) * reach;
        exponent -= alpha > 0.05 ? 25.5 / alpha : 500;
        double priority = exp2(exponent);
        long double exact = powl(priority, alpha) * RP_POWER_ONE;
        if (exact > 9e18L) {
            continue;
        }
        long double off = fabsl((long double)rp_power_mass(&power, priority, MASS_MAX) - exact);
        long double allowed = exact * (1.4 * alpha + 1) * 1e-10 + 0.5;
        CHECK(off <= allowed, "%a ^ %a is wrong by %Lg, allowed %Lg", priority, alpha, off,
              allowed);
        double share = exact > 1e12L ? (double)(off / exact / (1.4 * alpha + 1)) : 0;
        worst = share > worst ? share : worst;
    }
    printf("  worst relative error %.3g * (1.4 alpha + 1)\n", worst);
}

static void rising(const struct rp_power *power, uint64_t low_bits, uint64_t high_bits) {
    uint64_t low = rp_power_mass(power, from_bits(low_bits), MASS_MAX);
    uint64_t high = rp_power_mass(power, from_bits(high_bits), MASS_MAX);
    CHECK(low <= high, "alpha %" PRIu64 " / 2^48: mass(%a) = %" PRIu64 " > mass(%a) = %" PRIu64,
          power->alpha, from_bits(low_bits), low, from_bits(high_bits), high);
}

/* Neighbours at the place where the rounding to 32 bits steps, and at the place itself. */
static void rising_around(const struct rp_power *power, uint64_t bits) {
    uint64_t step = (bits & ~(((uint64_t)1 << 20) - 1)) + ((uint64_t)1 << 19);
    if (bits > 0 && step + ((uint64_t)1 << 20) < (uint64_t)0x7ff << 52) {
        rising(power, bits - 1, bits);
        rising(power, bits, bits + 1);
        rising(power, step - 1, step);
        rising(power, step, step + ((uint64_t)1 << 20));
    }
}

static void monotone(uint64_t seed) {
    struct rp_random random;
    rp_random_seed(&random, seed);
    for (int a = 0; a < ALPHAS; a++) {
        struct rp_power power = power_of(alphas[a]);
        for (uint64_t binade = 0; binade < 0x7ff; binade++) {
            rising_around(&power, binade << 52);
            rising_around(&power, binade << 52 | rp_random_next(&random) >> 12);
            uint64_t segment = rp_random_below(&random, 16);
            rising_around(&power, binade << 52 | segment << 48);
        }
        for (uint64_t small = 1; small < 5000; small++) {
            rising(&power, small, small + 1);
        }
        for (int i = 0; i < 20000; i++) {
            uint64_t x = to_bits(random_priority(&random)), y = to_bits(random_priority(&random));
            rising(&power, x < y ? x : y, x < y ? y : x);
        }
    }
}

/* Every `stride`-th of the 2^32 rounded mantissas of one binade, in order. With alpha = 8 in
 * [8, 16) each step of F is seen in the mass, with alpha = 1/2 in [2^40, 2^42) each of M. */
static void monotone_walk(double alpha, double from, uint64_t stride) {
    enum { BATCH = 4096 };
    static double priority[BATCH];
    static uint64_t mass[BATCH];
    struct rp_power power = power_of(alpha);
    uint64_t saturated = 0, last = 0, end = (uint64_t)1 << 32;
    for (uint64_t x = 0; x < end;) {
        size_t n = 0;
        for (; n < BATCH && x < end; x += stride) {
            priority[n++] = from_bits(to_bits(from) + (x << 20));
        }
        rp_power_masses(&power, priority, mass, n, MASS_MAX, &saturated);
        for (size_t i = 0; i < n; i++) {
            CHECK(mass[i] >= last, "mass falls at %a, alpha %g", priority[i], alpha);
            last = mass[i];
        }
    }
    CHECK(saturated == 0, "the walk left the range");
}

/* Given batches of every length. Expect the single answers from both paths, and nothing else
 * written. */
static void batches(uint64_t seed) {
    enum { LENGTH_MAX = 70 };
    struct rp_random random;
    rp_random_seed(&random, seed);
    for (int round = 0; round < 40 * LENGTH_MAX; round++) {
        size_t n = (size_t)(round % LENGTH_MAX);
        double priority[LENGTH_MAX];
        uint64_t wide[LENGTH_MAX + 1], narrow[LENGTH_MAX + 1], cut[2] = {0, 0}, expected = 0;
        uint64_t mass_max = MASS_MAX >> rp_random_below(&random, 64);
        struct rp_power power = power_of(alphas[round % ALPHAS]);
        struct rp_power portable = power;
        rp_power_use_portable(&portable);
        for (size_t i = 0; i < n; i++) {
            uint64_t kind = rp_random_below(&random, 16);
            priority[i] = kind == 0   ? 0.0
                          : kind == 1 ? -0.0
                          : kind == 2 ? from_bits(1 + (rp_random_next(&random) >> 12))
                          : kind < 8  ? exp2((double)kind - rp_random_below(&random, 1000) / 100.0)
                                      : random_priority(&random);
        }
        wide[n] = narrow[n] = 0xdead;
        rp_power_masses(&power, priority, wide, n, mass_max, &cut[0]);
        rp_power_masses(&portable, priority, narrow, n, mass_max, &cut[1]);
        for (size_t i = 0; i < n; i++) {
            uint64_t mass = rp_power_mass(&power, priority[i], mass_max);
            CHECK(wide[i] == mass, "%a ^ %g: %" PRIu64 " in a batch, %" PRIu64 " alone",
                  priority[i], alphas[round % ALPHAS], wide[i], mass);
            CHECK(narrow[i] == mass, "the portable batch differs at %a", priority[i]);
            expected += mass_max < MASS_MAX &&
                        rp_power_mass(&power, priority[i], mass_max + 1) > mass_max;
        }
        CHECK(wide[n] == 0xdead && narrow[n] == 0xdead, "wrote behind the batch");
        CHECK(cut[0] == cut[1], "paths count differently");
        CHECK(mass_max == MASS_MAX || cut[0] == expected, "counted %" PRIu64 " cut masses of %"
              PRIu64, cut[0], expected);
    }
}

int main(int argc, char **argv) {
    uint64_t stride = argc > 1 && strcmp(argv[1], "all") == 0 ? 1 : 997;
    stride *= 10 / (uint64_t)check_rounds(10);
    uint64_t seed = check_seed(404);
    validity();
    check_group("what is a priority and what an exponent");
    fixed_points();
    check_group("fixed points: 0, 1, powers of two, saturation, least mass");
    golden_masses();
    check_group("golden masses");
    accuracy(seed);
    check_group("accuracy");
    monotone(seed);
    monotone_walk(8.0, 8.0, stride);
    monotone_walk(0.5, 0x1p40, stride);
    monotone_walk(0.5, 0x1p41, stride);
    check_group("monotone");
    batches(seed);
    check_group("batches equal single answers on both paths, cut masses are counted");
    return check_done("test_power");
}
