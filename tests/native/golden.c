/* The worked examples of PROTOCOL.md, built by the compiler's layouts and sealed by the product's
 * own function. Prints one line each, `name hex`; tests/test_protocol.py compares them with the
 * document's and the plain-Python client's.
 */
#include <stdio.h>
#include <string.h>

#include "flow.h"
#include "status.h"

enum { SESSION_TABLE = 0, BUFFER = 2048 };
static const uint64_t session = 0x1122334455667001, epoch = 0x5151515151515151;
static const uint64_t nonce = 0x0102030405060708;
static const uint64_t cookie = 0xC0C1C2C3C4C5C6C7;

static _Alignas(8) uint8_t datagram[BUFFER];
static uint32_t filled;

static void begin(void) {
    memset(datagram, 0, sizeof datagram);
    filled = 0;
}

static void add(const void *bytes, size_t size) {
    memcpy(rp_packet_body(datagram) + filled, bytes, size);
    filled += (uint32_t)size;
}

static void finish(const char *name, uint8_t op, uint64_t id, uint64_t connection, uint64_t packet,
                   uint16_t want) {
    uint32_t body = (filled + 7) & ~7u;
    if (body < RP_REQUEST_BODY_MIN) {
        body = RP_REQUEST_BODY_MIN;
    }
    struct rp_message message = {.op = op, .table = SESSION_TABLE, .want = want, .id = id};
    uint32_t size = rp_packet_seal(datagram, &message, body, connection, packet);
    printf("%s ", name);
    for (uint32_t i = 0; i < size; i++) {
        printf("%02x", datagram[i]);
    }
    printf("\n");
    begin();
}

static void wrong_queue(void) {
    struct rp_answer answer = {.incarnation = 0xD0D1D2D3D4D5D6D7, .status = RP_WRONG_QUEUE,
                               .credit = 1, .lapse_us = 100000};
    add(&answer, sizeof answer);
    add(&(struct rp_refused){.connection = session, .packet = 4, .port = 50001},
        sizeof(struct rp_refused));
    finish("wrong_queue", RP_OP_PING | RP_ANSWER, 2, 0, 0xE0E1E2E3E4E5, 0);
}

static void add_step(unsigned first, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        uint8_t byte = (uint8_t)(first + i);
        add(&byte, 1);
    }
}

static void handshake(void) {
    struct rp_hello hello = {.version_min = 2, .version_max = 2, .mtu = 1400,
                             .features = RP_FEATURE_DATAGRAM_CRC,
                             .required = RP_FEATURE_DATAGRAM_CRC};
    add(&hello, sizeof hello);
    finish("hello", RP_OP_HELLO, nonce, 0, 1, 1);
    struct rp_open open = {.cookie = cookie, .features = RP_FEATURE_DATAGRAM_CRC,
                           .required = RP_FEATURE_DATAGRAM_CRC, .mtu = 1400, .version = 2,
                           .receive_budget = 64, .identity = "actor 7"};
    add(&open, sizeof open);
    finish("open", RP_OP_OPEN, nonce, 0, 2, 1);
    add(&(struct rp_echo){.cookie = cookie}, sizeof(struct rp_echo));
    finish("echo", RP_OP_ECHO, 1, session, 3, 1);
    finish("ping", RP_OP_PING, 2, session, 4, 1);
    add(&(struct rp_table_request){.name = "main"}, sizeof(struct rp_table_request));
    finish("table", RP_OP_TABLE, 1, session, 5, 1);
    add(&(struct rp_writer_request){.streams = 1}, sizeof(struct rp_writer_request));
    finish("writer", RP_OP_WRITER, 1, session, 6, 1);
}

static void pushes(void) {
    struct rp_push whole = {.epoch = epoch, .run_count = 1, .create_count = 1};
    add(&whole, sizeof whole);
    add(&(struct rp_run){.count = 2, .piece_count = 1, .size = 32}, sizeof(struct rp_run));
    add_step(0, 32);
    add(&(struct rp_create){.step = 0, .priority = 0.5}, sizeof(struct rp_create));
    finish("push_run", RP_OP_PUSH, 1, session, 7, 4);
    for (unsigned i = 0; i < 2; i++) {
        char name[16];
        snprintf(name, sizeof name, "push_piece_%u", i);
        add(&(struct rp_push){.epoch = epoch, .run_count = 1}, sizeof(struct rp_push));
        struct rp_run piece = {.sequence = 2, .step = 2, .count = 1, .piece = (uint16_t)i,
                               .piece_count = 2, .size = 8};
        add(&piece, sizeof piece);
        add_step(32 + 8 * i, 8);
        finish(name, RP_OP_PUSH, 2 + i, session, 8 + i, 1);
    }
}

static void draws(void) {
    add(&(struct rp_sample){.epoch = epoch, .count = 1, .budget = 8}, sizeof(struct rp_sample));
    finish("sample", RP_OP_SAMPLE, 1, session, 10, 1);
    add(&(struct rp_sample){.epoch = epoch, .count = 2, .mode = RP_SAMPLE_KEYS, .budget = 8},
        sizeof(struct rp_sample));
    add((uint64_t[]){64, 65}, 16);
    finish("sample_keys", RP_OP_SAMPLE, 2, session, 11, 1);
    add(&(struct rp_pull){.batch = 1, .count = 1}, sizeof(struct rp_pull));
    finish("pull", RP_OP_PULL, 1, session, 12, 1);
    add(&(struct rp_update){.epoch = epoch, .count = 2}, sizeof(struct rp_update));
    add((struct rp_update_entry[]){{64, 2.0}, {65, 0.0}}, 2 * sizeof(struct rp_update_entry));
    finish("update", RP_OP_UPDATE, 1, session, 13, 1);
}

static void blobs(void) {
    static const char weights[] = "sixteen bytes ok";
    /* The CRC-32C of those sixteen bytes, as any published implementation gives it. */
    struct rp_publish publish = {.size = 16, .piece = 16, .crc = 0x8a11fe48};
    add(&publish, sizeof publish);
    add(weights, 16);
    finish("publish", RP_OP_PUBLISH, 1, session, 14, 1);
    struct rp_blob_request blob = {.count = 1, .kind = RP_BLOB_WEIGHTS};
    add(&blob, sizeof blob);
    finish("blob", RP_OP_BLOB, 1, session, 15, 1);
    add(&(struct rp_stats_request){.count = 16}, sizeof(struct rp_stats_request));
    finish("stats", RP_OP_STATS, 1, session, 16, 1);
    add(&(struct rp_reset){.epoch = epoch}, sizeof(struct rp_reset));
    finish("reset", RP_OP_RESET, 1, session, 17, 1);
    finish("close", RP_OP_CLOSE, 3, session, 18, 1);
}

int main(void) {
    begin();
    handshake();
    pushes();
    draws();
    blobs();
    wrong_queue();
    return 0;
}
