/* A host's addresses on its network, by ARP (RFC 826, RFC 5227).
 *
 * The host's own address. Before a device is used, PROBES questions ask from 0.0.0.0 which host has
 * the address. Any answer within PROBES * PROBE_NS is a refusal. So is a question of the same kind
 * by a host whose MAC is lower: of two hosts that start at once one goes on. Then the address is
 * announced to all, so that hosts that knew it at another MAC follow at once; and a second time
 * AGAIN_NS later, since frames get lost. While it is used, another host that claims it is counted
 * and reported once, and answered by one announcement in DEFEND_NS. A server does not give its
 * address up: the operator decides.
 *
 * RFC 5227 waits for seconds, for links that take as long. Here the link is awaited first, for
 * LINK_NS, and all hosts are assumed to answer within PROBE_NS. Whenever a link comes up late, or
 * again, the address is announced as at the start: another host that has it by then says so, and is
 * reported as above.
 *
 * The server's address, for a client: asked for at open, and again when sends stay unanswered for
 * QUIET_NS. An answer, or an announcement, moves only a client that asked.
 */
#include <rte_ethdev.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/minmax.h"
#include "dpdk/dpdk_port.h"
#include "protocol/status.h"

enum {
    PROBES = 4,
    ASK_NS = 5000000, /* between questions for a client's server, at open */
    QUIET_SENDS = 2,              /* in vain, before a client looks at the time */
    LOOK_NS = 200000, LINK_LOOK_NS = 10000000,
};
#define PROBE_NS 50000000ull
#define RESOLVE_NS 1000000000ull
#define LINK_NS 4000000000ull
#define AGAIN_NS 2000000000ull
#define DEFEND_NS 10000000000ull
#define QUIET_NS 100000000ull
#define MAC_FORMAT "%02x:%02x:%02x:%02x:%02x:%02x"
#define MAC_BYTES(mac) mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void nap(long ns) {
    const struct timespec time = {0, ns};
    nanosleep(&time, NULL);
}

/* ---- a device's, before it is used ---- */

static void say(const struct rp_claim *claim, const struct rp_frame_host *from) {
    struct rte_mbuf *mbuf = rte_pktmbuf_alloc(claim->pool);
    if (!mbuf) {
        return;
    }
    uint8_t *frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
    mbuf->data_len = (uint16_t)rp_frame_ask(frame, from, claim->host.ip);
    if (claim->vlan) {
        rp_frame_tag(frame, claim->vlan);
        (void)rte_pktmbuf_prepend(mbuf, RP_FRAME_TAG);
    }
    mbuf->pkt_len = mbuf->data_len;
    if (rte_eth_tx_burst(claim->device, 0, &mbuf, 1) == 0) {
        rte_pktmbuf_free(mbuf);
    }
}

/* Does this frame say that another host has the address, or is about to? */
static int denies(const struct rp_claim *claim, struct rte_mbuf *mbuf, uint8_t *mac) {
    static const uint8_t nobody[RP_FRAME_IP];
    struct rp_frame_view view;
    uint8_t *frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
    uint32_t size = mbuf->data_len;
    if (mbuf->nb_segs == 1 && rp_frame_untag(frame, size, claim->vlan)) {
        frame += RP_FRAME_TAG;
        size -= RP_FRAME_TAG;
    } else if (mbuf->nb_segs != 1 || claim->vlan) {
        return 0;
    }
    enum rp_frame_kind kind = rp_frame_read(frame, size, &claim->host, &view);
    int held = kind == RP_FRAME_DROP_conflict
        || (kind == RP_FRAME_ARP_ASKED && memcmp(view.from.ip, nobody, sizeof nobody) == 0
            && memcmp(view.from.mac, claim->host.mac, RP_FRAME_MAC) < 0);
    if (held) {
        memcpy(mac, view.from.mac, RP_FRAME_MAC);
    }
    return held;
}

/* No other thread receives from the device yet, so all its queues are received from here. */
static int hear(const struct rp_claim *claim, uint8_t *mac) {
    struct rte_mbuf *mbufs[RP_BURST];
    int held = 0;
    for (uint16_t queue = 0; queue < claim->queues; queue++) {
        uint16_t got = rte_eth_rx_burst(claim->device, queue, mbufs, RP_BURST);
        for (uint16_t i = 0; i < got; i++) {
            held = held || denies(claim, mbufs[i], mac);
            rte_pktmbuf_free(mbufs[i]);
        }
    }
    return held;
}

static void await_link(const struct rp_claim *claim) {
    uint64_t end = now_ns() + LINK_NS;
    while (!atomic_load(claim->has_carrier) && now_ns() < end
           && rp_wire_now_ns() < claim->until_ns) {
        nap(LINK_LOOK_NS);
    }
}

static int probe(const struct rp_claim *claim, uint8_t *mac) {
    struct rp_frame_host nobody = claim->host;
    memset(nobody.ip, 0, sizeof nobody.ip);
    for (int i = 0; i < PROBES; i++) {
        uint64_t end = now_ns() + PROBE_NS;
        say(claim, &nobody);
        while (now_ns() < end) {
            nap(LOOK_NS);
            if (hear(claim, mac)) {
                return -1;
            }
        }
    }
    return 0;
}

