/* The worked examples of PROTOCOL.md, built by the compiler's layouts and sealed by the product's
 * own function. Prints one line each, `name hex`; tests/oracles/test_protocol.py compares them with
 * the document's and the plain-Python client's.
 */
#include <stdio.h>
#include <string.h>

#include "protocol/flow.h"
#include "protocol/status.h"

enum { SESSION_TABLE = 0, BUFFER = 2048 };
static const uint64_t session = 0x1122334455667001, epoch = 0x5151515151515151;
static const uint64_t nonce = 0x0102030405060708;
static const uint64_t cookie = 0xC0C1C2C3C4C5C6C7;

static _Alignas(8) uint8_t datagram[BUFFER];
static uint32_t filled;
static uint64_t published, answers; /* what answers tell: the newest weights, how many there were */

static void begin(void) {
    memset(datagram, 0, sizeof datagram);
    filled = 0;
}

static void add(const void *bytes, size_t size) {
    memcpy(rp_packet_body(datagram) + filled, bytes, size);
    filled += (uint32_t)size;
}

static void finish_as(const char *name, uint8_t op, uint64_t id, uint64_t connection,
                      uint64_t packet, uint16_t want, uint32_t least) {
    uint32_t body = (filled + 7) & ~7u;
    body = body < least ? least : body;
    struct rp_message message = {.op = op, .table = SESSION_TABLE, .want = want, .id = id};
    uint32_t size = rp_packet_seal(datagram, &message, body, connection, packet);
    printf("%s ", name);
    for (uint32_t i = 0; i < size; i++) {
        printf("%02x", datagram[i]);
    }
    printf("\n");
    begin();
}

static void finish(const char *name, uint8_t op, uint64_t id, uint64_t connection, uint64_t packet,
                   uint16_t want) {
    finish_as(name, op, id, connection, packet, want, RP_REQUEST_BODY_MIN);
}

/* ---- answers ---- */

static void begin_answer(uint16_t status) {
    struct rp_answer answer = {.incarnation = 0xD0D1D2D3D4D5D6D7, .weights_version = published,
                               .status = status, .credit = 8, .lapse_us = 100000};
    add(&answer, sizeof answer);
}

/* To the request of that packet number: id and operation are its own. */
static void answer(const char *name, uint8_t op, uint64_t id, uint16_t asked) {
    uint64_t connection = op == RP_OP_HELLO ? 0 : session;
    answers++;
    finish_as(name, op | RP_ANSWER, id, connection, 0xE0E1E2E3E400 + answers, asked, 0);
}

static void refusals(void) {
    begin_answer(RP_WRONG_QUEUE);
    add(&(struct rp_refused){.connection = session, .packet = 4, .port = 50001},
        sizeof(struct rp_refused));
    finish_as("wrong_queue", RP_OP_PING | RP_ANSWER, 2, 0, 0xE0E1E2E3E4E5, 4, 0);
    begin_answer(RP_UNKNOWN_SESSION);
    add(&(struct rp_refused){.connection = session, .packet = 18}, sizeof(struct rp_refused));
    finish_as("unknown_session", RP_OP_CLOSE | RP_ANSWER, 3, 0, 0xE0E1E2E3E4E6, 18, 0);
    begin_answer(RP_ADDRESS_CHANGED);
    add(&(struct rp_address_changed){.cookie = cookie, .packet = 4},
        sizeof(struct rp_address_changed));
    answer("address_changed", RP_OP_PING, 2, 4);
    begin_answer(RP_BLOCKED);
    add(&(struct rp_blocked){.by_size = 1, .noted = 1, .need = 7}, sizeof(struct rp_blocked));
    answer("blocked", RP_OP_SAMPLE, 1, 10);
    begin_answer(RP_BAD_VERSION);
    add(&(struct rp_cookie){.version_min = 2, .version_max = 2, .features = 2, .required = 2},
        sizeof(struct rp_cookie));
    answer("bad_version", RP_OP_HELLO, nonce, 1);
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
    begin_answer(RP_OK);
    add(&(struct rp_cookie){.cookie = cookie, .mtu = 1400, .version = 2, .version_min = 2,
                            .version_max = 2, .features = 2, .required = 2},
        sizeof(struct rp_cookie));
    answer("hello_answer", RP_OP_HELLO, nonce, 1);
    struct rp_open open = {.cookie = cookie, .features = RP_FEATURE_DATAGRAM_CRC,
                           .required = RP_FEATURE_DATAGRAM_CRC, .mtu = 1400, .version = 2,
                           .receive_budget = 64, .identity = "actor 7"};
    add(&open, sizeof open);
    finish("open", RP_OP_OPEN, nonce, 0, 2, 1);
    begin_answer(RP_OK);
    add(&(struct rp_opened){.session = session, .mtu = 1400, .idle_ms = 30000, .batch_max = 64,
                            .records = 8, .update_records = 64, .table_count = 1, .train_max = 32,
                            .weights_max = 4096, .features = 2},
        sizeof(struct rp_opened));
    answer("open_answer", RP_OP_OPEN, nonce, 2);
    add(&(struct rp_echo){.cookie = cookie}, sizeof(struct rp_echo));
    finish("echo", RP_OP_ECHO, 1, session, 3, 1);
    begin_answer(RP_OK);
    answer("echo_answer", RP_OP_ECHO, 1, 3);
    finish("ping", RP_OP_PING, 2, session, 4, 1);
    begin_answer(RP_OK);
    answer("ping_answer", RP_OP_PING, 2, 4);
}

