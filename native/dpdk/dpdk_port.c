/* A port: bursts between the engine and a wire.
 *
 * A peer is {IP, UDP port, MAC, lane}, as the frame that brought its datagram had them, and answers
 * go back there; a session is bound to all four by the engine's cookie. A client has one peer, its
 * server. It knows the server by IP and port, since a virtual router or a bond answers from other
 * MACs than ARP names; it sends only to the MAC that ARP named (dpdk_arp.c). Where a datagram came
 * to the wrong queue of a card, the peer also has the port it was sent to.
 *
 * Received bytes stay in their mbuf, moved by some bytes where headers left them unaligned. Sent
 * ones are written in an mbuf, behind room for headers; leased mbufs that were not sent are kept
 * for the next lease.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/minmax.h"
#include "dpdk/dpdk_memif.h"
#include "dpdk/dpdk_port.h"
#include "protocol/status.h"

enum {
    PEER_PORT = 4, PEER_MAC = 6, PEER_LANE = 12, PEER_TO = 13, PEER_SIZE = 15,
    /* offsets behind the IP */
    RELIEVE_EVERY = 16,   /* looks in vain between two reliefs, on a card */
    HEADROOM = RTE_PKTMBUF_HEADROOM + RP_DPDK_SHIFT,
};

/* ---- peers ---- */

void rp_dpdk_pack(struct rp_peer *peer, const struct rp_frame_host *host, uint32_t lane) {
    memset(peer, 0, sizeof *peer);
    peer->size = PEER_SIZE;
    memcpy(peer->bytes, host->ip, RP_FRAME_IP);
    memcpy(peer->bytes + PEER_PORT, &host->port, sizeof host->port);
    memcpy(peer->bytes + PEER_MAC, host->mac, RP_FRAME_MAC);
    peer->bytes[PEER_LANE] = (uint8_t)lane;
}

static uint32_t unpack_peer(struct rp_frame_host *host, const struct rp_peer *peer,
                            uint16_t *spoken_to) {
    uint16_t port;
    memcpy(&port, peer->bytes + PEER_TO, sizeof port);
    *spoken_to = port ? port : *spoken_to;
    host->first_port = host->port_count = 0;
    memcpy(host->ip, peer->bytes, RP_FRAME_IP);
    memcpy(&host->port, peer->bytes + PEER_PORT, sizeof host->port);
    memcpy(host->mac, peer->bytes + PEER_MAC, RP_FRAME_MAC);
    return peer->bytes[PEER_LANE];
}

/* ---- a lane ---- */

/* Within a burst: null while this port has its device to itself. */
static struct rp_share *shared(const struct port *port) {
    struct rp_share *share = port->wire.share;
    return share && atomic_load_explicit(&share->is_shared, memory_order_relaxed) ? share : NULL;
}

static struct rp_share *begin_to_send(struct port *port) {
    rp_burst_begin(&port->bursts);
    struct rp_share *share = shared(port);
    if (share) {
        pthread_mutex_lock(&share->sending);
    }
    return share;
}

static void end_of_sending(struct port *port, struct rp_share *share) {
    if (share) {
        pthread_mutex_unlock(&share->sending);
    }
    rp_burst_end(&port->bursts);
}

static uint32_t receive(struct port *port, uint32_t lane, struct rte_mbuf **mbufs, uint32_t count) {
    const struct rp_lane *from = &port->wire.lanes[lane];
    if (port->wire.down) {
        return 0;
    }
    rp_burst_begin(&port->bursts);
    struct rp_share *share = shared(port);
    const struct rp_queues *queues = port->wire.queues;
    uint32_t got = queues && !rp_queues_polls(queues, port->wire.lanes[0].queue, from->queue) ? 0
        : port->wire.served ? rp_memif_receive(port->wire.served, lane, mbufs, count)
        : share
        ? rp_share_receive(share, &port->wire.seat, from, port->wire.vlan, mbufs, count)
        : rte_eth_rx_burst(from->device, from->queue, mbufs, (uint16_t)count);
    rp_burst_end(&port->bursts);
    return got;
}

