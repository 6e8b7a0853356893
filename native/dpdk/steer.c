/* Microsoft's "RSS hashing functions" defines hash and input; its verification suite is in
 * tests/native/test_steer.c. */
#include "dpdk/steer.h"

#include <string.h>

enum {
    STRIDE = 9973, /* odd, so that it visits every port; far apart, so that all bits of them vary */
    FROM_PORT = 8, PORT_BITS = 16,
};

static void write16(uint8_t *at, uint16_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

/* The 32 bits of the key from bit `bit` on. */
static uint32_t window(const uint8_t *key, uint32_t bit) {
    const uint8_t *at = key + bit / 8;
    uint64_t five = (uint64_t)at[0] << 32 | (uint64_t)at[1] << 24 | (uint64_t)at[2] << 16
                    | (uint64_t)at[3] << 8 | at[4];
    return (uint32_t)(five >> (8 - bit % 8));
}

uint32_t rp_steer_hash(const uint8_t *key, const uint8_t *input, uint32_t size) {
    uint32_t hash = 0;
    for (uint32_t bit = 0; bit < 8 * size; bit++) {
        if (input[bit / 8] >> (7 - bit % 8) & 1) {
            hash ^= window(key, bit);
        }
    }
    return hash;
}

static uint32_t hash_flow(const struct rp_steer *steer, const struct rp_steer_flow *flow,
                          uint16_t from_port) {
    uint8_t input[RP_STEER_INPUT];
    memcpy(input, flow->from, 4);
    memcpy(input + 4, flow->to, 4);
    write16(input + FROM_PORT, from_port);
    write16(input + FROM_PORT + 2, flow->to_port);
    return rp_steer_hash(steer->key, input, sizeof input);
}

uint16_t rp_steer_queue(const struct rp_steer *steer, const struct rp_steer_flow *flow) {
    return steer->table[hash_flow(steer, flow, flow->from_port) & (steer->table_size - 1)];
}

uint16_t rp_steer_port(const struct rp_steer *steer, const struct rp_steer_flow *flow,
                       uint16_t queue, uint32_t attempt) {
    uint32_t windows[PORT_BITS], rest = hash_flow(steer, flow, 0);
    uint32_t at = attempt * 2 * STRIDE + attempt;
    for (uint32_t bit = 0; bit < PORT_BITS; bit++) {
        windows[bit] = window(steer->key, 8 * FROM_PORT + PORT_BITS - 1 - bit);
    }
    for (uint32_t i = 0; i < RP_STEER_PORTS; i++, at += STRIDE) {
        uint16_t port = (uint16_t)(RP_STEER_PORT + at % RP_STEER_PORTS);
        uint32_t hash = rest;
        for (uint32_t left = port; left; left &= left - 1) {
            hash ^= windows[__builtin_ctz(left)];
        }
        if (steer->table[hash & (steer->table_size - 1)] == queue) {
            return port;
        }
    }
    return 0;
}
