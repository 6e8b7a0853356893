/* The port behind the fuzz targets: what is fed lies in buffers of exactly its size, so that the
 * address sanitizer sees a byte too far, and what the engine sends is opened, checked and handed
 * to the target. */
#ifndef FUZZ_PORT_H
#define FUZZ_PORT_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/flow.h"
#include "transport/transport.h"

enum { FUZZ_IN_MAX = 64 };

struct fuzz_port {
    struct rp_port_base base; /* first: a struct rp_port is one of these */
    uint32_t in_count;
    uint32_t lent_count;
    uint32_t lease_max; /* packets one lease lends at most */
    struct rp_packet in[FUZZ_IN_MAX];
    uint8_t *lease[RP_BURST];
    void (*sent)(const struct rp_packet *packet, const struct rp_view *view);
};

void fuzz_port_open(struct fuzz_port *port, uint32_t mtu, uint32_t receive_budget,
                    void (*sent)(const struct rp_packet *packet, const struct rp_view *view));
/* Queues a copy for the next burst; dropped where the queue is full. */
void fuzz_port_feed(struct fuzz_port *port, const uint8_t *data, uint32_t size,
                    const struct rp_peer *from);
/* Forgets what was not received; the engine must have given back everything it was lent. */
void fuzz_port_drain(struct fuzz_port *port);
struct rp_peer fuzz_peer(uint8_t number);

static inline struct rp_port *fuzz_port_face(struct fuzz_port *port) {
    return (struct rp_port *)(void *)port;
}

struct fuzz_input { /* reads an input from its front; beyond its end there are zeros */
    const uint8_t *data;
    size_t size;
};

uint64_t fuzz_take(struct fuzz_input *input, uint32_t bytes);
/* Up to `bytes` of what is left, copied to target; returns how many. */
uint32_t fuzz_take_bytes(struct fuzz_input *input, uint8_t *target, uint32_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
