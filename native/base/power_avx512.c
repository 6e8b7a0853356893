/* power_avx512.c: the steps of power.h for eight priorities at a time.
 *
 * The tables of sixteen coefficients lie in pairs of registers and are looked up by one permute,
 * which takes the segment from the low four bits of each lane. Variable shifts by 64 or more, or by
 * a negative count, give 0: so the left and the right shift of the last step can simply be added.
 * On other architectures the file says that it cannot.
 */
#include "base/power_kernel.h"

#include "base/power_tables.h"

#include <assert.h>

#ifdef __x86_64__

#include <immintrin.h>

#define WIDE __attribute__((target("avx512f,avx512dq,avx512cd,popcnt")))

enum { SEGMENT_BITS = 28, ALPHA_LOW_BITS = 25 };

bool rp_power_avx512_able(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("popcnt");
}

WIDE static inline __m512i word(uint64_t x) {
    return _mm512_set1_epi64((long long)x);
}

WIDE static inline __m512i look_up(const uint64_t table[16], __m512i segment) {
    return _mm512_permutex2var_epi64(_mm512_load_si512(table), segment,
                                     _mm512_load_si512(table + 8));
}

/* (w * sum) >> 28 for products of 32 by 32 bits, and of 28 by 36. */
WIDE static inline __m512i times_small(__m512i w, __m512i sum) {
    return _mm512_srli_epi64(_mm512_mul_epu32(w, sum), SEGMENT_BITS);
}

WIDE static inline __m512i times(__m512i w, __m512i sum) {
    return _mm512_srli_epi64(_mm512_mullo_epi64(w, sum), SEGMENT_BITS);
}

WIDE static inline __m512i log2_of(__m512i r) {
    __m512i segment = _mm512_srli_epi64(r, SEGMENT_BITS);
    __m512i w = _mm512_and_si512(r, word(((uint64_t)1 << SEGMENT_BITS) - 1));
    __m512i sum = look_up(rp_power_log2[5], segment);
    sum = _mm512_sub_epi64(look_up(rp_power_log2[4], segment), times_small(w, sum));
    sum = _mm512_sub_epi64(look_up(rp_power_log2[3], segment), times_small(w, sum));
    sum = _mm512_sub_epi64(look_up(rp_power_log2[2], segment), times_small(w, sum));
    sum = _mm512_sub_epi64(look_up(rp_power_log2[1], segment), times_small(w, sum));
    return _mm512_add_epi64(look_up(rp_power_log2[0], segment), times(w, sum));
}

WIDE static inline __m512i exp2_of(__m512i q) {
    __m512i segment = _mm512_srli_epi64(q, SEGMENT_BITS);
    __m512i w = _mm512_and_si512(q, word(((uint64_t)1 << SEGMENT_BITS) - 1));
    __m512i sum = look_up(rp_power_exp2[4], segment);
    sum = _mm512_add_epi64(look_up(rp_power_exp2[3], segment), times_small(w, sum));
    sum = _mm512_add_epi64(look_up(rp_power_exp2[2], segment), times_small(w, sum));
    sum = _mm512_add_epi64(look_up(rp_power_exp2[1], segment), times_small(w, sum));
    return _mm512_add_epi64(look_up(rp_power_exp2[0], segment), times(w, sum));
}

/* r: log2 of the priority with a linear mantissa, 32 fraction bits. */
WIDE static inline __m512i exponent_and_mantissa(__m512i bits) {
    __m512i s = _mm512_sub_epi64(_mm512_lzcnt_epi64(bits), word(11));
    s = _mm512_max_epi64(s, _mm512_setzero_si512());
    __m512i bias = _mm512_slli_epi64(_mm512_add_epi64(s, word(1023)), 52);
    __m512i z = _mm512_sub_epi64(_mm512_sllv_epi64(bits, s), bias);
    return _mm512_srai_epi64(_mm512_add_epi64(z, word((uint64_t)1 << 19)), 20);
}

/* y: alpha * log2 of the priority, 48 fraction bits. */
WIDE static inline __m512i times_alpha(__m512i r, uint64_t alpha) {
    __m512i high = word(alpha >> ALPHA_LOW_BITS);
    __m512i low = word(alpha & (((uint64_t)1 << ALPHA_LOW_BITS) - 1));
    __m512i f = log2_of(r);
    __m512i carried = _mm512_srli_epi64(_mm512_mullo_epi64(f, low), ALPHA_LOW_BITS);
    __m512i product = _mm512_add_epi64(_mm512_mullo_epi64(f, high), carried);
    __m512i whole = _mm512_mullo_epi64(_mm512_srai_epi64(r, 32), word(alpha));
    return _mm512_add_epi64(whole, _mm512_srli_epi64(product, 38 - ALPHA_LOW_BITS));
}

WIDE static inline __m512i mass_of(__m512i bits, uint64_t alpha) {
    const __m512i one = word(1);
    __m512i y = times_alpha(exponent_and_mantissa(bits), alpha);
    __m512i q = _mm512_srai_epi64(_mm512_add_epi64(y, word((uint64_t)1 << 15)), 16);
    __m512i n = _mm512_srai_epi64(q, 32);
    __m512i m = exp2_of(q);
    __m512i larger = _mm512_sllv_epi64(m, _mm512_sub_epi64(n, word(13)));
    __m512i smaller = _mm512_srlv_epi64(m, _mm512_sub_epi64(word(12), n));
    smaller = _mm512_srli_epi64(_mm512_add_epi64(smaller, one), 1);
    __m512i mass = _mm512_max_epu64(_mm512_add_epi64(larger, smaller), one);
    __mmask8 huge = _mm512_cmpge_epi64_mask(n, word(37));
    mass = _mm512_mask_set1_epi64(mass, huge, -1);
    return _mm512_maskz_mov_epi64(_mm512_test_epi64_mask(bits, bits), mass);
}

WIDE uint64_t rp_power_masses_avx512(uint64_t alpha, const double *priority, uint64_t *mass,
                                     size_t n, uint64_t mass_max) {
    const __m512i largest = word(mass_max);
    uint64_t saturated = 0;
    for (size_t i = 0; i < n; i += 8) {
        __mmask8 lanes = n - i < 8 ? (__mmask8)((1u << (n - i)) - 1) : 0xff;
        __m512i bits = _mm512_maskz_loadu_epi64(lanes, priority + i);
        /* Minus zero is zero. Every other sign, infinity and NaN is at least that of infinity. */
        bits = _mm512_mask_set1_epi64(bits, _mm512_cmpeq_epi64_mask(bits, word(1ull << 63)), 0);
        assert(_mm512_cmpge_epu64_mask(bits, word((uint64_t)0x7ff << 52)) == 0);
        __m512i full = mass_of(bits, alpha);
        __mmask8 cut = _mm512_cmpgt_epu64_mask(full, largest);
        saturated += (uint64_t)__builtin_popcount(cut);
        _mm512_mask_storeu_epi64(mass + i, lanes, _mm512_min_epu64(full, largest));
    }
    return saturated;
}

#else

bool rp_power_avx512_able(void) {
    return false;
}

uint64_t rp_power_masses_avx512(uint64_t alpha, const double *priority, uint64_t *mass, size_t n,
                                uint64_t mass_max) {
    (void)alpha, (void)priority, (void)mass, (void)n, (void)mass_max;
    assert(0); /* never chosen */
    return 0;
}

#endif
