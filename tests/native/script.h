/* script.h: a server, a fake port and hand-built datagrams, for the test_server programs.
 *
 * A script owns one server and one port. A `script_client` is an address with a connection and a
 * packet counter; script_put() seals one request from it into the port's queue (in memory of
 * exactly its size, so that a read beyond it is caught), script_turn() runs one turn, and the
 * datagrams the server sent lie in script->out until the next turn. script_ask() is both, for
 * one request. Answers are checked here as any client would: they open, they answer, and their
 * session is right.
 */
#ifndef RP_SCRIPT_H
#define RP_SCRIPT_H

#include <stdbool.h>
#include <string.h>

#include "check.h"
#include "base/crc32c.h"
#include "protocol/flow.h"
#include "server/server.h"
#include "server/server_state.h"
#include "table/table.h"

#define SCRIPT_UNUSED __attribute__((unused))

enum { SCRIPT_OUT_MAX = 4096, SCRIPT_IN_MAX = 256 };

struct script_datagram {
    uint8_t *data;
    uint32_t size;
    struct rp_peer peer;
    uint32_t session; /* out: whose connection it marks; 0: nobody's */
};

struct script_port { /* a port whose network is two arrays */
    struct rp_port_base base;
    struct script_datagram in[SCRIPT_IN_MAX];
    uint32_t in_count;
    uint32_t in_most; /* a burst brings, unless 0 */
    struct script_datagram out[SCRIPT_OUT_MAX];
    uint32_t out_count;
    uint8_t *send; /* RP_BURST buffers of mtu bytes */
    uint32_t leased;
    uint32_t lent;
    uint32_t lease_max; /* what tx_lease will lend */
    uint32_t room_left; /* what it will lend in all, until it is set again */
};

struct script {
    struct rp_server *server;
    uint8_t *region;
    size_t bytes;
    struct rp_server_config config; /* its tables are the caller's, and live on */
    uint64_t now_ns;
    int unchecked; /* 1: the region is large, or damaged on purpose: no invariants asserted */
    struct script_port port;
};

struct script_client {
    struct rp_peer peer;
    uint64_t connection;
    uint64_t packet;
    uint64_t nonce;
    uint32_t mtu;
    uint16_t want;
    uint16_t receive_budget;
};

struct script_answer { /* an answer in place, in script->port.out */
    struct rp_view view;
    struct rp_answer head;
    const uint8_t *rest;
    uint32_t size; /* of rest */
    uint16_t status;
};

/* ---- the port ---- */

static uint32_t script_rx_burst(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct script_port *port = (void *)opaque;
    count = count < port->in_count ? count : port->in_count;
    count = port->in_most > 0 && port->in_most < count ? port->in_most : count;
    for (uint32_t i = 0; i < count; i++) {
        packets[i] = (struct rp_packet){.data = port->in[i].data, .size = port->in[i].size,
                                        .peer = port->in[i].peer, .token = i};
    }
    port->lent = count;
    port->base.left_behind = port->in_count > count;
    return count;
}

static void script_rx_release(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct script_port *port = (void *)opaque;
    CHECK(count == port->lent, "every lent packet comes back at once");
    for (uint32_t i = 0; i < count; i++) {
        free(packets[i].data);
    }
    memmove(port->in, port->in + count, (port->in_count - count) * sizeof *port->in);
    port->in_count -= count;
    port->lent = 0;
}

static uint32_t script_tx_lease(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct script_port *port = (void *)opaque;
    CHECK(port->leased == 0, "one lease at a time");
    count = count < port->lease_max ? count : port->lease_max;
    count = count < port->room_left ? count : port->room_left;
    for (uint32_t i = 0; i < count; i++) {
        packets[i] = (struct rp_packet){.data = port->send + (size_t)i * port->base.mtu,
                                        .capacity = port->base.mtu};
    }
    port->leased = count;
    return count;
}