/* Sends what the device takes; drops the rest. */
static void transmit(struct port *port, struct rte_mbuf **mbufs, uint32_t count, uint32_t lane) {
    const struct rp_lane *to = &port->wire.lanes[lane];
    uint32_t sent = 0, last = !port->wire.down;
    struct rp_share *share = begin_to_send(port);
    /* where its server sleeps already, DPDK's driver wakes it */
    int is_woken = port->wire.bell && rp_bell_is_wanted(port->wire.bell);
    while (sent < count && last) { /* a device may take its own burst's worth at a time */
        last = port->wire.served
            ? rp_memif_transmit(port->wire.served, lane, mbufs + sent, count - sent)
            : rte_eth_tx_burst(to->device, to->queue, mbufs + sent, (uint16_t)(count - sent));
        sent += last;
    }
    if (port->wire.bell && !is_woken) {
        rp_bell_ring(port->wire.bell);
    }
    end_of_sending(port, share);
    port->base.dropped_out += count - sent;
    if (sent == 0 && port->is_client && port->wire.link) {
        rp_memif_mend(&port->wire);
        rp_arp_doubt(port);
    }
    while (sent < count) {
        rte_pktmbuf_free(mbufs[sent++]);
    }
}

/* ---- frames of the host's own ---- */

static void drop(struct port *port, struct rte_mbuf *mbuf, enum rp_frame_kind why) {
    port->drops[why]++;
    port->base.dropped_in++;
    rte_pktmbuf_free(mbuf);
}

static void tag(struct rte_mbuf *mbuf, uint32_t vlan) {
    rp_frame_tag(rte_pktmbuf_mtod(mbuf, uint8_t *), vlan);
    (void)rte_pktmbuf_prepend(mbuf, RP_FRAME_TAG);
}

void rp_dpdk_send_own(struct port *port, struct rte_mbuf *mbuf, uint32_t size, uint32_t lane) {
    mbuf->data_len = (uint16_t)size;
    mbuf->pkt_len = size;
    mbuf->ol_flags = 0;
    if (port->wire.vlan) {
        tag(mbuf, port->wire.vlan);
    }
    transmit(port, &mbuf, 1, lane);
}

/* ---- receiving ---- */

static int is_server(const struct port *port, const struct rp_frame_host *from) {
    return from->port == port->server.port
           && memcmp(from->ip, port->server.ip, RP_FRAME_IP) == 0;
}

/* The shard at that port: else its sender would be told to go on to it for ever. */
static int is_served(const struct port *port, uint16_t to_port) {
    uint32_t shard = (uint32_t)to_port - port->host.first_port;
    return rp_queues_polls(port->wire.queues, shard, shard);
}

/* It is for another shard of this host. */
static void misdirect(struct port *port, const struct rp_frame_view *view,
                      struct rp_packet *packet) {
    packet->misdirected = 1;
    packet->use_port = rp_queues_port(port->wire.queues, view, port->host.ip, port->named++);
    memcpy(packet->peer.bytes + PEER_TO, &view->to_port, sizeof view->to_port);
}

