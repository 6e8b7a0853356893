/* A port of dpdk://, shared by its bursts (dpdk_port.c) and its opening (dpdk_open.c). */
#ifndef RP_DPDK_PORT_H
#define RP_DPDK_PORT_H

#include <sys/types.h>

#include "dpdk_parts.h"

struct port {
    struct rp_port_base base;
    struct rp_frame_host host;
    struct rp_frame_host server; /* a client's; its MAC once resolved */
    struct rp_peer server_peer;
    uint8_t hop[RP_FRAME_IP]; /* a client's: who is asked for a MAC: its server, or its gateway */
    struct rp_wire wire;
    struct rp_bursts bursts;
    pid_t process;
    int is_client;
    int resolved;
    uint32_t unanswered;
    uint32_t named; /* ports told to senders whose datagrams came to the wrong queue */
    uint32_t next_lane; /* where the next look begins, so that none starves */
    uint32_t idle; /* looks in vain on a card, since the last relief */
    uint32_t leased_count;
    uint32_t kept_count;
    struct rte_mbuf *leased[RP_BURST];
    struct rte_mbuf *kept[RP_BURST];
    uint64_t drops[RP_FRAME_KINDS];
    uint64_t no_way; /* of dropped_out: to nobody a frame could reach */
    uint64_t lacked; /* leases that ended for want of an mbuf */
};

static inline struct port *own(struct rp_port *port)
{
    return (struct port *)(void *)port;
}

extern const struct rp_transport rp_dpdk_transport;

/* As a peer, of a frame that came on this lane. */
void rp_dpdk_pack(struct rp_peer *peer, const struct rp_frame_host *host, uint32_t lane);
uint16_t rp_dpdk_some_port(void);
/* Asks who has the address of the next hop; a burst that brings the answer notes it. */
void rp_dpdk_ask(struct port *port);

#endif
