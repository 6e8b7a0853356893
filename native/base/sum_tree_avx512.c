/* sum_tree_avx512.c: the sum tree's kernel for AVX-512: sixteen entries in two registers.
 *
 * On the inner levels the running sums are in memory: two comparisons give the entries passed, and
 * their number is the choice. At the leaves they are made on the spot, by three shifted additions
 * for each register and one broadcast of the lower half's sum. A change adds to the lanes from its
 * entry on, by one masked addition for each register.
 * The functions are compiled for the processor they need by attribute and called only where it is
 * there; on other architectures this file is one function that says no.
 */
#include "base/sum_tree_kernel.h"

#ifdef __x86_64__

#include <immintrin.h>

#define WIDE __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,bmi,bmi2,popcnt")))

/* How many of sixteen rising sums are at or below the target: the first above it. */
WIDE static inline uint32_t choose(__m512i low, __m512i high, uint64_t left) {
    __m512i target = _mm512_set1_epi64((long long)left);
    uint32_t passed_low = _mm512_cmple_epu64_mask(low, target);
    uint32_t passed_high = _mm512_cmple_epu64_mask(high, target);
    return (uint32_t)_mm_popcnt_u32(passed_low | passed_high << 8);
}

WIDE static void draw_level(const uint64_t *mass, const uint64_t *next, uint64_t *left,
                            uint32_t *at, size_t n) {
    uint32_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t *sums = mass + (size_t)at[i] * RP_TREE_FANOUT;
        uint32_t chosen = choose(_mm512_load_si512(sums), _mm512_load_si512(sums + 8), left[i]);
        left[i] -= rp_tree_mass_before(sums, chosen);
        at[i] = at[i] * RP_TREE_FANOUT + chosen;
        rp_tree_prefetch_group(next, at[i], RP_TREE_MASS_BYTES);
        seen |= chosen;
    }
    assert(seen < RP_TREE_FANOUT); /* else a node holds more than its children */
}

/* Lane i becomes the sum of lanes 0 .. i. */
WIDE static inline __m512i running_sums(__m512i x) {
    const __m512i zero = _mm512_setzero_si512();
    x = _mm512_add_epi64(x, _mm512_alignr_epi64(x, zero, 7));
    x = _mm512_add_epi64(x, _mm512_alignr_epi64(x, zero, 6));
    return _mm512_add_epi64(x, _mm512_alignr_epi64(x, zero, 4));
}

WIDE static void draw_leaf(const uint64_t *leaf, const uint64_t *left, uint32_t *at, size_t n) {
    uint32_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t *masses = leaf + (size_t)at[i] * RP_TREE_FANOUT;
        __m512i low = running_sums(_mm512_load_si512(masses));
        __m512i high = running_sums(_mm512_load_si512(masses + 8));
        high = _mm512_add_epi64(high, _mm512_permutexvar_epi64(_mm512_set1_epi64(7), low));
        uint32_t chosen = choose(low, high, left[i]);
        at[i] = at[i] * RP_TREE_FANOUT + chosen;
        seen |= chosen;
    }
    assert(seen < RP_TREE_FANOUT);
}

WIDE static void rank_level(const uint32_t *count, const void *next, size_t next_bytes,
                            uint32_t *left, uint32_t *at, size_t n) {
    uint32_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t *sums = count + (size_t)at[i] * RP_TREE_FANOUT;
        __m512i target = _mm512_set1_epi32((int)left[i]);
        __mmask16 passed = _mm512_cmple_epu32_mask(_mm512_load_si512(sums), target);
        uint32_t chosen = (uint32_t)_mm_popcnt_u32(passed);
        left[i] -= chosen ? sums[chosen - 1] : 0;
        at[i] = at[i] * RP_TREE_FANOUT + chosen;
        rp_tree_prefetch_group(next, at[i], next_bytes);
        seen |= chosen;
    }
    assert(seen < RP_TREE_FANOUT);
}

