/* test_sampling_statistics.c: draws follow priority^alpha / sum, judged by chi-square.
 *
 * What the exhaustive tests of the tree cannot see, a wrong distribution from priority to
 * slot. Given 10,000 items whose masses span six decades, drawn through power, leaves, tree and
 * generator as a server does; expect the counts that libm's pow() predicts. Items with an expected
 * count under 20 are pooled, in order of their index, until a cell has 20. The first seed makes
 * 10 M draws and must reach p > 1e-4 (one false alarm in 10,000 seeds). 20 more seeds make 1 M
 * draws each (10 M with the argument `all`), and their p-values must be uniform, by Kolmogorov and
 * Smirnov at 1 in 1,000. The test shows its own power: the same draws must be refused against the
 * distributions that known bugs would give (alpha applied twice; one leaf with a tenth too much of
 * the whole; two percent more on every other leaf).
 */
#include "check.h"
#include "base/power.h"
#include "base/random.h"
#include "base/sum_tree.h"

#include <math.h>
#include <string.h>

enum { ITEMS = 10000, SEEDS = 20, BATCH = 512, POOLED_MIN = 20, FEW = 1000000, MANY = 10000000 };
#define ALPHA 0.6
#define P_MIN 1e-4
#define KOLMOGOROV_999 1.9495 /* quantile 0.999 of the limit distribution */

static double priority[ITEMS];
static uint64_t leaf[(ITEMS + 15) / 16 * 16] __attribute__((aligned(64)));
static uint64_t hits[ITEMS];
static struct rp_tree tree;

/* The upper regularised incomplete gamma function Q(a, x): by its series where x is small, else by
 * its continued fraction (Abramowitz and Stegun 6.5.29 and 6.5.31). */
static double gamma_q(double a, double x) {
    double scale = exp(a * log(x) - x - lgamma(a));
    if (x < a + 1) {
        double term = 1 / a, sum = term;
        for (double n = 1; term > sum * 1e-15; n++) {
            term *= x / (a + n);
            sum += term;
        }
        return 1 - scale * sum;
    }
    double b = x + 1 - a, c = 1e300, d = 1 / b, fraction = d;
    for (double n = 1; n < 1e6; n++) {
        double factor = -n * (n - a);
        b += 2;
        d = 1 / (factor * d + b);
        c = b + factor / c;
        fraction *= d * c;
        if (fabs(d * c - 1) < 1e-14) {
            break;
        }
    }
    return scale * fraction;
}

static double chi_square_p(double statistic, int degrees) {
    return gamma_q(degrees / 2.0, statistic / 2);
}

/* The judge itself, at values from tables. */
static void judge_is_right(void) {
    static const struct {
        int degrees;
        double statistic, p;
    } known[] = {{1, 3.841458820694124, 0.05},
                 {10, 18.307038053275146, 0.05},
                 {1000, 1000, 0.494052854},
                 {5000, 5300, 0.001595825},
                 {5000, 4700, 0.998876539}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        double p = chi_square_p(known[i].statistic, known[i].degrees);
        CHECK(fabs(p - known[i].p) < 1e-8, "p of %g is %.9f", known[i].statistic, p);
    }
}

/* Priorities over 6 / ALPHA decades, so that the masses span six. */
static void fill(uint64_t seed) {
    static uint8_t nodes[1 << 14] __attribute__((aligned(64)));
    static uint32_t slots[ITEMS];
    struct rp_random random;
    struct rp_power power;
    uint64_t saturated = 0;
    rp_random_seed(&random, seed);
    CHECK(rp_power_exponent(ALPHA, &power) == 0 && rp_tree_bytes(ITEMS) <= sizeof(nodes));
    for (uint32_t i = 0; i < ITEMS; i++) {
        double share = (double)rp_random_below(&random, 1 << 30) / (1 << 30);
        priority[i] = pow(10, (6 * share - 3) / ALPHA);
        slots[i] = i;
    }
    rp_tree_open(&tree, leaf, nodes, ITEMS);
    for (uint32_t i = 0; i < ITEMS; i += BATCH) {
        size_t n = ITEMS - i < BATCH ? ITEMS - i : BATCH;
        rp_power_masses(&power, priority + i, leaf + i, n, rp_tree_mass_max(ITEMS), &saturated);
        rp_tree_refresh(&tree, slots + i, n);
    }
    CHECK(saturated == 0);
    rp_tree_check(&tree);
}

/* Make `draws` independent draws and count them in `hits`. */
static void draw(uint64_t seed, uint64_t draws) {
    struct rp_random random;
    uint64_t targets[BATCH];
    uint32_t slots[BATCH];
    rp_random_seed(&random, seed);
    memset(hits, 0, sizeof(hits));
    for (uint64_t done = 0; done < draws; done += BATCH) {
        size_t n = draws - done < BATCH ? (size_t)(draws - done) : BATCH;
        for (size_t i = 0; i < n; i++) {
            targets[i] = rp_random_below(&random, rp_tree_total(&tree));
        }
        rp_tree_draw(&tree, targets, slots, n);
        for (size_t i = 0; i < n; i++) {
            CHECK(slots[i] < ITEMS);
            hits[slots[i]]++;
        }
    }
}

