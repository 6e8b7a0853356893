/* crc32c_sse42.c: CRC-32C by the instruction of SSE4.2, three lanes side by side.
 *
 * The instruction takes eight bytes, answers after three cycles and can start every cycle: one
 * chain would leave two thirds of it idle. So a block of 3 x 128 bytes runs as three chains from
 * zero, joined at the end: a register c is carried over n zero bytes by the carry-less product of c
 * with x^(8n - 33) mod P (bits reflected), which the instruction itself then reduces. The constants
 * are those powers for n = 256 and n = 128. Short rows side by side are chains as they are, four at
 * a time. On other architectures, and older processors, the tables of crc32c.c do it all.
 */
#include "base/crc32c.h"

#include <stdbool.h>
#include <string.h>

#ifdef __x86_64__

#include <immintrin.h>

#define WIDE __attribute__((target("sse4.2,crc32,pclmul")))
#define NOINLINE __attribute__((noinline))

enum { LANE = 128 };
#define OVER_TWO_LANES 0xb9e02b86u /* x^(8 * 256 - 33) */
#define OVER_ONE_LANE 0x0d3b6092u  /* x^(8 * 128 - 33) */

static inline bool is_able(void) {
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

WIDE static inline uint64_t read_word(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

WIDE static inline uint64_t product(uint64_t state, uint32_t power) {
    __m128i x = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)state),
                                     _mm_cvtsi64_si128((long long)power), 0);
    return (uint64_t)_mm_cvtsi128_si64(x);
}

WIDE static uint64_t three_lanes(uint64_t state, const uint8_t *bytes) {
    uint64_t first = state, second = 0, third = 0;
    for (size_t at = 0; at < LANE; at += 8) {
        first = _mm_crc32_u64(first, read_word(bytes + at));
        second = _mm_crc32_u64(second, read_word(bytes + LANE + at));
        third = _mm_crc32_u64(third, read_word(bytes + 2 * LANE + at));
    }
    uint64_t carried = product(first, OVER_TWO_LANES) ^ product(second, OVER_ONE_LANE);
    return _mm_crc32_u64(0, carried) ^ third;
}

WIDE static NOINLINE uint32_t any_size(uint32_t crc, const uint8_t *bytes, size_t size) {
    uint64_t wide = ~crc;
    for (; size >= 3 * LANE; size -= 3 * LANE, bytes += 3 * LANE) {
        wide = three_lanes(wide, bytes);
    }
    for (; size >= 8; size -= 8, bytes += 8) {
        wide = _mm_crc32_u64(wide, read_word(bytes));
    }
    uint32_t state = (uint32_t)wide;
    for (; size > 0; size--, bytes++) {
        state = _mm_crc32_u8(state, *bytes);
    }
    return ~state;
}

uint32_t rp_crc32c(uint32_t crc, const void *data, size_t size) {
    return is_able() ? any_size(crc, data, size) : rp_crc32c_portable(crc, data, size);
}

/* Rows too short for lanes of their own: four rows are four chains. */
WIDE static inline void four_rows(uint32_t *sums, const uint8_t *rows, size_t size) {
    const uint8_t *end = rows + size;
    uint64_t a = UINT32_MAX, b = a, c = a, d = a;
    for (const uint8_t *at = rows; at < end; at += 8) {
        a = _mm_crc32_u64(a, read_word(at));
        b = _mm_crc32_u64(b, read_word(at + size));
        c = _mm_crc32_u64(c, read_word(at + 2 * size));
        d = _mm_crc32_u64(d, read_word(at + 3 * size));
    }
    sums[0] = ~(uint32_t)a;
    sums[1] = ~(uint32_t)b;
    sums[2] = ~(uint32_t)c;
    sums[3] = ~(uint32_t)d;
}

WIDE static inline uint32_t one_row(const uint8_t *row, size_t size) {
    const uint8_t *end = row + size;
    uint64_t state = UINT32_MAX;
    if (size & 8) {
        state = _mm_crc32_u64(state, read_word(row));
        row += 8;
    }
    for (; row < end; row += 16) {
        state = _mm_crc32_u64(state, read_word(row));
        state = _mm_crc32_u64(state, read_word(row + 8));
    }
    return ~(uint32_t)state;
}

WIDE static NOINLINE void short_rows(uint32_t *sums, const uint8_t *rows, size_t size,
                                     size_t count) {
    for (; count >= 4; count -= 4, rows += 4 * size, sums += 4) {
        four_rows(sums, rows, size);
    }
    for (; count > 0; count--, rows += size) {
        *sums++ = one_row(rows, size);
    }
}

static NOINLINE void long_rows(uint32_t *sums, const uint8_t *rows, size_t size, size_t count) {
    for (; count > 0; count--, rows += size) {
        *sums++ = any_size(0, rows, size);
    }
}

/* A single short row is what an actor's step is: nothing stands before it. */
WIDE void rp_crc32c_rows(uint32_t *sums, const void *rows, size_t size, size_t count) {
    if (!is_able()) {
        rp_crc32c_rows_portable(sums, rows, size, count);
    } else if (size >= 3 * LANE) {
        long_rows(sums, rows, size, count);
    } else if (count == 1) {
        *sums = one_row(rows, size);
    } else {
        short_rows(sums, rows, size, count);
    }
}

#else

uint32_t rp_crc32c(uint32_t crc, const void *data, size_t size) {
    return rp_crc32c_portable(crc, data, size);
}

void rp_crc32c_rows(uint32_t *sums, const void *rows, size_t size, size_t count) {
    rp_crc32c_rows_portable(sums, rows, size, count);
}

#endif
