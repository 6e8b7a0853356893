/* What transports share: a burst of buffers to write into (all but DPDK), slots to receive into and
 * a burst cut into messages (both ends of ZeroMQ). Consecutive datagrams to one peer are one
 * message while their sum fits RP_MTU_MAX, since a message arrives whole or not at all.
 */
#ifndef RP_TRANSPORT_LEND_H
#define RP_TRANSPORT_LEND_H

#include "transport/transport.h"

struct rp_lease { /* for tx_lease and tx_send */
    uint8_t *memory; /* RP_BURST buffers; freed by the transport */
    uint32_t stride; /* between them */
    uint32_t leased;
};

/* 1, or 0: no memory. */
int rp_lease_open(struct rp_lease *lease, uint32_t mtu);
uint32_t rp_lease_take(struct rp_lease *lease, struct rp_packet *packets, uint32_t count,
                       uint32_t mtu);
/* They were sent. */
void rp_lease_end(struct rp_lease *lease, uint32_t count);

struct rp_slots { /* for rx_burst and rx_release: a packet's token is its slot */
    uint32_t free_count;
    uint32_t free[RP_BURST];
    uint32_t stride;
    uint8_t *memory; /* a buffer for each slot; freed by the transport */
};

/* 1, or 0: no memory. */
int rp_slots_open(struct rp_slots *slots, uint32_t mtu);
static inline uint8_t *rp_slots_buffer(const struct rp_slots *slots, uint32_t slot) {
    return slots->memory + (size_t)slot * slots->stride;
}
void rp_slots_release(struct rp_slots *slots, struct rp_packet *packets, uint32_t count);

/* packets[0 .. count) of one peer, those with bytes in them, as one message; the first and the last
 * have some. */
typedef void rp_send_message(struct rp_port *port, const struct rp_packet *packets, uint32_t count);

/* Ends the lease; returns how many messages it was. */
uint32_t rp_lease_send(struct rp_lease *lease, struct rp_port *port, struct rp_packet *packets,
                       uint32_t count, rp_send_message *message);

#endif
