/* random.c: xoshiro256++ seeded by SplitMix64, written out from their authors' descriptions.
 *
 * SplitMix64 spreads a seed such as 1 over all 256 bits of state. It is a bijection of its counter,
 * so four outputs in a row are never all zero, the one state that xoshiro cannot leave.
 */
#include "random.h"

#include <assert.h>

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static uint64_t split_mix(uint64_t *counter)
{
    uint64_t z = *counter += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

void rp_random_seed(struct rp_random *random, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        random->s[i] = split_mix(&seed);
    }
}

uint64_t rp_random_next(struct rp_random *random)
{
    uint64_t *s = random->s;
    uint64_t output = rotate(s[0] + s[3], 23) + s[0];
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate(s[3], 45);
    return output;
}

uint64_t rp_random_below(struct rp_random *random, uint64_t bound)
{
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
