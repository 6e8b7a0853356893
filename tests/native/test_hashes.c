/* test_hashes.c: CRC-32C and SipHash-2-4 against their published vectors, and every path against
 * the others.
 *
 * Sources: RFC 3720, appendix B.4 (CRC-32C); the reference vectors of SipHash-2-4, 64-bit output:
 * key 00 01 .. 0f, message 00 01 .. of each length from 0 to 63 (the paper prints length 15).
 */
#include "check.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "base/siphash.h"

#include <string.h>

static const uint64_t sip_vectors[64] = {
    0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d,
    0xcf2794e0277187b7, 0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137,
    0x93f5f5799a932462, 0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7,
    0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee, 0xa129ca6149be45e5,
    0x3f2acc7f57c29bdb, 0x699ae9f52cbe4794, 0x4bc1b3f0968dd39c, 0xbb6dc91da77961bd,
    0xbed65cf21aa2ee98, 0xd0f2cbb02e3b67c7, 0x93536795e3a33e88, 0xa80c038ccd5ccec8,
    0xb8ad50c6f649af94, 0xbce192de8a85b8ea, 0x17d835b85bbb15f3, 0x2f2e6163076bcfad,
    0xde4daaaca71dc9a5, 0xa6a2506687956571, 0xad87a3535c49ef28, 0x32d892fad841c342,
    0x7127512f72f27cce, 0xa7f32346f95978e3, 0x12e0b01abb051238, 0x15e034d40fa197ae,
    0x314dffbe0815a3b4, 0x027990f029623981, 0xcadcd4e59ef40c4d, 0x9abfd8766a33735c,
    0x0e3ea96b5304a7d0, 0xad0c42d6fc585992, 0x187306c89bc215a9, 0xd4a60abcf3792b95,
    0xf935451de4f21df2, 0xa9538f0419755787, 0xdb9acddff56ca510, 0xd06c98cd5c0975eb,
    0xe612a3cb9ecba951, 0xc766e62cfcadaf96, 0xee64435a9752fe72, 0xa192d576b245165a,
    0x0a8787bf8ecb74b2, 0x81b3e73d20b49b6f, 0x7fa8220ba3b2ecea, 0x245731c13ca42499,
    0xb78dbfaf3a8d83bd, 0xea1ad565322a1a0b, 0x60e61c23a3795013, 0x6606d7e446282b93,
    0x6ca4ecb15c5f91e1, 0x9f626da15c9625f3, 0xe51b38608ef25f57, 0x958a324ceb064572,
};

static void siphash_vectors(void) {
    uint8_t key[16];
    uint8_t message[64 + 1];
    for (int i = 0; i < 16; i++) {
        key[i] = (uint8_t)i;
    }
    CHECK(sip_vectors[15] == 0xa129ca6149be45e5, "the paper's own vector");
    for (size_t size = 0; size < 64; size++) {
        for (size_t i = 0; i < size; i++) {
            message[i + 1] = (uint8_t)i; /* off alignment on purpose */
        }
        uint64_t hash = rp_siphash(key, message + 1, size);
        CHECK(hash == sip_vectors[size], "length %zu: %016" PRIx64, size, hash);
    }
}

static void crc_vector(const uint8_t *bytes, size_t size, uint32_t expected) {
    uint32_t crc = rp_crc32c(0, bytes, size);
    CHECK(crc == expected, "%08x, expected %08x", crc, expected);
    crc = rp_crc32c_portable(0, bytes, size);
    CHECK(crc == expected, "portable %08x, expected %08x", crc, expected);
}

static void crc_vectors(void) {
    static const uint8_t read_command[48] = {
        [0] = 0x01,  [1] = 0xc0,  [16] = 0x14, [22] = 0x04, [27] = 0x14,
        [31] = 0x18, [32] = 0x28, [40] = 0x02,
    };
    uint8_t bytes[32];
    crc_vector(memset(bytes, 0, 32), 32, 0x8a9136aa);
    crc_vector(memset(bytes, 0xff, 32), 32, 0x62a8ab43);
    for (int i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)i;
    }
    crc_vector(bytes, 32, 0x46dd794e);
    for (int i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)(31 - i);
    }
    crc_vector(bytes, 32, 0x113fdb5c);
    crc_vector(read_command, 48, 0xd9963a56);
    crc_vector((const uint8_t *)"123456789", 9, 0xe3069283);
    crc_vector(bytes, 0, 0);
}

/* The definition, a bit at a time. */
static uint32_t crc_by_bits(const uint8_t *bytes, size_t size) {
    uint32_t state = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        state ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            state = state >> 1 ^ (state & 1 ? 0x82f63b78 : 0);
        }
    }
    return ~state;
}

