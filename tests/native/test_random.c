/* test_random.c: the generator is the one its header names, and bounded draws are exact.
 *
 * Golden: outputs of xoshiro256++ for the state {1, 2, 3, 4} and of SplitMix64 for the seeds 0 and
 * 1234567 as other implementations publish them. The rejection of rp_random_below is compared with
 * its definition in 128-bit arithmetic, at bounds where it happens often.
 */
#include "check.h"
#include "base/random.h"

static void generator_vectors(void) {
    static const uint64_t expected[] = {
        41943041,           58720359,           3588806011781223,     3591011842654386,
        9228616714210784205u, 9973669472204895162u, 14011001112246962877u, 12406186145184390807u,
        15849039046786891736u, 10450023813501588000u,
    };
    struct rp_random random = {{1, 2, 3, 4}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        uint64_t output = rp_random_next(&random);
        CHECK(output == expected[i], "output %zu is %" PRIu64, i, output);
    }
}

static void seed_vectors(void) {
    static const uint64_t from_0[4] = {0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f,
                                       0xf88bb8a8724c81ec};
    static const uint64_t from_1234567[4] = {6457827717110365317u, 3203168211198807973u,
                                             9817491932198370423u, 4593380528125082431u};
    struct rp_random zero, other;
    rp_random_seed(&zero, 0);
    rp_random_seed(&other, 1234567);
    for (int i = 0; i < 4; i++) {
        CHECK(zero.s[i] == from_0[i], "word %d of seed 0 is %016" PRIx64, i, zero.s[i]);
        CHECK(other.s[i] == from_1234567[i], "word %d of seed 1234567", i);
    }
}

/* Given a bound. Expect the first output x, in order, whose low product half is not rejected. */
static void below_is_its_definition(uint64_t bound) {
    struct rp_random random, copy;
    rp_random_seed(&random, bound);
    copy = random;
    unsigned __int128 surplus = ((unsigned __int128)1 << 64) % bound;
    for (int i = 0; i < 2000; i++) {
        unsigned __int128 product;
        do {
            product = (unsigned __int128)rp_random_next(&copy) * bound;
        } while ((uint64_t)product < surplus);
        uint64_t value = rp_random_below(&random, bound);
        CHECK(value == (uint64_t)(product >> 64) && value < bound);
        CHECK(random.s[0] == copy.s[0] && random.s[3] == copy.s[3], "took more or fewer outputs");
    }
}

/* Given bound 3 * 2^62, where a quarter of all outputs would fall twice on every third value
 * without rejection. Expect the three residues equally often: within five standard deviations. */
static void below_is_even(uint64_t seed) {
    enum { DRAWS = 300000 };
    uint64_t hits[3] = {0};
    struct rp_random random;
    rp_random_seed(&random, seed);
    for (int i = 0; i < DRAWS; i++) {
        hits[rp_random_below(&random, (uint64_t)3 << 62) % 3]++;
    }
    for (int i = 0; i < 3; i++) {
        double off = (double)hits[i] - DRAWS / 3.0;
        CHECK(off * off < 25 * DRAWS * 2 / 9.0, "residue %d: %" PRIu64, i, hits[i]);
    }
}

int main(void) {
    generator_vectors();
    seed_vectors();
    check_group("xoshiro256++ and SplitMix64 vectors");
    static const uint64_t bounds[] = {1,          2,           3,           10,
                                      1000003,    1ull << 32,  1ull << 63,  (1ull << 63) + 1,
                                      3ull << 62, UINT64_MAX - 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        below_is_its_definition(bounds[i]);
    }
    check_group("bounded draws are their definition, output by output");
    below_is_even(check_seed(5));
    check_group("bounded draws are even where rejection matters most");
    return check_done("test_random");
}