static uint32_t lend(struct port *port, struct rte_mbuf *mbuf, uint8_t *frame,
                     const struct rp_frame_view *view, uint32_t lane, struct rp_packet *packet) {
    uint8_t *data = frame + view->offset;
    size_t shift = (uintptr_t)data % 8;
    if (view->size > port->base.mtu) {
        drop(port, mbuf, RP_FRAME_DROP_oversized);
        return 0;
    }
    if (view->to_port != port->host.port && !is_served(port, view->to_port)) {
        drop(port, mbuf, RP_FRAME_DROP_closed_port);
        return 0;
    }
    if (port->is_client && !is_server(port, &view->from)) {
        drop(port, mbuf, RP_FRAME_DROP_stranger);
        return 0;
    }
    if (shift) {
        memmove(data - shift, data, view->size);
    }
    packet->data = data - shift;
    packet->size = view->size;
    packet->capacity = 0;
    packet->misdirected = 0;
    packet->token = (uintptr_t)mbuf;
    if (port->is_client) {
        packet->peer = port->server_peer;
        port->unanswered = 0;
    } else {
        rp_dpdk_pack(&packet->peer, &view->from, lane);
    }
    if (view->to_port != port->host.port) {
        misdirect(port, view, packet);
    }
    return 1;
}

/* The device's verdict on this frame's checksums. DPDK's NONE: the sum is not right there, but the
 * data are known to be, as between virtual machines. */
static uint32_t sums_of(const struct rte_mbuf *mbuf) {
    uint64_t ip = mbuf->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
    uint64_t udp = mbuf->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
    uint32_t sums = ip == RTE_MBUF_F_RX_IP_CKSUM_BAD ? RP_FRAME_IP_BAD
        : ip == RTE_MBUF_F_RX_IP_CKSUM_UNKNOWN ? 0 : RP_FRAME_IP_GOOD;
    return sums | (udp == RTE_MBUF_F_RX_L4_CKSUM_BAD ? RP_FRAME_UDP_BAD
                   : udp == RTE_MBUF_F_RX_L4_CKSUM_UNKNOWN ? 0u : RP_FRAME_UDP_GOOD);
}

/* Frames that are no datagram for this port: answered, noted or dropped. */
static void take_other(struct port *port, struct rte_mbuf *mbuf, uint32_t lane,
                       enum rp_frame_kind kind, const struct rp_frame_view *view) {
    uint8_t *frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
    switch (kind) {
    case RP_FRAME_ARP_ASKED:
        rp_dpdk_send_own(port, mbuf, rp_frame_answer_arp(frame, &port->host), lane);
        return;
    case RP_FRAME_ECHO_ASKED:
        rp_dpdk_send_own(port, mbuf, rp_frame_answer_echo(frame, &port->host), lane);
        return;
    case RP_FRAME_ARP_ANSWER:
        if (rp_arp_learn(port, &view->from)) {
            drop(port, mbuf, RP_FRAME_DROP_arp);
        } else {
            rte_pktmbuf_free(mbuf);
        }
        return;
    case RP_FRAME_DROP_conflict:
        rp_arp_defend(port, view->from.mac);
        drop(port, mbuf, kind);
        return;
    default:
        drop(port, mbuf, kind);
    }
}

/* Returns how many packets were lent of it: 1 or 0. */
static uint32_t take(struct port *port, struct rte_mbuf *mbuf, uint32_t lane,
                     struct rp_packet *packet) {
    struct rp_frame_view view;
    uint8_t *frame = rte_pktmbuf_mtod(mbuf, uint8_t *);
    uint32_t sums = port->wire.reads_sums ? sums_of(mbuf) : RP_FRAME_SUMS_UNKNOWN;
    if (mbuf->nb_segs != 1) {
        drop(port, mbuf, RP_FRAME_DROP_oversized);
        return 0;
    }
    if (port->wire.vlan) {
        if (!rp_frame_untag(frame, mbuf->data_len, port->wire.vlan)) {
            drop(port, mbuf, RP_FRAME_DROP_other_vlan);
            return 0;
        }
        frame = (uint8_t *)rte_pktmbuf_adj(mbuf, RP_FRAME_TAG);
    }
    enum rp_frame_kind kind =
        rp_frame_read_summed(frame, mbuf->data_len, sums, &port->host, &view);
    if (kind == RP_FRAME_DROP_vlan && rp_frame_untag(frame, mbuf->data_len, 0)) {
        frame = (uint8_t *)rte_pktmbuf_adj(mbuf, RP_FRAME_TAG); /* a priority was all it said */
        kind = rp_frame_read_summed(frame, mbuf->data_len, sums, &port->host, &view);
    }
    if (kind == RP_FRAME_DATAGRAM) {
        return lend(port, mbuf, frame, &view, lane, packet);
    }
    take_other(port, mbuf, lane, kind, &view);
    return 0;
}

