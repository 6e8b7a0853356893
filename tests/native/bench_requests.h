/* bench_requests.h: a full server, and requests that cost nothing to bring, for programs that
 * measure the server alone.
 *
 * The port's network is an array: put_*() seal one datagram each into it, requests_turn() is one
 * turn that takes them all, and answers are counted and dropped. Steps are of 48 bytes, each an
 * item of its own. Uses little of what changes between versions (`make bench-track` compiles it
 * with the headers of both): script.h's calls and the wire.
 */
#ifndef RP_BENCH_REQUESTS_H
#define RP_BENCH_REQUESTS_H

#include "bench.h"
#include "script.h"

enum { STEP = 48, STREAMS = 16, KEYS = 80 };

/* ---- the port ---- */

struct sink {
    struct rp_port_base base;
    struct rp_packet in[RP_BURST];
    uint32_t in_count;
    uint8_t *send;
    uint64_t sent;
};

static uint32_t sink_rx(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct sink *port = (void *)opaque;
    count = port->in_count < count ? port->in_count : count;
    memcpy(packets, port->in, count * sizeof *packets);
    port->in_count = 0;
    return count;
}

static void sink_release(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    (void)opaque;
    (void)packets;
    (void)count;
}

static uint32_t sink_lease(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct sink *port = (void *)opaque;
    for (uint32_t i = 0; i < count; i++) {
        packets[i] = (struct rp_packet){.data = port->send + (size_t)i * port->base.mtu,
                                        .capacity = port->base.mtu};
    }
    return count;
}

static void sink_send(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct sink *port = (void *)opaque;
    for (uint32_t i = 0; i < count; i++) {
        port->sent += packets[i].size > 0;
    }
}

static const struct rp_transport sink_transport = {.name = "sink", .rx_burst = sink_rx,
                                                   .rx_release = sink_release,
                                                   .tx_lease = sink_lease,
                                                   .tx_send = sink_send};

/* ---- the server ---- */

static struct script script;
static struct script_client client;
static struct sink port;
static uint64_t next_id[RP_OP_COUNT]; /* ids count by operation, from 1 */
static uint64_t next_sequence;
static uint64_t next_step[STREAMS];

static void requests_turn(void) {
    rp_server_turn(script.server, (struct rp_port *)&port, script.now_ns += 1000);
}

static void put(uint8_t op, const void *body, uint32_t size) {
    static uint8_t datagrams[RP_BURST][2048] __attribute__((aligned(64)));
    uint8_t *data = datagrams[port.in_count];
    uint32_t padded = (size + 7) & ~7u;
    padded = padded > RP_REQUEST_BODY_MIN ? padded : RP_REQUEST_BODY_MIN;
    CHECK(RP_HEADER_BYTES + padded <= 1400);
    struct rp_message message = {.op = op, .want = 64, .id = ++next_id[op]};
    memset(rp_packet_body(data), 0, padded);
    if (size > 0) {
        memcpy(rp_packet_body(data), body, size);
    }
    size = rp_packet_seal(data, &message, padded, client.connection, ++client.packet);
    port.in[port.in_count++] =
        (struct rp_packet){.data = data, .size = size, .peer = client.peer};
}

/* Runs of `count` steps, each of a stream of its own; the newest `creates` of the first made items
 * one by one, else all with their run. */
static void put_runs(uint32_t runs, uint32_t count, uint32_t creates) {
    static struct script_push push;
    static uint8_t bytes[27 * STEP];
    script_push_begin(&push, rp_table_epoch(rp_server_table(script.server, 0)));
    for (uint32_t i = 0; i < runs; i++) {
        struct rp_run run = {.sequence = next_sequence, .step = next_step[i], .stream = (uint16_t)i,
                             .flags = creates ? 0 : RP_RUN_ITEM, .count = (uint16_t)count,
                             .piece_count = 1, .size = count * STEP};
        script_push_bytes(&push, run, bytes);
        next_sequence += count;
        next_step[i] += count;
    }
    for (uint32_t i = 0; i < creates; i++) {
        script_push_create(&push, 0, next_step[0] - creates + i, 1.0 + i);
    }
    put(RP_OP_PUSH, push.body, push.size);
}

static void put_sample(uint32_t count) {
    struct rp_sample request = {.count = count, .budget = 32};
    put(RP_OP_SAMPLE, &request, sizeof request);
}

static void put_update(void) {
    static struct {
        struct rp_update update;
        struct rp_update_entry entries[KEYS];
    } body;
    static uint64_t seed;
    const struct rp_table *table = rp_server_table(script.server, 0);
    uint64_t capacity = rp_table_capacity(table);
    seed++;
    body.update = (struct rp_update){.epoch = rp_table_epoch(table), .count = KEYS};
    for (uint32_t i = 0; i < KEYS; i++) {
        uint64_t back = (seed * 7919 + i * 104729) % (capacity / 2);
        body.entries[i] = (struct rp_update_entry){capacity + next_sequence - 1 - back, 1.0 + i};
    }
    put(RP_OP_UPDATE, &body, sizeof body);
}

static void put_ping(void) {
    put(RP_OP_PING, NULL, 0);
}

/* A server whose ring was written twice round. */
static void requests_open(uint32_t capacity, uint32_t window, uint32_t batch_max) {
    static const struct rp_column column = {0, STEP, 0};
    static const struct rp_pick pick = {0, 0};
    static const struct rp_plan plan = {"plain", &pick, 1};
    static struct rp_table_config table;
    table = (struct rp_table_config){
        .name = "bench", .capacity = capacity, .step_bytes = STEP, .columns = &column,
        .column_count = 1, .plans = &plan, .plan_count = 1, .alpha = 0.6, .writers_max = 1,
        .streams_max = STREAMS, .window = window, .pieces_max = 1};
    struct rp_server_config config = script_config(&table);
    config.table_count = 1;
    config.batch_max = batch_max;
    config.records = 8;
    config.weights_max = 0;
    script_open(&script, &config);
    client = script_client(1);
    script_connect(&script, &client);
    script_writer(&script, &client, 0, STREAMS);
    port.base = (struct rp_port_base){.transport = &sink_transport, .mtu = 1400};
    port.send = script.port.send;
    while (next_sequence < 2 * capacity) {
        put_runs(1, 24, 0);
        requests_turn();
    }
    CHECK(script_counter(&script, RP_COUNT_steps_committed) == next_sequence);
}

#endif
