/* The fuzz targets' port and input reader: see fuzz_port.h. */
#include "fuzz_port.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "protocol/status.h"

static struct fuzz_port *port_of(struct rp_port *face) {
    return (struct fuzz_port *)(void *)face;
}

static uint32_t rx_burst(struct rp_port *face, struct rp_packet *packets, uint32_t count) {
    struct fuzz_port *port = port_of(face);
    uint32_t got = count < port->in_count ? count : port->in_count;
    memcpy(packets, port->in, got * sizeof *packets);
    memmove(port->in, port->in + got, (port->in_count - got) * sizeof *packets);
    port->in_count -= got;
    port->lent_count += got;
    return got;
}

static void rx_release(struct rp_port *face, struct rp_packet *packets, uint32_t count) {
    struct fuzz_port *port = port_of(face);
    CHECK(count <= port->lent_count, "released what was not lent");
    for (uint32_t i = 0; i < count; i++) {
        free(packets[i].data);
    }
    port->lent_count -= count;
}

static uint32_t tx_lease(struct rp_port *face, struct rp_packet *packets, uint32_t count) {
    struct fuzz_port *port = port_of(face);
    count = count < port->lease_max ? count : port->lease_max;
    for (uint32_t i = 0; i < count; i++) {
        memset(port->lease[i], 0xA5, port->base.mtu);
        packets[i] = (struct rp_packet){.data = port->lease[i], .capacity = port->base.mtu};
    }
    return count;
}

static void tx_send(struct rp_port *face, struct rp_packet *packets, uint32_t count) {
    struct fuzz_port *port = port_of(face);
    for (uint32_t i = 0; i < count; i++) {
        struct rp_view view;
        if (packets[i].size == 0) {
            continue;
        }
        int status = rp_packet_open(packets[i].data, packets[i].size, port->base.mtu, &view);
        CHECK(status == 0, "the engine sent a datagram that does not open: %d", status);
        port->sent(&packets[i], &view);
    }
}

static int port_wait(struct rp_port *face, uint64_t timeout_ns) {
    (void)timeout_ns;
    return port_of(face)->in_count > 0;
}

static void port_close(struct rp_port *face) {
    (void)face;
}

static uint32_t facts_of(struct rp_port *face, struct rp_fact *facts) {
    uint32_t count = 0;
    (void)face;
    rp_fact_add(facts, &count, RP_FACT_OUT, "fact", "what it counts", 7);
    return count;
}

static int port_rebind(struct rp_port *face, uint16_t local) {
    (void)face;
    return local % 2 ? -RP_SYSTEM : 0;
}

static const struct rp_transport fuzz_transport = {
    .name = "fuzzed",
    .rx_burst = rx_burst,
    .rx_release = rx_release,
    .tx_lease = tx_lease,
    .tx_send = tx_send,
    .facts = facts_of,
    .wait = port_wait,
    .close = port_close,
    .rebind = port_rebind,
};

struct rp_peer fuzz_peer(uint8_t number) {
    return (struct rp_peer){.size = 1, .bytes = {number}};
}

void fuzz_port_open(struct fuzz_port *port, uint32_t mtu, uint32_t receive_budget,
                    void (*sent)(const struct rp_packet *packet, const struct rp_view *view)) {
    *port = (struct fuzz_port){.lease_max = RP_BURST, .sent = sent};
    port->base.transport = &fuzz_transport;
    port->base.mtu = mtu;
    port->base.receive_budget = receive_budget;
    for (uint32_t i = 0; i < RP_BURST; i++) {
        port->lease[i] = malloc(mtu);
        CHECK(port->lease[i] != NULL);
    }
}

void fuzz_port_feed(struct fuzz_port *port, const uint8_t *data, uint32_t size,
                    const struct rp_peer *from) {
    if (port->in_count == FUZZ_IN_MAX) {
        return;
    }
    uint8_t *exact = malloc(size ? size : 1);
    CHECK(exact != NULL);
    memcpy(exact, data, size);
    port->in[port->in_count++] =
        (struct rp_packet){.data = exact, .size = size, .capacity = size, .peer = *from};
}

void fuzz_port_drain(struct fuzz_port *port) {
    CHECK(port->lent_count == 0, "%u buffers were not given back", port->lent_count);
    while (port->in_count > 0) {
        free(port->in[--port->in_count].data);
    }
}

uint64_t fuzz_take(struct fuzz_input *input, uint32_t bytes) {
    uint64_t value = 0;
    fuzz_take_bytes(input, (uint8_t *)&value, bytes);
    return value;
}

uint32_t fuzz_take_bytes(struct fuzz_input *input, uint8_t *target, uint32_t bytes) {
    uint32_t count = input->size < bytes ? (uint32_t)input->size : bytes;
    memcpy(target, input->data, count);
    input->data += count;
    input->size -= count;
    return count;
}