/* An AF_XDP device returns sent mbufs only in its next send. Without a send, an empty pool would
 * stay empty: no frame could be received, and so none answered. */
static void reap(struct port *port) {
    struct rp_share *share = begin_to_send(port);
    for (uint32_t lane = 0; lane < port->wire.lane_count; lane++) {
        (void)rte_eth_tx_burst(port->wire.lanes[lane].device, port->wire.lanes[lane].queue, NULL,
                               0);
    }
    end_of_sending(port, share);
}

/* Nothing came for a while, perhaps for want of mbufs: then the mbufs kept for answers are better
 * used for frames that wait. Returns for how many frames to look now. The AF_XDP driver needs a
 * free mbuf for each frame that it hands out. Where fewer are free than it would hand out it hands
 * out none, however often it is asked: so it is asked for one. */
static uint32_t relieve(struct port *port, uint32_t count) {
    port->idle = 0;
    atomic_store_explicit(&port->sleep.is_stale, 0, memory_order_relaxed);
    rp_arp_announce(port);
    rte_pktmbuf_free_bulk(port->kept, port->kept_count);
    port->kept_count = 0;
    if (port->wire.reaps) {
        reap(port);
        return 1;
    }
    return count;
}

static uint32_t dpdk_rx_burst(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct port *port = own(opaque);
    uint32_t lanes = port->wire.lane_count, lent = 0, came = 0;
    assert(count <= RP_BURST);
    if (port->wire.queues) { /* of shards that are not served now */
        lanes = port->wire.queues->count;
    } else if (port->wire.used) {
        lanes = atomic_load_explicit(port->wire.used, memory_order_acquire);
    }
    rp_eal_register_thread();
    if (port->idle >= RELIEVE_EVERY
        || (port->wire.card
            && atomic_load_explicit(&port->sleep.is_stale, memory_order_relaxed))) {
        count = relieve(port, count);
    }
    for (uint32_t i = 0; i < lanes && lent < count; i++) {
        uint32_t lane = port->next_lane;
        struct rte_mbuf *mbufs[RP_BURST];
        uint32_t got = receive(port, lane, mbufs, count - lent);
        came += got;
        for (uint32_t k = 0; k < got; k++) {
            lent += take(port, mbufs[k], port->wire.queues ? 0 : lane, &packets[lent]);
        }
        port->next_lane = lane + 1 >= lanes ? 0 : lane + 1;
    }
    if (came) { /* one thread at a time runs bursts */
        uint64_t before = atomic_load_explicit(&port->sleep.received, memory_order_relaxed);
        atomic_store_explicit(&port->sleep.received, before + came, memory_order_relaxed);
    }
    if (!lent && port->wire.card) {
        port->idle++;
    }
    return lent;
}

static void dpdk_rx_release(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct rte_mbuf *mbufs[RP_BURST];
    assert(count <= RP_BURST);
    for (uint32_t i = 0; i < count; i++) {
        mbufs[i] = (struct rte_mbuf *)(uintptr_t)packets[i].token;
        packets[i].data = NULL;
    }
    rp_pool_give(own(opaque)->wire.pool, mbufs, count);
}

/* ---- sending ---- */

