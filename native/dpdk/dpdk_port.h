/* A port of dpdk://, shared by its bursts (dpdk_port.c) and its opening (dpdk_open.c). */
#ifndef RP_DPDK_PORT_H
#define RP_DPDK_PORT_H

#include <sys/types.h>

#include "dpdk/dpdk_parts.h"
#include "dpdk/dpdk_sleep.h"

struct port {
    struct rp_port_base base;
    struct rp_frame_host host;
    struct rp_frame_host server; /* a client's; its MAC once resolved */
    struct rp_peer server_peer;
    uint8_t hop[RP_FRAME_IP]; /* a client's: its server, or its gateway: asked for a MAC */
    struct rp_wire wire;
    struct rp_bursts bursts;
    struct rp_sleep sleep;
    pid_t process;
    int is_client;
    int resolved;
    uint32_t unanswered; /* sends of a client, since it heard its server */
    uint64_t quiet_ns;   /* when they were too many, or it asked last */
    uint32_t links;       /* that have come when it was announced last */
    uint64_t announce_ns; /* when the address is announced again; 0: it was */
    uint64_t defend_ns;   /* not before: another announcement against another host's */
    _Atomic int is_taken; /* another host has said so */
    char taken[120];
    _Atomic int is_renamed; /* its interface got another MAC address, and so did it */
    char renamed[120];
    uint32_t named; /* ports named to senders whose datagrams came to the wrong queue */
    uint32_t next_lane; /* where the next look begins, so that none starves */
    uint32_t idle; /* looks in vain on a card, since the last relief */
    uint32_t leased_count;
    uint32_t kept_count;
    struct rte_mbuf *leased[RP_BURST];
    struct rte_mbuf *kept[RP_BURST];
    uint64_t drops[RP_FRAME_KINDS];
    uint64_t no_way; /* of dropped_out: to peers that no frame can reach */
    uint64_t lacked; /* leases that ended for want of an mbuf */
};

static inline struct port *own(struct rp_port *port) {
    return (struct port *)(void *)port;
}

extern const struct rp_transport rp_dpdk_transport;

/* As a peer, of a frame that came on this lane. */
void rp_dpdk_pack(struct rp_peer *peer, const struct rp_frame_host *host, uint32_t lane);
uint16_t rp_dpdk_some_port(void);
/* Sends one frame of `size` bytes that lies in `mbuf`. */
void rp_dpdk_send_own(struct port *port, struct rte_mbuf *mbuf, uint32_t size, uint32_t lane);

/* dpdk_arp.c: a port on the network. _opened: it was opened. _announce: announces its address,
 * where that is due, after it took up its interface's MAC address. _defend: another host claims the
 * address. */
void rp_arp_opened(struct port *port);
void rp_arp_announce(struct port *port);
void rp_arp_defend(struct port *port, const uint8_t *mac);
/* A client's. _resolve: asks where its server is, for a second at most and no longer than until_ns.
 * _miss: a send had no answer yet. _learn: an answer has come; 0 where it was asked for. */
void rp_arp_resolve(struct port *port, uint64_t until_ns);
void rp_arp_miss(struct port *port);
void rp_arp_doubt(struct port *port); /* the next send asks */
int rp_arp_learn(struct port *port, const struct rp_frame_host *from);

#endif
