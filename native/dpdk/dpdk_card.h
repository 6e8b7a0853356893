/* What the files of a card share: an open device with a network behind it. */
#ifndef RP_DPDK_CARD_H
#define RP_DPDK_CARD_H

#include <stdatomic.h>

#include "dpdk/dpdk_parts.h"

enum {
    RP_CARD_IP_HEADERS = RP_FRAME_HEADERS - RP_FRAME_ETHERNET, /* an interface's mtu counts these */
    RP_CARD_WHY_BYTES = 200,
    RP_CARD_LOOK_US = 250000, /* between two looks at an interface, or a card's link */
};

/* An open device. The first server's port on it is its shard 0's; those of the other shards, which
 * poll its other queues, join it. Where a client opened it, other clients share its queue. */
struct rp_card {
    struct rp_card *next;
    enum rp_vdev vdev;
    char what[sizeof ((struct rp_dpdk_options *)0)->eal.card]; /* an interface or a PCI address */
    char name[RTE_ETH_NAME_MAX_LEN]; /* DPDK's */
    uint16_t device;
    int is_probed;
    int is_configured;
    int is_started;
    int is_opening; /* its opener asks the network for the address, and has let go of the lock */
    uint32_t members;
    _Atomic uint32_t taken; /* bit i: shard i is here */
    uint32_t mtu;
    uint32_t vlan;
    char host[RP_URL_HOST_BYTES]; /* a server's */
    int serves;
    uint8_t ip[RP_FRAME_IP]; /* this host's there */
    int64_t held;            /* the lock of that address on the interface; -1: none */
    int64_t beside;          /* and the one of the interface, with others or alone */
    uint32_t mbufs;
    struct rp_share share;
    struct rp_queues queues;
    _Atomic uint64_t mac; /* as the interrupt thread saw last; by rp_mac_number */
    _Atomic uint32_t macs; /* how often it saw another one */
    struct rte_mempool *pool;
    int is_shifted; /* that pool is */
    atomic_int is_lost; /* unbound: the kernel waits until it is closed; or its interface is gone */
    unsigned interface; /* its number */
    uint32_t program;   /* of AF_XDP, on the interface: the kernel's number for it; 0: not known */
    int spare; /* a file of AF_XDP's, closed at its end for the questions then; -1: none */
    char lost[128];
    _Atomic int has_carrier; /* as the interrupt thread saw last */
    _Atomic int is_short; /* its interface's own mtu is below what it sends */
    _Atomic uint32_t links;  /* how often that came, since it was opened */
    uint32_t kept; /* mbufs of it that its driver takes at its start, and keeps at its end */
    struct rp_sockets sockets;
    int reads_sums;
    int writes_sums;
};

/* Null, or a sentence in why[size]: this port is not one of an open card's missing shards, or its
 * link cannot share the card with the links that have it. */
const char *rp_card_why_not(const struct rp_card *card, const struct rp_wire_place *place,
                            const struct rp_dpdk_options *options, char *why, size_t size);
/* A port's part of the card: a queue, or a place at the one that clients share. -1: no memory. */
int rp_card_join(struct rp_wire *wire, struct rp_card *card, uint32_t shard);
struct rp_opening { /* of one card */
    struct rp_card *card;
    const struct rp_dpdk_options *options;
    uint32_t mtu;
    uint64_t until_ns;
    int status;
    char why[RP_CARD_WHY_BYTES];
};

/* In DPDK's interrupt thread: what was seen of its link. */
static inline void rp_card_see_link(struct rp_card *card, int has_carrier) {
    if (has_carrier && !atomic_load(&card->has_carrier)) {
        atomic_fetch_add(&card->links, 1);
    }
    atomic_store(&card->has_carrier, has_carrier);
}

/* The same: of an interface's MAC address, which its ports take up (dpdk_arp.c). */
static inline void rp_card_see_mac(struct rp_card *card, uint64_t mac) {
    if (mac && mac != atomic_exchange(&card->mac, mac)) {
        atomic_fetch_add(&card->macs, 1);
    }
}

/* `why` has one %s, for `what`. Both return a status. */
int rp_card_fail(struct rp_opening *opening, int status, const char *why, const char *what);
/* The largest datagram, said where one is too large for `packet` bytes; `next`: what to do. */
int rp_card_fail_mtu(struct rp_opening *opening, uint32_t packet, const char *next);

/* On an interface of the kernel's, in DPDK's interrupt thread: dpdk_vdev.c. */
int rp_vdev_check(struct rp_opening *opening); /* before it; may wait for a second */
int rp_vdev_probe(struct rp_opening *opening);
uint32_t rp_vdev_frame(uint32_t mtu); /* bytes of a frame in AF_PACKET's rings */
void rp_vdev_watch(struct rp_card *card);
void rp_vdev_unwatch(struct rp_card *card);

#endif