static uint32_t dpdk_tx_lease(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct port *port = own(opaque);
    uint16_t headroom = port->wire.is_shifted ? RTE_PKTMBUF_HEADROOM : HEADROOM;
    assert(port->leased_count == 0);
    rp_eal_register_thread();
    count = rp_min(count, RP_BURST);
    if (port->kept_count < count) {
        uint32_t more = count - port->kept_count;
        if (rp_pool_take(port->wire.pool, port->kept + port->kept_count, more, headroom) == 0) {
            port->kept_count = count;
        } else {
            port->lacked++;
            if (port->wire.reaps) { /* a port that cannot answer is not relieved */
                reap(port);
            }
        }
        if (port->kept_count == 0) { /* one answer at a time is an end to being short */
            port->kept_count = rp_pool_take(port->wire.pool, port->kept, 1, headroom) == 0;
        }
    }
    count = rp_min(count, port->kept_count);
    for (uint32_t i = 0; i < count; i++) {
        struct rte_mbuf *mbuf = port->kept[--port->kept_count];
        port->leased[i] = mbuf;
        packets[i].data = (uint8_t *)mbuf->buf_addr + headroom + RP_FRAME_HEADERS;
        packets[i].size = 0;
        packets[i].capacity = port->base.mtu;
        packets[i].token = 0;
    }
    port->leased_count = count;
    return count;
}

/* Writes the headers; returns the lane, or RP_DPDK_LANES where there is no way to its peer. */
static uint32_t address(struct port *port, struct rte_mbuf *mbuf, const struct rp_packet *packet) {
    struct rp_frame_host to, from = port->host;
    uint32_t lane = port->is_client ? 0 : unpack_peer(&to, &packet->peer, &from.port);
    assert(packet->size <= packet->capacity);
    if (port->is_client ? !port->resolved : lane >= port->wire.lane_count) {
        return RP_DPDK_LANES;
    }
    rp_frame_write(packet->data, packet->size, &from, port->is_client ? &port->server : &to,
                   port->wire.sum);
    if (port->wire.sum == RP_FRAME_SUM_BY_CARD) {
        mbuf->ol_flags = RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_UDP_CKSUM;
        mbuf->l2_len = RP_FRAME_ETHERNET + (port->wire.vlan ? RP_FRAME_TAG : 0);
        mbuf->l3_len = RP_FRAME_IP_HEADER;
    }
    mbuf->data_len = (uint16_t)(RP_FRAME_HEADERS + packet->size);
    mbuf->pkt_len = mbuf->data_len;
    if (port->wire.vlan) {
        tag(mbuf, port->wire.vlan);
    }
    return lane;
}

static void dpdk_tx_send(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct port *port = own(opaque);
    struct rte_mbuf *mbufs[RP_BURST];
    uint32_t waiting = 0, lane = 0, sized = 0;
    assert(count == port->leased_count);
    port->leased_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t to = packets[i].size ? address(port, port->leased[i], &packets[i]) : RP_DPDK_LANES;
        sized += packets[i].size != 0;
        packets[i].data = NULL;
        if (to == RP_DPDK_LANES) {
            port->base.dropped_out += packets[i].size != 0;
            port->no_way += packets[i].size != 0;
            port->kept[port->kept_count++] = port->leased[i];
            continue;
        }
        if (waiting && to != lane) {
            transmit(port, mbufs, waiting, lane);
            waiting = 0;
        }
        lane = to;
        mbufs[waiting++] = port->leased[i];
    }
    if (waiting) {
        transmit(port, mbufs, waiting, lane);
    }
    if (port->is_client && sized) {
        rp_arp_miss(port);
    }
}

/* ---- life ---- */

static int dpdk_wait(struct rp_port *opaque, uint64_t timeout_ns) {
    return rp_sleep_wait(&own(opaque)->sleep, &own(opaque)->wire, timeout_ns);
}

static void dpdk_wake(struct rp_port *opaque) {
    rp_sleep_wake(&own(opaque)->sleep);
}

