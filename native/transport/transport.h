/* The burst interface: how datagrams get in and out. A transport knows wire limits and addresses,
 * no operations.
 *
 * Receive lends: rx_burst fills packets whose bytes stay valid and unmoved, 8-byte aligned, until
 * rx_release; the engine may release in any order but releases everything it was lent. Transmit
 * lends too: tx_lease hands out empty packets (8-byte aligned, at least mtu bytes), the engine
 * writes each whole and gives them back with tx_send in the order they are to leave; a leased
 * packet that is not sent goes back with size 0. Room is asked before a turn begins: tx_lease may
 * lend fewer than asked, never blocks, and a send is not refused afterwards: what the network does
 * not take is lost and counted by the transport, as on any network.
 *
 * Consecutive packets to one peer, of mtu bytes but the last, may leave as one train (kernel GSO).
 * Sent bytes are the packet's own: sending rows of the ring by reference was measured, and costs
 * more than copying them, since every datagram's CRC reads them anyway (ARCHITECTURE.md).
 *
 * One thread at a time uses a port, all but wait and wake. Nothing here allocates after open.
 */
#ifndef RP_TRANSPORT_H
#define RP_TRANSPORT_H

#include <string.h>

#include "protocol/wire.h"

/* an address, opaque to all but its transport; zero-padded so that bytes compare */
struct rp_peer {
    uint32_t size;
    uint8_t bytes[RP_PEER_BYTES];
};

struct rp_packet {
    uint8_t *data;
    uint32_t size;     /* bytes at data: received, or to be sent; 0 = not sent */
    uint32_t capacity; /* transmit: bytes there is room for at data */
    struct rp_peer peer;
    uint16_t misdirected; /* receive: 1 = it came to a queue that another shard polls */
    uint16_t use_port;    /* then: the port that would bring it there; 0: not known */
    /* transmit, at a server: one more than the number of the session whose client `peer` is; 0:
     * `peer` is no client yet, or no more */
    uint32_t session;
    uint64_t token; /* the transport's own, on receive */
};

struct rp_port; /* a transport's own state; its first member is struct rp_port_base */

struct rp_transport {
    const char *name; /* "loopback", "udp", ... */
    /* Up to `count` (at most RP_BURST) datagrams; returns how many were lent. Never blocks. 0 does
     * not mean that nothing is left: frames that came may not be ours, and more may wait behind. */
    uint32_t (*rx_burst)(struct rp_port *port, struct rp_packet *packets, uint32_t count);
    void (*rx_release)(struct rp_port *port, struct rp_packet *packets, uint32_t count);
    /* Up to `count` (at most RP_BURST) empty packets; returns how many were lent. */
    uint32_t (*tx_lease)(struct rp_port *port, struct rp_packet *packets, uint32_t count);
    /* Takes back exactly the packets of the last lease, in order; sends those with size > 0. */
    void (*tx_send)(struct rp_port *port, struct rp_packet *packets, uint32_t count);
    /* Sleeps until something can be received, at most timeout_ns; returns 1 if so, 0 if not.
     * Changes nothing a burst uses: another thread may run bursts, under the driver's lock,
     * meanwhile. The drivers spin before it. */
    int (*wait)(struct rp_port *port, uint64_t timeout_ns);
    /* In a forked child too, which lets go of its parent's port so: it takes no lock. Descriptors
     * that come or go while a port is open do so while forks are held (os/forks.h). */
    void (*close)(struct rp_port *port);
    /* Makes a wait under way, or the next one, return at once; from any thread. Null: its waits are
     * short. */
    void (*wake)(struct rp_port *port);
    /* A client's: sends from UDP port `local` from now on, 0: from any other one. Between bursts,
     * nothing lent or leased. 0, or a negative status: nothing has changed. Null: it cannot. */
    int (*rebind)(struct rp_port *port, uint16_t local);
    /* The time of a transport that has its own (loopback with a virtual clock); null or 0: the
     * system's. */
    uint64_t (*now)(struct rp_port *port);
    /* Which host an address is on: the same number for all addresses of one host (of one /64, in
     * IPv6; over memif of one link), 0 for this machine's own. Cheap, and pure. Null: all are this
     * machine's, or it cannot be known. */
    uint64_t (*host)(struct rp_port *port, const struct rp_peer *peer);
    /* Writes what it counts of itself, every drop under its reason, and returns how many facts
     * those are; changes nothing. Null: nothing. Use rp_port_facts. */
    uint32_t (*facts)(struct rp_port *port, struct rp_fact facts[RP_FACTS_MAX]);
    /* A sentence once the device is taken away, or a server of this process has closed: nothing
     * comes or goes any more, close the port. From any thread. Null, or null returned: not so. */
    const char *(*lost)(struct rp_port *port);
    /* A sentence for the operator of this host: its interface has another MAC address; or, from
     * then on, another host says it has its address. From any thread. Null, or null returned: there
     * is none. */
    const char *(*remark)(struct rp_port *port);
    /* The end of a sentence: how the operator of this host gets a larger receive_budget. Null: as
     * large as it gets. */
    const char *more_room;
};

struct rp_port_base {
    const struct rp_transport *transport;
    uint32_t mtu;            /* largest datagram, RP_MTU_MIN .. RP_MTU_MAX, a multiple of 8 */
    uint32_t receive_budget; /* full datagrams that may be in flight towards this port */
    struct rp_peer address;  /* where this port is reached, as its transport writes it */
    int is_within; /* its server is in this process: lost, once that has closed, with no device */
    /* datagrams after which a train is sent on while the rest is written, so that both ends work at
     * once; 0: a train leaves whole. Where it is not 0, packets that come back unsent should be
     * free to be leased again: else the rest of the train is lost, and asked for again. */
    uint64_t early;
    /* 1: the last burst left datagrams behind, as far as the transport can know. A server takes a
     * burst of RP_BURST for that too. */
    uint64_t left_behind;
    uint64_t dropped_out;    /* datagrams the network did not take */
    /* datagrams dropped below the engine, a lower bound: where the transport can know. The kernel
     * counts a train of up to 64 that finds no room at the socket as one. */
    uint64_t dropped_in;
};

static inline struct rp_port_base *rp_port_base(struct rp_port *port) {
    return (struct rp_port_base *)(void *)port;
}

static inline const struct rp_transport *rp_port_transport(struct rp_port *port) {
    return rp_port_base(port)->transport;
}

static inline uint32_t rp_port_facts(struct rp_port *port, struct rp_fact facts[RP_FACTS_MAX]) {
    const struct rp_transport *transport = rp_port_transport(port);
    return transport->facts ? transport->facts(port, facts) : 0;
}

/* For a transport's facts(): appends a fact; one too many is left out, a text too long is cut. */
static inline void rp_fact_add(struct rp_fact *facts, uint32_t *count, enum rp_fact_kind kind,
                               const char *name, const char *sentence, uint64_t value) {
    if (*count < RP_FACTS_MAX) {
        struct rp_fact *fact = &facts[(*count)++];
        memset(fact, 0, sizeof *fact);
        memcpy(fact->name, name, strnlen(name, sizeof fact->name - 1));
        memcpy(fact->sentence, sentence, strnlen(sentence, sizeof fact->sentence - 1));
        fact->value = value;
        fact->kind = kind;
    }
}

#endif