static void script_tx_send(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct script_port *port = (void *)opaque;
    CHECK(count == port->leased, "the whole lease comes back");
    port->leased = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (packets[i].size == 0) {
            continue;
        }
        CHECK(packets[i].size <= port->base.mtu);
        CHECK(port->out_count < SCRIPT_OUT_MAX);
        struct script_datagram *out = &port->out[port->out_count++];
        out->data = malloc(packets[i].size);
        out->size = packets[i].size;
        out->peer = packets[i].peer;
        out->session = packets[i].session;
        memcpy(out->data, packets[i].data, packets[i].size);
        port->room_left--;
    }
}

/* Fact i counts i + 1; one more than there is room for. */
static inline uint32_t script_facts(struct rp_port *port, struct rp_fact *facts) {
    uint32_t count = 0;
    (void)port;
    for (uint32_t i = 0; i <= RP_FACTS_MAX; i++) {
        char name[RP_FACT_NAME_BYTES];
        snprintf(name, sizeof name, "fact_%u", i);
        rp_fact_add(facts, &count, RP_FACT_IN, name, "a sentence", i + 1);
    }
    return count;
}

/* Clients from 100 on are other hosts, told apart by their first byte; the rest are of this one. */
static uint64_t script_host(struct rp_port *port, const struct rp_peer *peer) {
    (void)port;
    return peer->bytes[0] >= 100 ? peer->bytes[0] : 0;
}

static const struct rp_transport script_transport = {
    .name = "script",
    .rx_burst = script_rx_burst,
    .rx_release = script_rx_release,
    .tx_lease = script_tx_lease,
    .tx_send = script_tx_send,
    .facts = script_facts,
    .host = script_host,
};

/* ---- the server ---- */

/* Two tables of 16-byte steps, a u64 "value" and a u64 "reward". "main": plain rows under plan
 * 0, windows of -1 .. +2 under plan 1 (so plain rows are no items there at once). "rows": plain
 * rows, a limiter. */
static const struct rp_column script_columns[2] = {{0, 8, 1}, {8, 8, 0}};
static const struct rp_pick script_plain[2] = {{0, 0}, {1, 0}};
static const struct rp_pick script_window[4] = {{0, -1}, {0, 0}, {1, 0}, {0, 2}};
static const struct rp_plan script_plans[2] = {{"plain", script_plain, 2},
                                               {"window", script_window, 4}};
static const char script_spec[] = "{\"columns\": [\"value\", \"reward\"]}";

enum { SCRIPT_STEP = 16, SCRIPT_CAPACITY = 512, SCRIPT_WINDOW = 16 };

SCRIPT_UNUSED static void script_tables(struct rp_table_config tables[2]) {
    tables[0] = (struct rp_table_config){
        .name = "main", .capacity = SCRIPT_CAPACITY, .step_bytes = SCRIPT_STEP,
        .columns = script_columns, .column_count = 2, .plans = script_plans, .plan_count = 2,
        .alpha = 1.0, .min_size = 4, .writers_max = 2, .streams_max = 4, .window = SCRIPT_WINDOW,
        .pieces_max = 4, .spec = script_spec, .spec_bytes = sizeof script_spec - 1};
    tables[1] = tables[0];
    memcpy(tables[1].name, "rows", 5);
    tables[1].plan_count = 1;
    tables[1].min_size = 1;
    tables[1].samples_per_insert = 1.0;
    tables[1].error_min = 0.0;
    tables[1].error_max = 20.0;
}

SCRIPT_UNUSED static struct rp_server_config script_config(const struct rp_table_config *tables) {
    return (struct rp_server_config){
        .tables = tables, .table_count = 2, .sessions_max = 4, .batch_max = 64, .records = 4,
        .mtu = 1400, .receive_budget = 64, .idle_ms = 30000, .lapse_ms = 10,
        .weights_max = 20000, .seed = 7};
}

SCRIPT_UNUSED static void script_entropy(uint8_t entropy[32], uint8_t salt) {
    for (int i = 0; i < 32; i++) {
        entropy[i] = (uint8_t)(37 * i + salt);
    }
}