static void tables(void) {
    add(&(struct rp_table_request){.name = "main"}, sizeof(struct rp_table_request));
    finish("table", RP_OP_TABLE, 1, session, 5, 1);
    begin_answer(RP_OK);
    add(&(struct rp_table_info){.name = "main", .epoch = epoch, .head = 64, .min_size = 1,
                                .alpha = 1, .capacity = 64, .step_bytes = 16, .spec_bytes = 200,
                                .spec_crc = 0x01020304, .writers_max = 2, .plan_count = 1,
                                .item_bytes = {16}},
        sizeof(struct rp_table_info));
    answer("table_answer", RP_OP_TABLE, 1, 5);
    add(&(struct rp_writer_request){.streams = 1}, sizeof(struct rp_writer_request));
    finish("writer", RP_OP_WRITER, 1, session, 6, 1);
    begin_answer(RP_OK);
    add(&(struct rp_writer_granted){.epoch = epoch, .window = 4, .streams = 1, .pieces_max = 2},
        sizeof(struct rp_writer_granted));
    answer("writer_answer", RP_OP_WRITER, 1, 6);
}

static void pushed(const char *name, uint64_t id, uint16_t asked, uint64_t done, uint64_t key,
                   uint16_t committed, uint16_t creates) {
    begin_answer(RP_OK);
    add(&(struct rp_pushed){.done_through = done, .run_count = 1, .create_count = creates},
        sizeof(struct rp_pushed));
    add(&(struct rp_run_done){.key = key, .committed = committed}, sizeof(struct rp_run_done));
    add((uint8_t[8]){RP_OK}, creates ? 8 : 0);
    answer(name, RP_OP_PUSH, id, asked);
}

static void pushes(void) {
    struct rp_push whole = {.epoch = epoch, .run_count = 1, .create_count = 1};
    add(&whole, sizeof whole);
    add(&(struct rp_run){.count = 2, .piece_count = 1, .size = 32}, sizeof(struct rp_run));
    add_step(0, 32);
    add(&(struct rp_create){.step = 0, .priority = 0.5}, sizeof(struct rp_create));
    finish("push_run", RP_OP_PUSH, 1, session, 7, 4);
    pushed("push_run_answer", 1, 7, 2, 64, 2, 1);
    for (unsigned i = 0; i < 2; i++) {
        char name[24];
        snprintf(name, sizeof name, "push_piece_%u", i);
        add(&(struct rp_push){.epoch = epoch, .run_count = 1}, sizeof(struct rp_push));
        struct rp_run piece = {.sequence = 2, .step = 2, .count = 1, .piece = (uint16_t)i,
                               .piece_count = 2, .size = 8};
        add(&piece, sizeof piece);
        add_step(32 + 8 * i, 8);
        finish(name, RP_OP_PUSH, 2 + i, session, 8 + i, 1);
        snprintf(name, sizeof name, "push_piece_%u_answer", i);
        pushed(name, 2 + i, 8 + (uint16_t)i, 2 + i, 66, (uint16_t)i, 0);
    }
}