/* One bit for each of sixteen leaves: is it positive? */
WIDE static inline uint32_t positive_mask(__m512i low, __m512i high) {
    return _mm512_test_epi64_mask(low, low) | (uint32_t)_mm512_test_epi64_mask(high, high) << 8;
}

WIDE static void rank_leaf(const uint64_t *leaf, const uint32_t *left, uint32_t *at, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t *masses = leaf + (size_t)at[i] * RP_TREE_FANOUT;
        uint32_t positive =
            positive_mask(_mm512_load_si512(masses), _mm512_load_si512(masses + 8));
        assert(left[i] < RP_TREE_FANOUT);
        uint32_t bit = _pdep_u32((uint32_t)1 << left[i], positive);
        assert(bit != 0);
        at[i] = at[i] * RP_TREE_FANOUT + _tzcnt_u32(bit);
    }
}

WIDE static inline uint64_t sum_of(__m512i x) {
    __m256i four =
        _mm256_add_epi64(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    return (uint64_t)_mm_cvtsi128_si64(two) + (uint64_t)_mm_extract_epi64(two, 1);
}

/* Lanes `lanes` of eight masses gain `more`. */
WIDE static inline void add_masses(uint64_t *masses, uint32_t lanes, __m512i more) {
    __m512i old = _mm512_load_si512(masses);
    _mm512_store_si512(masses, _mm512_mask_add_epi64(old, (__mmask8)lanes, old, more));
}

WIDE static size_t sum_groups(const struct rp_tree *t, const uint32_t *slots, size_t n,
                              size_t n_next, struct rp_tree_sum *sums) {
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
        __m512i low = _mm512_load_si512(masses);
        __m512i high = _mm512_load_si512(masses + 8);
        sums[groups].mass = sum_of(_mm512_add_epi64(low, high));
        sums[groups].positive = (uint32_t)_mm_popcnt_u32(positive_mask(low, high));
        sums[groups++].group = last = group;
    }
    return groups;
}

/* An update of priorities rarely makes a leaf appear or vanish: the counts are then left alone. */
WIDE static inline void carry_one(struct rp_tree *t, uint32_t group, uint64_t more,
                                  uint32_t more_positive, uint32_t top) {
    __m512i wide_more = _mm512_set1_epi64((long long)more);
    __m512i wide_positive = _mm512_set1_epi32((int)more_positive);
    for (uint32_t level = 1; level <= top; level++) {
        uint32_t lanes = (uint32_t)0xffff << group % RP_TREE_FANOUT;
        group /= RP_TREE_FANOUT;
        uint64_t *masses = t->mass[level] + (size_t)group * RP_TREE_FANOUT;
        add_masses(masses, lanes, wide_more);
        add_masses(masses + 8, lanes >> 8, wide_more);
        if (more_positive != 0) {
            uint32_t *counts = t->count[level] + (size_t)group * RP_TREE_FANOUT;
            __m512i old = _mm512_load_si512(counts);
            _mm512_store_si512(counts,
                               _mm512_mask_add_epi32(old, (__mmask16)lanes, old, wide_positive));
        }
    }
}

WIDE static void carry(struct rp_tree *t, const struct rp_tree_sum *sums, size_t n, uint32_t top) {
    for (size_t i = 0; i < n; i++) {
        uint32_t group = sums[i].group;
        carry_one(t, group, sums[i].mass - rp_tree_entry_mass(t->mass[1], group),
                  sums[i].positive - rp_tree_entry_count(t->count[1], group), top);
    }
}

const struct rp_tree_kernel *rp_tree_kernel_avx512(void) {
    static const struct rp_tree_kernel kernel = {
        .draw_level = draw_level,
        .draw_leaf = draw_leaf,
        .rank_level = rank_level,
        .rank_leaf = rank_leaf,
        .sum_groups = sum_groups,
        .carry = carry,
    };
    int able = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
               __builtin_cpu_supports("popcnt");
    return able ? &kernel : NULL;
}

#else

const struct rp_tree_kernel *rp_tree_kernel_avx512(void) {
    return NULL;
}

#endif