/* Given any length, alignment and cut. Expect the definition's answer from every path. */
static void crc_paths_agree(uint64_t seed) {
    enum { SIZE_MAX_TRIED = 1500, ALIGNMENTS = 8 };
    static uint8_t bytes[SIZE_MAX_TRIED + ALIGNMENTS];
    struct rp_random random;
    rp_random_seed(&random, seed);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)rp_random_next(&random);
    }
    for (size_t size = 0; size <= SIZE_MAX_TRIED; size++) {
        const uint8_t *from = bytes + rp_random_below(&random, ALIGNMENTS);
        size_t cut = rp_random_below(&random, size + 1);
        uint32_t expected = crc_by_bits(from, size);
        crc_vector(from, size, expected);
        uint32_t head = rp_crc32c(0, from, cut);
        CHECK(rp_crc32c(head, from + cut, size - cut) == expected, "cut %zu of %zu", cut, size);
        CHECK(rp_crc32c_portable(head, from + cut, size - cut) == expected);
    }
}

/* Given rows of every size below and above that of lanes, one to nine side by side. Expect each
 * row's checksum from every path, and nothing beyond it. */
static void rows_agree(uint64_t seed) {
    enum { SIZE_MAX_TRIED = 800, COUNT_MAX = 9 };
    static uint8_t bytes[SIZE_MAX_TRIED * COUNT_MAX];
    struct rp_random random;
    rp_random_seed(&random, seed);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)rp_random_next(&random);
    }
    for (size_t size = 8; size <= SIZE_MAX_TRIED; size += 8) {
        for (size_t count = 0; count <= COUNT_MAX; count++) {
            uint32_t fast[COUNT_MAX + 1] = {0};
            uint32_t slow[COUNT_MAX + 1] = {0};
            rp_crc32c_rows(fast, bytes, size, count);
            rp_crc32c_rows_portable(slow, bytes, size, count);
            for (size_t i = 0; i < count; i++) {
                uint32_t expected = crc_by_bits(bytes + i * size, size);
                CHECK(fast[i] == expected && slow[i] == expected, "row %zu of %zu, %zu bytes", i,
                      count, size);
            }
            CHECK(fast[count] == 0 && slow[count] == 0);
        }
    }
}

/* Given a whole cut into pieces of one size. Expect the sum of their shares, taken from any piece
 * on, to be the whole's checksum, and the sum with one bit changed not to be. */
static void shares_add_up(uint64_t seed) {
    enum { SIZE_MAX_TRIED = 3000 };
    static uint8_t bytes[SIZE_MAX_TRIED];
    struct rp_random random;
    rp_random_seed(&random, seed);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)rp_random_next(&random);
    }
    for (int round = 0; round < 2000; round++) {
        uint64_t size = 1 + rp_random_below(&random, SIZE_MAX_TRIED);
        uint64_t piece = 1 + rp_random_below(&random, size), pieces = (size + piece - 1) / piece;
        uint64_t first = rp_random_below(&random, pieces);
        uint32_t sum = 0;
        for (uint64_t i = 0; i < pieces; i++) {
            uint64_t at = (first + i) % pieces * piece;
            uint64_t here = size - at < piece ? size - at : piece;
            sum ^= rp_crc32c_share(rp_crc32c(0, bytes + at, here), size - at - here);
        }
        CHECK(sum == crc_by_bits(bytes, size), "%d bytes by %d", (int)size, (int)piece);
        uint64_t changed = rp_random_below(&random, size);
        bytes[changed] ^= 1;
        CHECK(sum != rp_crc32c(0, bytes, size));
    }
}

/* Given an end of zeros as long as weights may be. Expect the same as by hashing them. */
static void shares_reach_far(void) {
    enum { ZEROS = 1 << 20, TIMES = 37 };
    static const uint8_t zeros[ZEROS];
    uint32_t head = rp_crc32c(0, "weights", 7), whole = head, tail = 0;
    for (int i = 0; i < TIMES; i++) {
        whole = rp_crc32c(whole, zeros, ZEROS);
        tail = rp_crc32c(tail, zeros, ZEROS);
    }
    CHECK((rp_crc32c_share(head, (uint64_t)ZEROS * TIMES) ^ tail) == whole);
}

int main(void) {
    siphash_vectors();
    check_group("siphash: 64 vectors");
    crc_vectors();
    check_group("crc32c: RFC 3720 vectors on both paths");
    crc_paths_agree(check_seed(31));
    check_group("crc32c: every length to 1500, any alignment and cut, as by single bits");
    rows_agree(check_seed(33));
    check_group("crc32c: rows of every size side by side, on both paths");
    shares_add_up(check_seed(32));
    shares_reach_far();
    check_group("crc32c: the shares of pieces add up to the whole's");
    return check_done("test_hashes");
}
