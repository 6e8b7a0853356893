/* sum_tree_avx512.c: the sum tree's kernel for AVX-512: sixteen children in two registers.
 *
 * Inclusive prefix sums take three shifted additions for each register and one broadcast of the
 * lower half's sum; the children passed are the lanes with prefix <= target, and their number is
 * the choice. What lies before the chosen child is its prefix less itself, picked by one permute.
 * The functions are compiled for the processor they need by attribute and called only where it is
 * there; on other architectures this file is one function that says no.
 */
#include "sum_tree_kernel.h"

#ifdef __x86_64__

#include <immintrin.h>

#define WIDE __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,bmi,bmi2,popcnt,lzcnt")))

/* Lane i becomes the sum of lanes 0 .. i. */
WIDE static inline __m512i prefix_sums(__m512i x)
{
    const __m512i zero = _mm512_setzero_si512();
    x = _mm512_add_epi64(x, _mm512_alignr_epi64(x, zero, 7));
    x = _mm512_add_epi64(x, _mm512_alignr_epi64(x, zero, 6));
    return _mm512_add_epi64(x, _mm512_alignr_epi64(x, zero, 4));
}

WIDE static inline uint32_t choose(const uint64_t *child, uint64_t *left)
{
    __m512i low = _mm512_load_si512(child);
    __m512i high = _mm512_load_si512(child + 8);
    __m512i target = _mm512_set1_epi64((long long)*left);
    __m512i low_sums = prefix_sums(low);
    __m512i low_total = _mm512_permutexvar_epi64(_mm512_set1_epi64(7), low_sums);
    __m512i high_sums = _mm512_add_epi64(prefix_sums(high), low_total);
    __mmask8 passed_low = _mm512_cmple_epu64_mask(low_sums, target);
    __mmask8 passed_high = _mm512_cmple_epu64_mask(high_sums, target);
    uint32_t chosen = (uint32_t)_mm_popcnt_u32(passed_low | (uint32_t)passed_high << 8);
    __m512i before = _mm512_permutex2var_epi64(_mm512_sub_epi64(low_sums, low),
                                               _mm512_set1_epi64(chosen),
                                               _mm512_sub_epi64(high_sums, high));
    *left -= (uint64_t)_mm_cvtsi128_si64(_mm512_castsi512_si128(before));
    return chosen;
}

WIDE static void draw_level(const uint64_t *child, const void *next, size_t next_bytes,
                            uint64_t *left, uint32_t *at, size_t n)
{
    uint32_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t chosen = choose(child + (size_t)at[i] * RP_TREE_FANOUT, &left[i]);
        seen |= chosen;
        at[i] = at[i] * RP_TREE_FANOUT + chosen;
        rp_tree_prefetch_group(next, at[i], next_bytes);
    }
    assert(seen < RP_TREE_FANOUT); /* else a node holds more than its children */
}

WIDE static inline uint32_t choose_rank(const uint32_t *child, uint32_t *left)
{
    const __m512i zero = _mm512_setzero_si512();
    __m512i counts = _mm512_load_si512(child);
    __m512i sums = _mm512_add_epi32(counts, _mm512_alignr_epi32(counts, zero, 15));
    sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 14));
    sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 12));
    sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 8));
    __mmask16 passed = _mm512_cmple_epu32_mask(sums, _mm512_set1_epi32((int)*left));
    uint32_t chosen = (uint32_t)_mm_popcnt_u32(passed);
    __m512i before = _mm512_permutexvar_epi32(_mm512_set1_epi32((int)chosen),
                                              _mm512_sub_epi32(sums, counts));
    *left -= (uint32_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(before));
    return chosen;
}

WIDE static void rank_level(const uint32_t *child, const void *next, size_t next_bytes,
                            uint32_t *left, uint32_t *at, size_t n)
{
    uint32_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t chosen = choose_rank(child + (size_t)at[i] * RP_TREE_FANOUT, &left[i]);
        seen |= chosen;
        at[i] = at[i] * RP_TREE_FANOUT + chosen;
        rp_tree_prefetch_group(next, at[i], next_bytes);
    }
    assert(seen < RP_TREE_FANOUT);
}

/* One bit for each of sixteen leaves: is it positive? */
WIDE static inline uint32_t positive_mask(__m512i low, __m512i high)
{
    return _mm512_test_epi64_mask(low, low) | (uint32_t)_mm512_test_epi64_mask(high, high) << 8;
}

WIDE static void rank_leaf(const uint64_t *leaf, const uint32_t *left, uint32_t *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t *children = leaf + (size_t)at[i] * RP_TREE_FANOUT;
        uint32_t positive =
            positive_mask(_mm512_load_si512(children), _mm512_load_si512(children + 8));
        assert(left[i] < RP_TREE_FANOUT);
        uint32_t bit = _pdep_u32((uint32_t)1 << left[i], positive);
        assert(bit != 0);
        at[i] = at[i] * RP_TREE_FANOUT + _tzcnt_u32(bit);
    }
}

WIDE static inline uint64_t sum_of(__m512i x)
{
    __m256i four =
        _mm256_add_epi64(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    return (uint64_t)_mm_cvtsi128_si64(two) + (uint64_t)_mm_extract_epi64(two, 1);
}

WIDE static void refresh(struct rp_tree *t, const uint32_t *slots, size_t n)
{
    uint32_t last = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        if (i + RP_TREE_PREFETCH_AHEAD < n) {
            rp_tree_prefetch_climb(t, slots[i + RP_TREE_PREFETCH_AHEAD]);
        }
        uint32_t group = slots[i] / RP_TREE_FANOUT;
        assert(slots[i] < t->capacity);
        if (group == last) {
            continue; /* neighbours: the group was summed after all leaves were written */
        }
        const uint64_t *children = t->mass[0] + (size_t)group * RP_TREE_FANOUT;
        __m512i low = _mm512_load_si512(children);
        __m512i high = _mm512_load_si512(children + 8);
        uint64_t mass = sum_of(_mm512_add_epi64(low, high));
        rp_tree_climb(t, group, mass, (uint32_t)_mm_popcnt_u32(positive_mask(low, high)));
        last = group;
    }
}

const struct rp_tree_kernel *rp_tree_kernel_avx512(void)
{
    static const struct rp_tree_kernel kernel = {
        .draw_level = draw_level,
        .rank_level = rank_level,
        .rank_leaf = rank_leaf,
        .refresh = refresh,
    };
    int able = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
    return able ? &kernel : NULL;
}

#else

const struct rp_tree_kernel *rp_tree_kernel_avx512(void)
{
    return NULL;
}

#endif
