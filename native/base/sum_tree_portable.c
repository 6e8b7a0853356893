/* sum_tree_portable.c: the sum tree's kernel in plain C, for every processor, and the yardstick of
 * the others.
 *
 * The chosen entry is the first whose running sum is above the target, found without a branch. The
 * test is strict: a target equal to a running sum belongs to the entry behind it, and an entry of
 * mass zero, whose sum is that of the entry before it, is passed over together with that one.
 *
 * A change is carried up as a difference. Differences of unsigned integers are exact and
 * associative, so each node still equals the sum of its children to the last bit.
 */
#include "base/sum_tree_kernel.h"

/* The first of sixteen rising sums that is above the target, in four halvings. */
static inline uint32_t choose(const uint64_t *sums, uint64_t target) {
    uint32_t j = (uint32_t)(sums[7] <= target) * 8;
    j += (uint32_t)(sums[j + 3] <= target) * 4;
    j += (uint32_t)(sums[j + 1] <= target) * 2;
    return j + (sums[j] <= target);
}

static void draw_level(const uint64_t *mass, const uint64_t *next, uint64_t *left, uint32_t *at,
                       size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t *sums = mass + (size_t)at[i] * RP_TREE_FANOUT;
        uint32_t chosen = choose(sums, left[i]);
        assert(left[i] < sums[chosen]); /* else a node holds more than its children */
        left[i] -= rp_tree_mass_before(sums, chosen);
        at[i] = at[i] * RP_TREE_FANOUT + chosen;
        rp_tree_prefetch_group(next, at[i], RP_TREE_MASS_BYTES);
    }
}

/* Of twice as many masses: the half that holds what is left of the target, and what is left in it.
 * A mask, not a branch: which half it is cannot be predicted. */
static inline const uint64_t *pass_half(const uint64_t *masses, uint64_t *rest, uint32_t half) {
    uint64_t sum = 0;
#pragma GCC unroll 8
    for (uint32_t j = 0; j < half; j++) {
        sum += masses[j];
    }
    uint64_t passed = -(uint64_t)(sum <= *rest);
    *rest -= sum & passed;
    return masses + (half & passed);
}

static void draw_leaf(const uint64_t *leaf, const uint64_t *left, uint32_t *at, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t *masses = leaf + (size_t)at[i] * RP_TREE_FANOUT;
        uint64_t rest = left[i];
        masses = pass_half(masses, &rest, 8);
        masses = pass_half(masses, &rest, 4);
        masses = pass_half(masses, &rest, 2);
        masses = pass_half(masses, &rest, 1);
        assert(rest < *masses);
        at[i] = (uint32_t)(masses - leaf);
    }
}

static void rank_level(const uint32_t *count, const void *next, size_t next_bytes, uint32_t *left,
                       uint32_t *at, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t *sums = count + (size_t)at[i] * RP_TREE_FANOUT;
        uint32_t chosen = 0;
        for (int j = 0; j < RP_TREE_FANOUT; j++) {
            chosen += sums[j] <= left[i];
        }
        assert(chosen < RP_TREE_FANOUT);
        left[i] -= chosen ? sums[chosen - 1] : 0;
        at[i] = at[i] * RP_TREE_FANOUT + chosen;
        rp_tree_prefetch_group(next, at[i], next_bytes);
    }
}

static void rank_leaf(const uint64_t *leaf, const uint32_t *left, uint32_t *at, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t *masses = leaf + (size_t)at[i] * RP_TREE_FANOUT;
        uint32_t passed = 0;
        uint32_t chosen = 0;
        while (masses[chosen] == 0 || passed++ < left[i]) {
            chosen++;
            assert(chosen < RP_TREE_FANOUT);
        }
        at[i] = at[i] * RP_TREE_FANOUT + chosen;
    }
}

static size_t sum_groups(const struct rp_tree *t, const uint32_t *slots, size_t n, size_t n_next,
                         struct rp_tree_sum *sums) {
    uint32_t last = UINT32_MAX;
    size_t groups = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t group = slots[i] / RP_TREE_FANOUT;
        rp_tree_prefetch_next(t, slots, i, n, n_next);
        if (group == last) {
            continue;
        }
        rp_tree_prefetch_above(t, group);
        const uint64_t *masses = t->mass[0] + (size_t)group * RP_TREE_FANOUT;
        struct rp_tree_sum sum = {.group = last = group};
#pragma GCC unroll 16
        for (int j = 0; j < RP_TREE_FANOUT; j++) {
            sum.mass += masses[j];
            sum.positive += masses[j] != 0;
        }
        sums[groups++] = sum;
    }
    return groups;
}

/* Zeros, then ones: sixteen from RP_TREE_FANOUT - j on keep the entries of a group from j on. */
#define SIXTEEN(word) word, word, word, word, word, word, word, word, \
                      word, word, word, word, word, word, word, word
static const uint64_t keep_mass[2 * RP_TREE_FANOUT] = {SIXTEEN(0), SIXTEEN(UINT64_MAX)};
static const uint32_t keep_count[2 * RP_TREE_FANOUT] = {SIXTEEN(0), SIXTEEN(UINT32_MAX)};

/* The running sums of a group get this much more from entry j on. All sixteen are written, those in
 * front as they were: vectors take half the time of a loop, whose end cannot be predicted. */
static inline void add_from(uint64_t *restrict mass, uint32_t *restrict count, uint32_t j,
                            uint64_t more, uint32_t more_positive) {
    const uint64_t *kept = keep_mass + RP_TREE_FANOUT - j;
    const uint32_t *kept_count = keep_count + RP_TREE_FANOUT - j;
#pragma GCC unroll 8
    for (int i = 0; i < RP_TREE_FANOUT; i++) {
        mass[i] += kept[i] & more;
    }
#pragma GCC unroll 4
    for (int i = 0; i < RP_TREE_FANOUT; i++) {
        count[i] += kept_count[i] & more_positive;
    }
}

static void carry(struct rp_tree *t, const struct rp_tree_sum *sums, size_t n, uint32_t top) {
    for (size_t i = 0; i < n; i++) {
        uint32_t group = sums[i].group;
        uint64_t more = sums[i].mass - rp_tree_entry_mass(t->mass[1], group);
        uint32_t more_positive = sums[i].positive - rp_tree_entry_count(t->count[1], group);
        for (uint32_t level = 1; level <= top; level++) {
            uint32_t first = group / RP_TREE_FANOUT * RP_TREE_FANOUT;
            add_from(t->mass[level] + first, t->count[level] + first, group - first, more,
                     more_positive);
            group /= RP_TREE_FANOUT;
        }
    }
}

const struct rp_tree_kernel rp_tree_kernel_portable = {
    .draw_level = draw_level,
    .draw_leaf = draw_leaf,
    .rank_level = rank_level,
    .rank_leaf = rank_leaf,
    .sum_groups = sum_groups,
    .carry = carry,
};
