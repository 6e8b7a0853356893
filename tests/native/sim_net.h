/* The simulator's network: ports whose datagrams are lost, repeated, delayed, cut and flipped from
 * one seed.
 *
 * A datagram is decided on when it is sent: dropped, or put once or twice into its target's inbox
 * with a time of arrival. Each inbox is a heap by that time, so reordering is nothing but different
 * delays. Addresses are (port number, generation): a port that moves gets a new generation and what
 * travels to the old one is lost. Where the server's card has several queues, an address decides
 * which one its datagrams reach; the server is told of those that are another shard's, answers
 * WRONG_QUEUE, and the client asks its port for another address. Lent buffers are exactly as large
 * as the datagram and leased ones exactly the mtu, each an allocation of its own, so that the
 * address sanitizer sees every byte read or written beyond them; leased ones are handed out dirty.
 *
 * In some seeds a datagram of a client is replaced by an UPDATE the same client sent long before,
 * under the new packet number: a client that repeats a request although newer ones were answered.
 * Ours seldom does; the server has to bear it.
 */
#ifndef SIM_NET_H
#define SIM_NET_H

#include "base/random.h"
#include "transport/transport.h"

enum sim_net_limits {
    SIM_PORTS_MAX = 12,
    SIM_INBOX_MAX =
        4096, /* datagrams on their way to one port; more are dropped, as by a full switch */
    SIM_LENT_MAX = 256, /* datagrams a port has lent and not got back */
};

struct sim_faults { /* chances in 1/1000 per datagram */
    uint32_t lose, repeat, late, cut, flip;
    uint32_t short_lease; /* per lease: fewer packets are lent than asked for */
    uint32_t again;       /* replaced by an old UPDATE, where there is one worth it */
    uint64_t delay_ns;    /* every datagram takes this to twice this */
    uint64_t late_ns;     /* a late one takes up to this on top */
};

struct sim_datagram {
    uint64_t at;
    uint64_t order; /* settles ties, so that the heap is a total order */
    uint8_t *data;
    uint32_t size;
    struct rp_peer from, to;
};

struct sim_net;

/* An UPDATE request that a client sent. It is worth sending again once a newer one of the same
 * session and table, with a key in common, was answered OK: then a second application shows. */
struct sim_kept {
    uint8_t *data;
    uint32_t size;  /* 0: none is kept */
    uint64_t newer; /* id of the first newer one with a common key; 0: none yet */
    int armed;      /* that one was answered OK */
};

struct sim_port {
    struct rp_port_base base; /* first: a struct rp_port is one of these */
    struct sim_net *net;
    uint32_t number;
    uint32_t generation;
    uint32_t inbox_count;
    uint32_t lent_count;
    uint32_t leased_count;
    uint64_t partitioned_until; /* nothing gets in or out before */
    struct sim_kept kept;
    struct sim_datagram inbox[SIM_INBOX_MAX];
    uint8_t *lent[SIM_LENT_MAX];
    uint8_t *leased[RP_BURST];
};

struct sim_net {
    struct rp_random random;
    struct sim_faults faults;
    uint64_t now;
    uint64_t order;
    uint64_t digest; /* of every datagram sent: two runs of a seed must agree */
    uint64_t sent, lost, repeated, delayed, damaged, again;
    uint32_t shards; /* queues the server's card has: all but the first are polled by others */
    uint32_t port_count;
    struct sim_port *ports[SIM_PORTS_MAX];
    void (*snoop)(void *context, const struct sim_port *from, const struct rp_packet *packet);
    void (*pause)(void *context,
                  const struct sim_port *port); /* called inside bursts: may not return (a kill) */
    void *context;
};

struct sim_port *sim_port_open(struct sim_net *net, uint32_t mtu, uint32_t receive_budget);
/* The process that owned the port died: what it was lent or had leased is forgotten. */
void sim_port_reset(struct sim_port *port);
void sim_port_move(struct sim_port *port); /* a new address from now on */
void sim_port_close(struct sim_port *port);
static inline struct rp_port *sim_port_face(struct sim_port *port) {
    return (struct rp_port *)(void *)port;
}
/* When the next datagram arrives at the port; UINT64_MAX if none is under way. */
uint64_t sim_port_next(const struct sim_port *port);
/* Sends bytes as they are from a port, past all checks: for peers that do not keep to the protocol.
 */
void sim_net_send(struct sim_net *net, const struct sim_port *from, const struct rp_peer *to,
                  const uint8_t *data, uint32_t size);
/* The network side of a seed's own chances, apart from the workload's. */
uint32_t sim_chance(struct rp_random *random, uint32_t permille);

#endif
