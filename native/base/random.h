/* random.h: the generator behind every draw, exactly specified so that another program can repeat
 * the draws.
 *
 * Generator: xoshiro256++ 1.0 (Blackman and Vigna 2019) on four 64-bit words. rp_random_next()
 * returns rotl(s0 + s3, 23) + s0 of the old state and then advances it. Seeding: s0 to s3 are the
 * first four outputs of SplitMix64 started at `seed`, in that order; no seed gives the all-zero
 * state.
 *
 * Bounded draws: rp_random_below() multiplies one 64-bit output x by the bound and takes the high
 * half of the 128-bit product. Where the low half is below 2^64 mod bound it throws x away and
 * takes the next output (Lemire 2019, "Fast random integer generation in an interval"), so every
 * value is equally likely, exactly. One call consumes one output and, with a probability below
 * bound / 2^64, more.
 *
 * The state is the caller's and may lie in a region: 32 bytes, no pointers. Not for secrets.
 */
#ifndef RP_RANDOM_H
#define RP_RANDOM_H

#include <assert.h>
#include <stdint.h>

struct rp_random {
    uint64_t s[4];
};

/* Start the generator: the same seed gives the same outputs on every machine. */
void rp_random_seed(struct rp_random *random, uint64_t seed);

static inline uint64_t rp_random_rotate(uint64_t x, int by) {
    return x << by | x >> (64 - by);
}

/* The next 64-bit output. */
static inline uint64_t rp_random_next(struct rp_random *random) {
    uint64_t *s = random->s;
    uint64_t output = rp_random_rotate(s[0] + s[3], 23) + s[0];
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rp_random_rotate(s[3], 45);
    return output;
}

/* A uniform integer in [0, bound). bound >= 1, asserted. */
static inline uint64_t rp_random_below(struct rp_random *random, uint64_t bound) {
    assert(bound >= 1);
    unsigned __int128 product = (unsigned __int128)rp_random_next(random) * bound;
    if ((uint64_t)product < bound) {
        /* Only here may a value be one output too likely: the division is almost never paid. */
        uint64_t surplus = -bound % bound; /* 2^64 mod bound */
        while ((uint64_t)product < surplus) {
            product = (unsigned __int128)rp_random_next(random) * bound;
        }
    }
    return (uint64_t)(product >> 64);
}

#endif
