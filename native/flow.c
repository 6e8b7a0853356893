/* Sealing, opening, replay window: see flow.h. Without a key the tag holds a CRC-32C over the whole
 * datagram, computed with the tag zero: it finds what a damaged cable or a forgetful NIC lets
 * through, not an attacker. */
#include "flow.h"

#include <string.h>

#include "crc32c.h"
#include "status.h"

enum { TAG_OFFSET = offsetof(struct rp_outer, tag) };

/* CRC-32C of the datagram with its tag read as zeros. */
static uint32_t datagram_crc(const uint8_t *data, uint32_t size) {
    static const uint8_t zeros[sizeof(((struct rp_outer *)0)->tag)];
    uint32_t crc = rp_crc32c(0, data, TAG_OFFSET);
    crc = rp_crc32c(crc, zeros, sizeof zeros);
    return rp_crc32c(crc, data + sizeof(struct rp_outer), size - sizeof(struct rp_outer));
}

static int reserved_zero(const struct rp_outer *outer, const struct rp_message *message) {
    unsigned sum = outer->reserved[0] | outer->reserved[1] | outer->reserved[2] | message->reserved;
    for (unsigned i = 4; i < sizeof outer->tag; i++) {
        sum |= outer->tag[i];
    }
    return sum == 0;
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
    memcpy(data, &outer, sizeof outer);
    memcpy(data + sizeof outer, &sealed, sizeof sealed);
    uint32_t crc = datagram_crc(data, size);
    memcpy(data + TAG_OFFSET, &crc, sizeof crc);
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