SCRIPT_UNUSED static void script_open(struct script *script,
                                      const struct rp_server_config *config) {
    char error[256];
    uint8_t entropy[32];
    memset(script, 0, sizeof *script);
    script->config = *config;
    script_entropy(entropy, 1);
    script->bytes = rp_server_bytes(config, error);
    CHECK(script->bytes > 0, "%s", error);
    script->region = aligned_alloc(64, (script->bytes + 63) / 64 * 64);
    memset(script->region, 0, script->bytes);
    script->now_ns = 1000000000000ull;
    script->port.base = (struct rp_port_base){.transport = &script_transport, .mtu = config->mtu};
    script->port.send = malloc((size_t)RP_BURST * config->mtu);
    script->port.lease_max = RP_BURST;
    script->port.room_left = UINT32_MAX;
    CHECK(rp_server_create(&script->server, script->region, script->bytes, config, entropy,
                           script->now_ns, error) == 0, "%s", error);
}

/* The process dies between two turns and another one takes the region over, at another address. */
SCRIPT_UNUSED static void script_kill(struct script *script) {
    static uint8_t salt = 1;
    char error[256];
    uint8_t entropy[32];
    uint8_t *moved = aligned_alloc(64, (script->bytes + 63) / 64 * 64);
    memcpy(moved, script->region, script->bytes);
    free(script->region);
    script->region = moved;
    script_entropy(entropy, ++salt);
    CHECK(rp_server_attach(&script->server, moved, script->bytes, &script->config, entropy,
                           script->now_ns, error) == 0,
          "%s", error);
    rp_server_check(script->server);
}

SCRIPT_UNUSED static void script_forget(struct script *script) {
    for (uint32_t i = 0; i < script->port.out_count; i++) {
        free(script->port.out[i].data);
    }
    script->port.out_count = 0;
}

SCRIPT_UNUSED static void script_close(struct script *script) {
    script_forget(script);
    while (script->port.in_count > 0) { /* what no turn received */
        free(script->port.in[--script->port.in_count].data);
    }
    free(script->port.send);
    free(script->region);
}

SCRIPT_UNUSED static uint64_t script_counter(const struct script *script, enum rp_counter counter) {
    return rp_server_counters(script->server)[counter];
}

/* Time passes in turns that receive nothing and are due for nothing. */
SCRIPT_UNUSED static void script_later(struct script *script, uint64_t ms) {
    script->now_ns += ms * 1000000;
    script->server->turned_ns = script->now_ns;
}

/* Time passes and no turn is taken: the server stands still. */
SCRIPT_UNUSED static void script_stand_still(struct script *script, uint64_t ms) {
    script->now_ns += ms * 1000000;
}

/* ---- datagrams in ---- */

SCRIPT_UNUSED static struct script_client script_client(uint8_t number) {
    struct script_client client = {.packet = 1000 * number, .nonce = 77000 + number, .mtu = 1400,
                                   .want = 4, .receive_budget = 64};
    client.peer.size = 4;
    memset(client.peer.bytes, number, 4);
    return client;
}

/* Queues bytes as they are. */
SCRIPT_UNUSED static void script_put_raw(struct script *script, const struct rp_peer *peer,
                                         const void *bytes, uint32_t size) {
    CHECK(script->port.in_count < SCRIPT_IN_MAX);
    struct script_datagram *in = &script->port.in[script->port.in_count++];
    *in = (struct script_datagram){.data = malloc(size ? size : 1), .size = size, .peer = *peer};
    memcpy(in->data, bytes, size);
}

/* Queues a request whose body is padded as the protocol wants it. */
SCRIPT_UNUSED static void script_put(struct script *script, struct script_client *client,
                                     uint8_t op,
                                     uint16_t table, uint64_t id, const void *body, uint32_t size) {
    static uint8_t data[RP_MTU_MAX] __attribute__((aligned(8)));
    uint32_t padded = (size + 7) & ~7u;
    padded = padded > RP_REQUEST_BODY_MIN ? padded : RP_REQUEST_BODY_MIN;
    CHECK(RP_HEADER_BYTES + padded <= sizeof data);
    memset(rp_packet_body(data), 0, padded);
    if (size > 0) {
        memcpy(rp_packet_body(data), body, size);
    }
    struct rp_message message = {.op = op, .table = table, .want = client->want, .id = id};
    uint32_t bytes = rp_packet_seal(data, &message, padded, client->connection, ++client->packet);
    script_put_raw(script, &client->peer, data, bytes);
}