static int dpdk_rebind(struct rp_port *opaque, uint16_t local) {
    struct port *port = own(opaque);
    uint16_t before = port->host.port;
    if (!port->is_client) {
        return -RP_BAD_ARGUMENT;
    }
    while (!local || local == before) {
        local = rp_dpdk_some_port();
    }
    if (port->wire.share && rp_share_name(port->wire.share, &port->wire.seat, local)) {
        return -RP_SYSTEM; /* another link of this process has it */
    }
    port->host.port = local;
    rp_dpdk_pack(&port->base.address, &port->host, 0);
    return 0;
}

static uint32_t dpdk_facts(struct rp_port *opaque, struct rp_fact *facts) {
    struct port *port = own(opaque);
    uint32_t count = 0;
    for (int kind = 0; kind < RP_FRAME_KINDS; kind++) {
        if (rp_frame_name(kind)) {
            rp_fact_add(facts, &count, RP_FACT_IN, rp_frame_name(kind), rp_frame_sentence(kind),
                        port->drops[kind]);
        }
    }
    rp_fact_add(facts, &count, RP_FACT_OUT, "no_way",
                "datagrams to a peer that no lane reaches, or whose MAC is not known",
                port->no_way);
    rp_fact_add(facts, &count, RP_FACT_OUT, "not_taken",
                "frames the device did not take: its ring is full, or its link down",
                port->base.dropped_out - port->no_way);
    rp_fact_add(facts, &count, RP_FACT_COUNT, "mbufs_lacked",
                "times no mbuf was free for a datagram to be sent", port->lacked);
    rp_fact_add(facts, &count, RP_FACT_IN, "ring_full",
                "frames another link of this process brought, while this one did not look",
                port->wire.seat.overflowed);
    rp_burst_begin(&port->bursts);
    rp_wire_facts(&port->wire, facts, &count);
    rp_burst_end(&port->bursts);
    return count;
}

static void dpdk_close(struct rp_port *opaque) {
    struct port *port = own(opaque);
    if (port->process != getpid()) { /* DPDK's memory is shared with the process that opened it */
        rp_sleep_forget(&port->sleep);
        free(port);
        return;
    }
    while (port->kept_count) {
        rte_pktmbuf_free(port->kept[--port->kept_count]);
    }
    rp_bursts_close(&port->bursts);
    rp_wire_close(&port->wire);
    rp_sleep_close(&port->sleep); /* the wire first: until then other links may wake this one */
    free(port);
}

static const char *dpdk_lost(struct rp_port *opaque) {
    const struct rp_wire *wire = &own(opaque)->wire;
    return wire->card ? rp_card_lost(wire->card)
        : own(opaque)->base.is_within ? rp_ring_lost(wire->hub) : NULL;
}

/* Rings are of this process, so of this machine. A memif peer is on this machine too, and need not
 * be trusted: its link counts as a host, whatever addresses its frames name. */
static uint64_t dpdk_host(struct rp_port *opaque, const struct rp_peer *peer) {
    const struct rp_wire *wire = &own(opaque)->wire;
    uint32_t ip;
    memcpy(&ip, peer->bytes, sizeof ip);
    return wire->card ? ip : wire->served ? peer->bytes[PEER_LANE] + 1u : 0;
}

static const char *dpdk_remark(struct rp_port *opaque) {
    struct port *port = own(opaque);
    return atomic_load_explicit(&port->is_taken, memory_order_acquire) ? port->taken
        : atomic_load_explicit(&port->is_renamed, memory_order_acquire) ? port->renamed : NULL;
}

const struct rp_transport rp_dpdk_transport = {
    .name = "dpdk",
    .rx_burst = dpdk_rx_burst,
    .rx_release = dpdk_rx_release,
    .tx_lease = dpdk_tx_lease,
    .tx_send = dpdk_tx_send,
    .wait = dpdk_wait,
    .close = dpdk_close,
    .wake = dpdk_wake,
    .rebind = dpdk_rebind,
    .facts = dpdk_facts,
    .host = dpdk_host,
    .lost = dpdk_lost,
    .remark = dpdk_remark,
};
