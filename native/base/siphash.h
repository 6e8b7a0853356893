/* siphash.h: SipHash-2-4 (Aumasson and Bernstein 2012), the keyed 64-bit hash of address cookies.
 *
 * The answer is the 64-bit word that the paper's appendix writes as little-endian bytes. The key
 * is 16 secret bytes.
 */
#ifndef RP_SIPHASH_H
#define RP_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* Hash of `size` bytes at `data` under `key`. Cost: about a nanosecond a byte. */
uint64_t rp_siphash(const uint8_t key[16], const void *data, size_t size);

/* Places of an open-addressed table that is never more than half full: a power of two. */
static inline uint32_t rp_hash_places(uint32_t entries) {
    uint32_t count = 1;
    while (count <= 2 * entries) {
        count *= 2;
    }
    return count;
}

#endif