/* ---- datagrams out ---- */

SCRIPT_UNUSED static uint32_t script_turn(struct script *script) {
    script_forget(script);
    rp_server_turn(script->server, (struct rp_port *)&script->port, script->now_ns);
    CHECK(script->port.leased == 0 && script->port.lent == 0);
    return script->port.out_count;
}

SCRIPT_UNUSED static struct script_answer script_answer(const struct script *script,
                                                        uint32_t index) {
    struct script_answer answer;
    CHECK(index < script->port.out_count, "answer %u of %u", index, script->port.out_count);
    const struct script_datagram *out = &script->port.out[index];
    CHECK(rp_packet_open(out->data, out->size, RP_MTU_MAX, &answer.view) == 0);
    CHECK(answer.view.message->op & RP_ANSWER);
    CHECK(answer.view.message->size >= sizeof answer.head);
    memcpy(&answer.head, answer.view.body, sizeof answer.head);
    answer.rest = answer.view.body + sizeof answer.head;
    answer.size = answer.view.message->size - (uint32_t)sizeof answer.head;
    answer.status = answer.head.status;
    CHECK(answer.status < RP_STATUS_COUNT && answer.head.credit >= 1);
    return answer;
}

/* One request, one turn: its first answer. */
SCRIPT_UNUSED static struct script_answer script_ask(struct script *script,
                                                     struct script_client *client, uint8_t op,
                                                     uint16_t table, uint64_t id, const void *body,
                                                     uint32_t size) {
    script_put(script, client, op, table, id, body, size);
    CHECK(script_turn(script) >= 1, "no answer to operation %u", op);
    if (!script->unchecked) {
        rp_server_check(script->server);
    }
    struct script_answer answer = script_answer(script, 0);
    CHECK(memcmp(&script->port.out[0].peer, &client->peer, sizeof client->peer) == 0);
    CHECK(answer.view.message->id == id || op == RP_OP_PULL);
    return answer;
}

/* The rest of an answer, which must be exactly one such struct. */
#define SCRIPT_READ(answer, type) \
    (CHECK_SIZE((answer).size, sizeof(type)), *(const type *)(const void *)(answer).rest)
static inline void script_check_size(uint32_t seen, size_t expected, int line) {
    CHECK(seen == expected, "line %d: an answer of %u bytes, not %zu", line, seen, expected);
}
#define CHECK_SIZE(seen, expected) script_check_size(seen, expected, __LINE__)

#define CHECK_STATUS(answer, expected) \
    CHECK((answer).status == (expected), "status is %s", rp_status_name((answer).status))

/* ---- sessions ---- */

SCRIPT_UNUSED static struct script_answer script_hello(struct script *script,
                                                       struct script_client *client) {
    struct rp_hello hello = {.version_min = RP_VERSION_MIN, .version_max = RP_VERSION_MAX,
                             .mtu = client->mtu, .features = RP_FEATURES_SPOKEN,
                             .required = RP_FEATURES_REQUIRED};
    uint64_t connection = client->connection;
    client->connection = 0;
    struct script_answer answer =
        script_ask(script, client, RP_OP_HELLO, 0, client->nonce, &hello, sizeof hello);
    client->connection = connection;
    return answer;
}

SCRIPT_UNUSED static struct script_answer script_say_open(struct script *script,
                                                          struct script_client *client,
                                                          uint64_t cookie) {
    struct rp_open open = {.cookie = cookie, .features = RP_FEATURES_SPOKEN, .mtu = client->mtu,
                           .version = RP_VERSION_MAX, .receive_budget = client->receive_budget};
    client->connection = 0;
    return script_ask(script, client, RP_OP_OPEN, 0, client->nonce, &open, sizeof open);
}

