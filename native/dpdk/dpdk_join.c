/* Ports that come to a card which is open in this process: shards of its server's, or links. */
#include <stdio.h>
#include <string.h>

#include "dpdk/dpdk_card.h"

/* Null, or why this port is none of the card's next shards. */
static const char *check_shard(const struct rp_card *card, const struct rp_wire_place *place,
                               const struct rp_dpdk_options *options, char *why, size_t size) {
    uint32_t count = card->queues.count, first = card->queues.first_port;
    uint32_t shard = (uint32_t)place->port - first;
    if (!card->serves) {
        snprintf(why, size, "clients of this process have that device open: serve in another "
                 "process, on a device of its own");
    } else if (count == 1 && options->queues == 1) {
        snprintf(why, size, "that device is open in this process already");
    } else if (options->vdev != card->vdev) {
        snprintf(why, size, "that device is open here already, for shards at %.20s, as %s: say the "
                 "same", card->host,
                 card->vdev == RP_VDEV_PCI ? "port=" : rp_vdev_name(card->vdev));
    } else if (options->queues != count || place->mtu != card->mtu
               || options->mbufs != card->mbufs || options->vlan != card->vlan || !place->serve
               || strcmp(place->host, card->host) != 0) {
        snprintf(why, size, "that device is open here already, for shards at %.20s, with "
                 "queues=%u,mbufs=%u and mtu=%u: say the same", card->host, count, card->mbufs,
                 card->mtu);
    } else if (shard >= count) {
        snprintf(why, size, "the shards of that device are at ports %u to %u", first,
                 first + count - 1);
    } else if (card->taken >> shard & 1) {
        snprintf(why, size, "the shard at that port is served already");
    } else {
        return NULL;
    }
    return why;
}

/* Null, or why this link cannot share the card with those that have it. */
static const char *check_link(const struct rp_card *card, const struct rp_wire_place *place,
                              const struct rp_dpdk_options *options, char *why, size_t size) {
    if (card->serves) {
        snprintf(why, size, "that device is served in this process: its clients go in another "
                 "process, on a device of their own");
    } else if (card->vdev != options->vdev || memcmp(card->ip, options->ip, sizeof card->ip) != 0
               || card->vlan != options->vlan || card->mbufs != options->mbufs
               || card->mtu != place->mtu) {
        const uint8_t *ip = card->ip;
        snprintf(why, size, "links of this process share that device (%s), with "
                 "ip=%u.%u.%u.%u,mbufs=%u,mtu=%u and %s%.0u: say the same, or use another device",
                 card->vdev == RP_VDEV_PCI ? "port=" : rp_vdev_name(card->vdev), ip[0], ip[1],
                 ip[2], ip[3], card->mbufs, card->mtu, card->vlan ? "vlan=" : "no vlan=",
                 card->vlan);
    } else if (card->members == RP_DPDK_SHARERS) {
        snprintf(why, size, "%u links of this process share that device, and no more can: close "
                 "one, or use another process on another device", card->members);
    } else if (card->mbufs < (card->members + 1) * RP_DPDK_MBUFS_MIN) {
        snprintf(why, size, "mbufs=%u is too few for %u links on that device: say 8 for each, "
                 "where it is opened first", card->mbufs, card->members + 1);
    } else {
        return NULL;
    }
    return why;
}

const char *rp_card_why_not(const struct rp_card *card, const struct rp_wire_place *place,
                            const struct rp_dpdk_options *options, char *why, size_t size) {
    return (place->serve ? check_shard : check_link)(card, place, options, why, size);
}

int rp_card_leads(const struct rp_card *card, uint32_t queue) {
    uint32_t taken = atomic_load(&card->taken);
    return (taken & ((2u << queue) - 1)) == 1u << queue;
}

int rp_card_join(struct rp_wire *wire, struct rp_card *card, uint32_t shard) {
    if (!card->serves && rp_share_join(&card->share, &wire->seat)) {
        return -1;
    }
    wire->share = card->serves ? NULL : &card->share;
    card->members++;
    card->taken |= 1u << shard;
    wire->card = card;
    wire->sockets = &card->sockets;
    wire->pool = card->pool;
    wire->is_shifted = card->is_shifted;
    wire->queues = card->queues.count > 1 ? &card->queues : NULL;
    wire->lane_count = 1; /* its own queue, by which it also sends; then those it may poll beside */
    for (uint32_t i = 0; i < card->queues.count; i++) {
        uint32_t queue = (shard + i) % card->queues.count;
        wire->lanes[i] = (struct rp_lane){card->device, (uint16_t)queue};
    }
    rp_queues_share_out(&card->queues, card->taken);
    wire->devices[0] = card->device;
    wire->device_count = 1;
    wire->vlan = card->vlan;
    wire->reads_sums = card->reads_sums;
    wire->sum = card->writes_sums ? RP_FRAME_SUM_BY_CARD : RP_FRAME_SUM_HERE;
    wire->links = card->vdev == RP_VDEV_TAP ? NULL : &card->links;
    wire->reaps = card->vdev == RP_VDEV_AF_XDP;
    if (card->vdev != RP_VDEV_TAP) { /* a tap's address is its kernel side's */
        uint64_t mac = atomic_load(&card->mac);
        memcpy(wire->mac, &mac, sizeof wire->mac);
        wire->mac_now = &card->mac;
    }
    return 0;
}