/* Cells of the statistic: the pool being filled, and the last full one, still open for the rest. */
struct cells {
    double statistic;
    int count;
    double pool_expected, pool_seen;
    double last_expected, last_seen;
};

static void add_cell(struct cells *cells, double expected, double seen) {
    if (expected > 0) {
        cells->statistic += (seen - expected) * (seen - expected) / expected;
        cells->count++;
    }
}

static void add_item(struct cells *cells, double expected, double seen) {
    if (expected >= POOLED_MIN) {
        add_cell(cells, expected, seen);
        return;
    }
    cells->pool_expected += expected;
    cells->pool_seen += seen;
    if (cells->pool_expected >= POOLED_MIN) {
        add_cell(cells, cells->last_expected, cells->last_seen);
        cells->last_expected = cells->pool_expected;
        cells->last_seen = cells->pool_seen;
        cells->pool_expected = cells->pool_seen = 0;
    }
}

/* The p-value of the counts if item i had the probability weight[i] / sum. */
static double judge(const double *weight, double draws) {
    struct cells cells = {0};
    double sum = 0;
    for (int i = 0; i < ITEMS; i++) {
        sum += weight[i];
    }
    for (int i = 0; i < ITEMS; i++) {
        add_item(&cells, weight[i] / sum * draws, (double)hits[i]);
    }
    /* What did not fill a pool goes to the last one: all items are counted, one cell is tied. */
    add_cell(&cells, cells.last_expected + cells.pool_expected, cells.last_seen + cells.pool_seen);
    double p = chi_square_p(cells.statistic, cells.count - 1);
    printf("  %.0f draws, %d cells, chi-square %.0f, p = %.4g\n", draws, cells.count,
           cells.statistic, p);
    return p;
}

static void weigh(double *weight, double alpha) {
    for (int i = 0; i < ITEMS; i++) {
        weight[i] = pow(priority[i], alpha);
    }
}

static void one_seed_of_many_draws(uint64_t seed) {
    static double weight[ITEMS];
    draw(seed, MANY);
    weigh(weight, ALPHA);
    double p = judge(weight, MANY);
    CHECK(p > P_MIN, "draws do not follow priority^alpha: p = %g", p);
    check_group("10 M draws follow priority^alpha; the next three are to be refused");
    weigh(weight, ALPHA * ALPHA);
    CHECK(judge(weight, MANY) < P_MIN, "alpha applied twice would not be noticed");
    weigh(weight, ALPHA);
    double sum = 0;
    for (int i = 0; i < ITEMS; i++) {
        sum += weight[i];
    }
    weight[ITEMS / 2] += sum / 10;
    CHECK(judge(weight, MANY) < P_MIN, "a leaf with a tenth too much would not be noticed");
    weigh(weight, ALPHA);
    for (int i = 0; i < ITEMS; i += 2) {
        weight[i] *= 1.02;
    }
    CHECK(judge(weight, MANY) < P_MIN, "two percent on every other leaf would not be noticed");
}

static int rising(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void seeds_are_uniform(uint64_t seed, uint64_t draws) {
    static double weight[ITEMS];
    double p[SEEDS], distance = 0;
    weigh(weight, ALPHA);
    for (int i = 0; i < SEEDS; i++) {
        draw(seed + 1 + (uint64_t)i, draws);
        p[i] = judge(weight, (double)draws);
        CHECK(p[i] > P_MIN / SEEDS, "seed %d: p = %g", i, p[i]);
    }
    qsort(p, SEEDS, sizeof(p[0]), rising);
    for (int i = 0; i < SEEDS; i++) {
        distance = fmax(distance, fmax(p[i] - (double)i / SEEDS, (i + 1.0) / SEEDS - p[i]));
    }
    double scaled = distance * (sqrt(SEEDS) + 0.12 + 0.11 / sqrt(SEEDS));
    printf("  Kolmogorov distance of %d p-values %.3f, scaled %.3f\n", SEEDS, distance, scaled);
    CHECK(scaled < KOLMOGOROV_999, "the p-values of %d seeds are not uniform", SEEDS);
}

int main(int argc, char **argv) {
    uint64_t seed = check_seed(1);
    judge_is_right();
    check_group("chi-square probabilities from tables");
    fill(seed);
    if (check_rounds(MANY) == MANY) {
        one_seed_of_many_draws(seed);
        check_group("10 M draws are refused by the distributions of three known bugs");
    }
    int all = argc > 1 && strcmp(argv[1], "all") == 0;
    seeds_are_uniform(seed, all ? MANY : (uint64_t)check_rounds(FEW));
    check_group("the p-values of 20 seeds are uniform");
    return check_done("test_sampling_statistics");
}