SCRIPT_UNUSED static void script_connect(struct script *script, struct script_client *client) {
    struct script_answer answer = script_hello(script, client);
    CHECK_STATUS(answer, RP_OK);
    uint64_t cookie = SCRIPT_READ(answer, struct rp_cookie).cookie;
    answer = script_say_open(script, client, cookie);
    if (answer.status == RP_BAD_COOKIE) { /* its last session was closed: a nonce opens one */
        client->nonce += 1000;
        answer = script_hello(script, client);
        answer = script_say_open(script, client, SCRIPT_READ(answer, struct rp_cookie).cookie);
    }
    CHECK_STATUS(answer, RP_OK);
    client->connection = SCRIPT_READ(answer, struct rp_opened).session;
    CHECK(answer.view.outer->connection == client->connection && client->connection != 0);
}

SCRIPT_UNUSED static struct rp_table_info script_info(struct script *script,
                                                      struct script_client *client,
                                                      uint16_t table) {
    struct rp_table_request request = {{0}};
    struct script_answer answer =
        script_ask(script, client, RP_OP_TABLE, table, 1, &request, sizeof request);
    CHECK_STATUS(answer, RP_OK);
    return SCRIPT_READ(answer, struct rp_table_info);
}

SCRIPT_UNUSED static struct rp_writer_granted script_writer(struct script *script,
                                                            struct script_client *client,
                                                            uint16_t table, uint16_t streams) {
    struct rp_writer_request request = {.streams = streams};
    struct script_answer answer =
        script_ask(script, client, RP_OP_WRITER, table, 1, &request, sizeof request);
    CHECK_STATUS(answer, RP_OK);
    return SCRIPT_READ(answer, struct rp_writer_granted);
}

/* ---- pushes ---- */

struct script_push { /* a PUSH body being put together */
    uint8_t body[RP_MTU_MAX] __attribute__((aligned(8)));
    uint32_t size;
};

SCRIPT_UNUSED static struct rp_push *script_push_head(struct script_push *push) {
    return (struct rp_push *)(void *)push->body;
}

SCRIPT_UNUSED static void script_push_begin(struct script_push *push, uint64_t epoch) {
    push->size = sizeof(struct rp_push);
    *script_push_head(push) = (struct rp_push){.epoch = epoch};
}

SCRIPT_UNUSED static struct rp_run *script_push_bytes(struct script_push *push, struct rp_run run,
                                                      const void *bytes) {
    struct rp_run *at = (void *)(push->body + push->size);
    *at = run;
    memcpy(at + 1, bytes, run.size);
    push->size += (uint32_t)sizeof run + run.size;
    script_push_head(push)->run_count++;
    return at;
}

/* A run of whole steps whose value is 1000 * stream + step, and reward the step. */
SCRIPT_UNUSED static struct rp_run *script_push_run(struct script_push *push, uint16_t stream,
                                                    uint64_t sequence, uint64_t step,
                                                    uint16_t count, uint16_t flags) {
    uint64_t bytes[3 * SCRIPT_CAPACITY];
    uint32_t at = 0;
    for (uint32_t i = 0; flags & RP_RUN_PRIORITY && i < count; i++) {
        double priority = (double)(1 + (step + i) % 5);
        memcpy(&bytes[at++], &priority, 8);
    }
    for (uint32_t i = 0; i < count; i++) {
        bytes[at++] = 1000ull * stream + step + i;
        bytes[at++] = step + i;
    }
    struct rp_run run = {.sequence = sequence, .step = step, .stream = stream, .flags = flags,
                         .count = count, .piece_count = 1, .size = 8 * at};
    return script_push_bytes(push, run, bytes);
}

SCRIPT_UNUSED static struct rp_create *script_push_create(struct script_push *push, uint16_t stream,
                                                          uint64_t step, double priority) {
    struct rp_create *at = (void *)(push->body + push->size);
    *at = (struct rp_create){.step = step, .priority = priority, .stream = stream};
    push->size += sizeof *at;
    script_push_head(push)->create_count++;
    return at;
}

