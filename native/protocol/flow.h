/* Datagrams as such: sealing, opening, and the replay window. Knows headers, no operations.
 *
 * rp_packet_open is the one function that maps (bytes, length) to accepted headers or a reason; no
 * other code looks at raw lengths. Its checks in order: length, magic, version, checksum, reserved
 * fields, size. A HELLO passes whatever its version: it has one layout for ever.
 */
#ifndef RP_FLOW_H
#define RP_FLOW_H

#include <stdint.h>

#include "protocol/wire.h"

struct rp_view { /* an accepted datagram, in place */
    const struct rp_outer *outer;
    const struct rp_message *message;
    const uint8_t *body; /* message->size bytes, 8-byte aligned */
};

/* 0, or -RP_BAD_SIZE, _BAD_MAGIC, _BAD_VERSION, _BAD_CHECKSUM, _BAD_RESERVED. data is
 * 8-byte aligned. */
int rp_packet_open(const uint8_t *data, uint32_t size, uint32_t mtu, struct rp_view *view);

/* Writes both headers for a body of `body_size` bytes that already lies behind them, and the
 * checksum. Returns the datagram's size. data is 8-byte aligned and has room. The answer to a HELLO
 * has its HELLO's version. */
uint32_t rp_packet_seal_as(uint8_t version, uint8_t *data, const struct rp_message *message,
                           uint32_t body_size, uint64_t connection, uint64_t packet);
static inline uint32_t rp_packet_seal(uint8_t *data, const struct rp_message *message,
                                      uint32_t body_size, uint64_t connection, uint64_t packet) {
    return rp_packet_seal_as(RP_VERSION_MAX, data, message, body_size, connection, packet);
}

/* Is the operation of this request or answer one that is served here? */
static inline int rp_op_known(uint8_t op) {
    uint8_t request = op & (uint8_t)~RP_ANSWER;
    return request >= RP_OP_HELLO && request < RP_OP_COUNT;
}
static inline int rp_version_known(uint16_t version) {
    return version >= RP_VERSION_MIN && version <= RP_VERSION_MAX;
}

static inline uint8_t *rp_packet_body(uint8_t *data) { return data + RP_HEADER_BYTES; }

struct rp_replay { /* the last 64 packet numbers: bit i = newest - i was seen */
    uint64_t newest;
    uint64_t seen;
};

/* 1 = new, and noted; 0 = seen before or older than the window. */
int rp_replay_accept(struct rp_replay *replay, uint64_t packet);

#endif