static void draws(void) {
    add(&(struct rp_sample){.epoch = epoch, .count = 1, .budget = 8}, sizeof(struct rp_sample));
    finish("sample", RP_OP_SAMPLE, 1, session, 10, 1);
    begin_answer(RP_OK);
    add(&(struct rp_batch_datagram){.datagram_count = 1, .payload = 1288, .words = 2},
        sizeof(struct rp_batch_datagram));
    add((uint64_t[2]){0}, 16);
    add(&(struct rp_batch){.epoch = epoch, .total = 1 << 25, .head = 67, .drawable = 1, .count = 1,
                           .item_bytes = 16, .capacity = 64},
        sizeof(struct rp_batch));
    add(&(struct rp_batch_item){.key = 64, .mass = 1 << 25}, sizeof(struct rp_batch_item));
    add_step(0, 16);
    answer("sample_answer", RP_OP_SAMPLE, 1, 10);
    add(&(struct rp_sample){.epoch = epoch, .count = 2, .mode = RP_SAMPLE_KEYS, .budget = 8,
                            .under_way = 0x8000000000000001},
        sizeof(struct rp_sample));
    add((uint64_t[]){64, 65}, 16);
    finish("sample_keys", RP_OP_SAMPLE, 2, session, 11, 1);
    add(&(struct rp_pull){.batch = 1, .count = 1}, sizeof(struct rp_pull));
    finish("pull", RP_OP_PULL, 1, session, 12, 1);
    add(&(struct rp_update){.epoch = epoch, .count = 2}, sizeof(struct rp_update));
    add((struct rp_update_entry[]){{64, 2.0}, {65, 0.0}}, 2 * sizeof(struct rp_update_entry));
    finish("update", RP_OP_UPDATE, 1, session, 13, 1);
    begin_answer(RP_OK);
    add(&(struct rp_updated){.applied = 1, .unknown = 1}, sizeof(struct rp_updated));
    answer("update_answer", RP_OP_UPDATE, 1, 13);
}

static void blobs(void) {
    static const char weights[] = "sixteen bytes ok";
    /* The CRC-32C of those sixteen bytes, as any published implementation gives it. */
    struct rp_publish publish = {.size = 16, .piece = 16, .crc = 0x8a11fe48};
    add(&publish, sizeof publish);
    add(weights, 16);
    finish("publish", RP_OP_PUBLISH, 1, session, 14, 1);
    published = 1;
    begin_answer(RP_OK);
    add(&(struct rp_published){.version = 1}, sizeof(struct rp_published));
    answer("publish_answer", RP_OP_PUBLISH, 1, 14);
    struct rp_blob_request blob = {.count = 1, .kind = RP_BLOB_WEIGHTS};
    add(&blob, sizeof blob);
    finish("blob", RP_OP_BLOB, 1, session, 15, 1);
    begin_answer(RP_OK);
    add(&(struct rp_blob_datagram){.version = 1, .size = 16, .crc = publish.crc,
                                   .datagram_count = 1, .payload = 1288},
        sizeof(struct rp_blob_datagram));
    add(weights, 16);
    answer("blob_answer", RP_OP_BLOB, 1, 15);
    add(&(struct rp_stats_request){.count = 2}, sizeof(struct rp_stats_request));
    finish("stats", RP_OP_STATS, 1, session, 16, 1);
    begin_answer(RP_OK);
    add(&(struct rp_stats){.count = 2, .total = 79, .sessions = 1}, sizeof(struct rp_stats));
    add((uint64_t[]){16, 15}, 16);
    answer("stats_answer", RP_OP_STATS, 1, 16);
    add(&(struct rp_reset){.epoch = epoch}, sizeof(struct rp_reset));
    finish("reset", RP_OP_RESET, 1, session, 17, 1);
    begin_answer(RP_OK);
    add(&(struct rp_reset_done){.epoch = 0x6161616161616161}, sizeof(struct rp_reset_done));
    answer("reset_answer", RP_OP_RESET, 1, 17);
    finish("close", RP_OP_CLOSE, 3, session, 18, 1);
    begin_answer(RP_OK);
    answer("close_answer", RP_OP_CLOSE, 3, 18);
}

int main(void) {
    begin();
    handshake();
    tables();
    pushes();
    draws();
    blobs();
    refusals();
    return 0;
}