SCRIPT_UNUSED static struct script_answer script_push(struct script *script,
                                                      struct script_client *client, uint16_t table,
                                                      uint64_t id, struct script_push *push) {
    return script_ask(script, client, RP_OP_PUSH, table, id, push->body, push->size);
}

SCRIPT_UNUSED static struct rp_pushed script_pushed(struct script_answer answer) {
    CHECK_STATUS(answer, RP_OK);
    struct rp_pushed pushed;
    memcpy(&pushed, answer.rest, sizeof pushed);
    CHECK_SIZE(answer.size, sizeof pushed + pushed.run_count * sizeof(struct rp_run_done)
                                + ((pushed.create_count + 7u) & ~7u));
    return pushed;
}

SCRIPT_UNUSED static struct rp_run_done script_done(struct script_answer answer, uint32_t run) {
    struct rp_run_done done;
    CHECK(run < script_pushed(answer).run_count);
    memcpy(&done, answer.rest + sizeof(struct rp_pushed) + run * sizeof done, sizeof done);
    return done;
}

SCRIPT_UNUSED static int script_created(struct script_answer answer, uint32_t create) {
    struct rp_pushed pushed = script_pushed(answer);
    CHECK(create < pushed.create_count);
    return answer.rest[sizeof pushed + pushed.run_count * sizeof(struct rp_run_done) + create];
}

/* ---- samples ---- */

struct script_batch { /* a batch put together from its datagrams */
    struct rp_batch head;
    struct rp_batch_item items[64];
    uint64_t values[64][8]; /* the first eight words of each body */
    uint8_t overwritten[64];
    uint32_t datagram_count;
    uint32_t datagrams_seen;
    uint8_t bytes[1 << 16] __attribute__((aligned(8)));
};

/* Adds what datagrams of a SAMPLE answered with lie in script->port.out. */
SCRIPT_UNUSED static void script_collect(const struct script *script, uint64_t id, uint32_t mtu,
                                         uint32_t count, uint32_t item_bytes,
                                         struct script_batch *batch) {
    uint64_t prefix = sizeof(struct rp_batch) + (uint64_t)count * sizeof(struct rp_batch_item);
    uint32_t payload = rp_batch_payload(mtu, item_bytes);
    uint64_t total = rp_batch_bytes(count, item_bytes);
    for (uint32_t i = 0; i < script->port.out_count; i++) {
        struct script_answer answer = script_answer(script, i);
        if (answer.view.message->op != (RP_OP_SAMPLE | RP_ANSWER)
            || answer.view.message->id != id) {
            continue;
        }
        CHECK_STATUS(answer, RP_OK);
        const struct rp_batch_datagram *head = (const void *)answer.rest;
        const uint64_t *words = (const void *)(head + 1);
        uint64_t start = (uint64_t)head->datagram * payload;
        uint64_t end = start + payload < total ? start + payload : total;
        CHECK(head->payload == payload && head->words == rp_overwritten_words(mtu, item_bytes));
        CHECK(head->datagram < head->datagram_count
              && head->datagram_count == (total + payload - 1) / payload);
        CHECK(answer.size == sizeof *head + 8 * head->words + (end - start));
        memcpy(batch->bytes + start, words + head->words, end - start);
        uint64_t first = start > prefix ? (start - prefix) / item_bytes : 0;
        for (uint32_t bit = 0; bit < 64 * head->words; bit++) {
            if (words[bit / 64] >> (bit % 64) & 1) {
                CHECK(end > prefix && first + bit <= (end - 1 - prefix) / item_bytes);
                batch->overwritten[first + bit] = 1;
            }
        }
        batch->datagram_count = head->datagram_count;
        batch->datagrams_seen++;
    }
    memcpy(&batch->head, batch->bytes, sizeof batch->head);
    memcpy(batch->items, batch->bytes + sizeof batch->head, count * sizeof *batch->items);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(batch->values[i], batch->bytes + prefix + (uint64_t)i * item_bytes,
               item_bytes < 64 ? item_bytes : 64);
    }
}

SCRIPT_UNUSED static struct rp_sample script_sample(uint32_t count) {
    return (struct rp_sample){.count = count, .budget = 32};
}

#endif
