/* siphash.c: SipHash-2-4 as in section 2 of the paper: four words of state, two rounds for each
 * eight bytes of message, four at the end. The last word carries the remaining bytes and, on top,
 * the length modulo 256. Words are read little-endian byte by byte, so neither alignment nor the
 * machine's byte order matters.
 */
#include "base/siphash.h"

static uint64_t rotate(uint64_t x, int by) {
    return x << by | x >> (64 - by);
}

static uint64_t read_le(const uint8_t *bytes, size_t size) {
    uint64_t word = 0;
    for (size_t i = 0; i < size; i++) {
        word |= (uint64_t)bytes[i] << (8 * i);
    }
    return word;
}

static void rounds(uint64_t v[4], int n) {
    while (n-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

static void absorb(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    rounds(v, 2);
    v[0] ^= word;
}

uint64_t rp_siphash(const uint8_t key[16], const void *data, size_t size) {
    const uint8_t *bytes = data;
    uint64_t k0 = read_le(key, 8);
    uint64_t k1 = read_le(key + 8, 8);
    uint64_t v[4] = {
        k0 ^ 0x736f6d6570736575,
        k1 ^ 0x646f72616e646f6d,
        k0 ^ 0x6c7967656e657261,
        k1 ^ 0x7465646279746573,
    };
    size_t whole = size & ~(size_t)7;
    for (size_t at = 0; at < whole; at += 8) {
        absorb(v, read_le(bytes + at, 8));
    }
    absorb(v, (uint64_t)size << 56 | read_le(bytes + whole, size - whole));
    v[2] ^= 0xff;
    rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
