/* random.c: xoshiro256++ seeded by SplitMix64, written out from their authors' descriptions.
 *
 * SplitMix64 spreads a seed such as 1 over all 256 bits of state. It is a bijection of its counter,
 * so four outputs in a row are never all zero, the one state that xoshiro cannot leave.
 */
#include "base/random.h"

static uint64_t split_mix(uint64_t *counter) {
    uint64_t z = *counter += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

void rp_random_seed(struct rp_random *random, uint64_t seed) {
    for (int i = 0; i < 4; i++) {
        random->s[i] = split_mix(&seed);
    }
}