int rp_arp_claim(const struct rp_claim *claim, char *why, size_t size) {
    const uint8_t *ip = claim->host.ip;
    uint8_t mac[RP_FRAME_MAC];
    await_link(claim);
    if (claim->probes && probe(claim, mac)) {
        snprintf(why, size, "a host at " MAC_FORMAT " has %u.%u.%u.%u: end what has it, or take "
                 "another address (probe=off takes it all the same)", MAC_BYTES(mac), ip[0], ip[1],
                 ip[2], ip[3]);
        return -1;
    }
    say(claim, &claim->host);
    return 0;
}

/* ---- a port's, while it is used ---- */

static void ask(struct port *port, const uint8_t *ip) {
    struct rte_mbuf *mbuf = rte_pktmbuf_alloc(port->wire.pool);
    if (mbuf) {
        uint8_t *frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
        rp_dpdk_send_own(port, mbuf, rp_frame_ask(frame, &port->host, ip), 0);
    }
}

void rp_arp_opened(struct port *port) {
    port->announce_ns = port->wire.claimed ? now_ns() + AGAIN_NS : 0;
    /* a link that came before the first look is new to the code that claimed the address */
    port->links = port->wire.links && !port->wire.claimed ? atomic_load(port->wire.links) : 0;
}

/* Its interface may have another MAC address since: a bond that failed over, or an operator. What
 * is sent to the old one does not come any more. */
static int rename_host(struct port *port) {
    const _Atomic uint64_t *now = port->wire.mac_now;
    uint64_t mac = now ? atomic_load_explicit(now, memory_order_relaxed) : 0;
    if (!now || mac == rp_mac_number(port->host.mac)) {
        return 0;
    }
    memcpy(port->host.mac, &mac, sizeof port->host.mac);
    rp_dpdk_pack(&port->base.address, &port->host, 0);
    if (!atomic_load_explicit(&port->is_renamed, memory_order_relaxed)) {
        snprintf(port->renamed, sizeof port->renamed, "this host's interface has another MAC "
                 "address, " MAC_FORMAT ": it goes on under that one", MAC_BYTES(port->host.mac));
        atomic_store_explicit(&port->is_renamed, 1, memory_order_release);
    }
    return 1;
}

void rp_arp_announce(struct port *port) {
    const _Atomic uint32_t *links = port->wire.links;
    uint32_t came = links ? atomic_load_explicit(links, memory_order_relaxed) : 0;
    if (rename_host(port) || came != port->links) {
        port->links = came;
        port->announce_ns = now_ns() + AGAIN_NS;
        ask(port, port->host.ip);
    } else if (port->announce_ns && now_ns() >= port->announce_ns) {
        port->announce_ns = 0;
        ask(port, port->host.ip);
    }
}

void rp_arp_defend(struct port *port, const uint8_t *mac) {
    const uint8_t *ip = port->host.ip;
    uint64_t now = now_ns();
    if (!atomic_load_explicit(&port->is_taken, memory_order_relaxed)) {
        snprintf(port->taken, sizeof port->taken, "another host, at " MAC_FORMAT ", says it has "
                 "this one's address, %u.%u.%u.%u: end one of the two", MAC_BYTES(mac), ip[0],
                 ip[1], ip[2], ip[3]);
        atomic_store_explicit(&port->is_taken, 1, memory_order_release);
    }
    if (now >= port->defend_ns) {
        port->defend_ns = now + DEFEND_NS;
        ask(port, ip);
    }
}

/* ---- a client's server ---- */

static void ask_hop(struct port *port) {
    atomic_store(&port->wire.seat.asked, 1);
    ask(port, port->hop);
}

void rp_arp_resolve(struct port *port, uint64_t until_ns) {
    struct rp_packet packets[RP_BURST];
    struct rp_port *own = (struct rp_port *)port;
    uint64_t now = rp_wire_now_ns(), end = rp_min(until_ns, now + RESOLVE_NS), again = now;
    for (; !port->resolved && now < end; now = rp_wire_now_ns()) {
        if (now >= again) {
            ask_hop(port);
            again = now + ASK_NS;
        }
        nap(LOOK_NS);
        rp_dpdk_transport.rx_release(own, packets,
                                     rp_dpdk_transport.rx_burst(own, packets, RP_BURST));
    }
}

void rp_arp_miss(struct port *port) {
    if (port->resolved) {
        if (port->unanswered++ < QUIET_SENDS) {
            return;
        }
        uint64_t now = now_ns();
        if (port->unanswered == QUIET_SENDS + 1) {
            port->quiet_ns = now;
        }
        if (now - port->quiet_ns < QUIET_NS) {
            return;
        }
        port->quiet_ns = now;
    }
    ask_hop(port);
}

void rp_arp_doubt(struct port *port) {
    port->unanswered = QUIET_SENDS + 1;
    port->quiet_ns = 0;
}

/* Only what was asked for, and only the next hop's address. */
int rp_arp_learn(struct port *port, const struct rp_frame_host *from) {
    if (!port->is_client || !port->wire.seat.asked
        || memcmp(from->ip, port->hop, RP_FRAME_IP) != 0) {
        return -1;
    }
    memcpy(port->server.mac, from->mac, RP_FRAME_MAC);
    port->resolved = 1;
    atomic_store(&port->wire.seat.asked, 0);
    return 0;
}
