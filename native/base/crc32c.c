/* crc32c.c: CRC-32C eight bytes at a time by tables.
 *
 * table[k][i] is the register after byte i and k zero bytes. The checksum is linear, so eight bytes
 * taken at once are eight independent look-ups, exclusive-ored; and linear in i as well, so each
 * table follows from its eight powers of two, which is all that is written down here: the compiler
 * expands ROW to 256 words. table[0][0x80] is the polynomial itself, bits reflected.
 */
#include "base/crc32c.h"

#define BIT(i, b, word) (((i) >> (b) & 1) ? word##u : 0u)
#define ONE(i, a, b, c, d, e, f, g, h)                                                           \
    (BIT(i, 0, a) ^ BIT(i, 1, b) ^ BIT(i, 2, c) ^ BIT(i, 3, d) ^ BIT(i, 4, e) ^ BIT(i, 5, f) ^   \
     BIT(i, 6, g) ^ BIT(i, 7, h))
#define FOUR(i, ...)                                                                             \
    ONE(i, __VA_ARGS__), ONE(i + 1, __VA_ARGS__), ONE(i + 2, __VA_ARGS__), ONE(i + 3, __VA_ARGS__)
#define SIXTEEN(i, ...)                                                                          \
    FOUR(i, __VA_ARGS__), FOUR(i + 4, __VA_ARGS__), FOUR(i + 8, __VA_ARGS__),                    \
        FOUR(i + 12, __VA_ARGS__)
#define SIXTY_FOUR(i, ...)                                                                       \
    SIXTEEN(i, __VA_ARGS__), SIXTEEN(i + 16, __VA_ARGS__), SIXTEEN(i + 32, __VA_ARGS__),         \
        SIXTEEN(i + 48, __VA_ARGS__)
#define ROW(...)                                                                                 \
    {                                                                                            \
        SIXTY_FOUR(0, __VA_ARGS__), SIXTY_FOUR(64, __VA_ARGS__), SIXTY_FOUR(128, __VA_ARGS__),   \
            SIXTY_FOUR(192, __VA_ARGS__)                                                         \
    }

static const uint32_t table[8][256] = {
    ROW(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc,
        0x82f63b78),
    ROW(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604,
        0xfbc3faf9),
    ROW(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9,
        0x8b277743),
    ROW(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7,
        0x52a0c93f),
    ROW(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae,
        0x6ea2d55c),
    ROW(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb,
        0x1c08b7d6),
    ROW(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a,
        0xf56e0ef4),
    ROW(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32,
        0x34019664),
};

static uint32_t read_le32(const uint8_t *b) {
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

uint32_t rp_crc32c_portable(uint32_t crc, const void *data, size_t size) {
    const uint8_t *bytes = data;
    uint32_t state = ~crc;
    for (; size >= 8; size -= 8, bytes += 8) {
        uint32_t low = state ^ read_le32(bytes);
        uint32_t high = read_le32(bytes + 4);
        state = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^
                table[4][low >> 24] ^ table[3][high & 0xff] ^ table[2][high >> 8 & 0xff] ^
                table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
    }
    for (; size > 0; size--, bytes++) {
        state = table[0][(state ^ *bytes) & 0xff] ^ state >> 8;
    }
    return ~state;
}

/* a * b modulo the polynomial; bit 31 is x^0, as everywhere with reflected bits. */
static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = (uint32_t)1 << 31; bit != 0; bit >>= 1) {
        product ^= a & bit ? b : 0;
        b = b >> 1 ^ (b & 1 ? table[0][0x80] : 0);
    }
    return product;
}

uint32_t rp_crc32c_share(uint32_t crc, uint64_t behind) {
    uint32_t factor = (uint32_t)1 << 23; /* x^8: one zero byte; squared: two; and so on */
    for (; behind > 0; behind >>= 1) {
        crc = behind & 1 ? multiply(factor, crc) : crc;
        factor = multiply(factor, factor);
    }
    return crc;
}

void rp_crc32c_rows_portable(uint32_t *sums, const void *rows, size_t size, size_t count) {
    const uint8_t *bytes = rows;
    for (size_t i = 0; i < count; i++) {
        sums[i] = rp_crc32c_portable(0, bytes + i * size, size);
    }
}
