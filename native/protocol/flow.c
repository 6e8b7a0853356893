/* Sealing, opening, replay window: see flow.h. Without a key the tag holds a CRC-32C over the whole
 * datagram, computed with the tag zero: it finds what a damaged cable or a forgetful NIC lets
 * through, not an attacker. */
#include "protocol/flow.h"

#include <string.h>

#include "base/crc32c.h"
#include "protocol/status.h"

/* CRC-32C of the datagram with its tag read as zeros. */
static uint32_t datagram_crc(const uint8_t *data, uint32_t size) {
    struct rp_outer outer;
    memcpy(&outer, data, sizeof outer);
    memset(outer.tag, 0, sizeof outer.tag);
    uint32_t crc = rp_crc32c(0, &outer, sizeof outer);
    return rp_crc32c(crc, data + sizeof outer, size - sizeof outer);
}

static int reserved_zero(const struct rp_outer *outer, const struct rp_message *message) {
    uint32_t sum = outer->reserved[0] | outer->reserved[1] | outer->reserved[2] | message->reserved;
    uint32_t behind[3]; /* the checksum */
    memcpy(behind, outer->tag + 4, sizeof behind);
    return (sum | behind[0] | behind[1] | behind[2]) == 0;
}

int rp_packet_open(const uint8_t *data, uint32_t size, uint32_t mtu, struct rp_view *view) {
    if (size < RP_HEADER_BYTES || size > mtu || size % 8 != 0) {
        return -RP_BAD_SIZE;
    }
    const struct rp_outer *outer = (const void *)data;
    const struct rp_message *message = (const void *)(data + sizeof *outer);
    if (outer->magic != RP_MAGIC) {
        return -RP_BAD_MAGIC;
    }
    if (!rp_version_known(outer->version) && message->op != RP_OP_HELLO) {
        return -RP_BAD_VERSION;
    }
    uint32_t crc;
    memcpy(&crc, outer->tag, sizeof crc);
    if (crc != datagram_crc(data, size)) {
        return -RP_BAD_CHECKSUM;
    }
    if (!reserved_zero(outer, message)) {
        return -RP_BAD_RESERVED;
    }
    if (RP_HEADER_BYTES + (uint32_t)message->size != size) {
        return -RP_BAD_SIZE;
    }
    *view = (struct rp_view){outer, message, data + RP_HEADER_BYTES};
    return 0;
}

uint32_t rp_packet_seal_as(uint8_t version, uint8_t *data, const struct rp_message *message,
                           uint32_t body_size, uint64_t connection, uint64_t packet) {
    uint32_t size = RP_HEADER_BYTES + body_size;
    struct rp_outer outer = {
        .magic = RP_MAGIC, .version = version, .connection = connection, .packet = packet};
    struct rp_message sealed = *message;
    sealed.size = (uint16_t)body_size;
    memcpy(data, &outer, sizeof outer); /* its tag is zero */
    memcpy(data + sizeof outer, &sealed, sizeof sealed);
    uint32_t crc = rp_crc32c(0, data, size);
    memcpy(data + offsetof(struct rp_outer, tag), &crc, sizeof crc);
    return size;
}

int rp_replay_accept(struct rp_replay *replay, uint64_t packet) {
    if (packet > replay->newest) {
        uint64_t ahead = packet - replay->newest;
        replay->seen = ahead < 64 ? replay->seen << ahead | 1 : 1;
        replay->newest = packet;
        return 1;
    }
    uint64_t behind = replay->newest - packet;
    if (behind >= 64 || replay->seen >> behind & 1) {
        return 0;
    }
    replay->seen |= 1ull << behind;
    return 1;
}
