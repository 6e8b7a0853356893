/* A peer that does not keep to the protocol: garbage, strangers, and a session of its own that asks
 * for what must be refused. Every datagram here has to be refused whole: the oracle knows nothing
 * of it, so that whatever it changes shows up as something nobody did. */
#include <math.h>
#include <string.h>

#include "check.h"
#include "protocol/flow.h"
#include "sim.h"

enum { BODY_MAX = 4096, GARBAGE_MAX = 256 };

struct letter { /* a request put together by hand */
    struct rp_message message;
    uint64_t connection;
    uint32_t size;
    union {
        uint8_t body[BODY_MAX];
        uint64_t words[BODY_MAX / 8];
    } as;
};

static uint64_t next(struct sim_world *world) {
    return rp_random_next(&world->random);
}
static uint32_t below(struct sim_world *world, uint32_t bound) {
    return (uint32_t)rp_random_below(&world->random, bound);
}

static struct letter letter_to(struct sim_world *world, uint8_t op, uint64_t connection,
                               uint64_t id) {
    struct letter letter = {
        .message = {.op = op, .table = (uint16_t)below(world, SIM_TABLES), .id = id},
        .connection = connection};
    return letter;
}

static void put(struct letter *letter, const void *part, uint32_t size) {
    CHECK(letter->size + size <= BODY_MAX);
    memcpy(letter->as.body + letter->size, part, size);
    letter->size += size;
}

static void post(struct sim_world *world, const struct letter *letter) {
    uint64_t data[(RP_HEADER_BYTES + BODY_MAX) / 8];
    uint32_t size =
        letter->size < RP_REQUEST_BODY_MIN ? RP_REQUEST_BODY_MIN : (letter->size + 7) & ~7u;
    memcpy((uint8_t *)data + RP_HEADER_BYTES, letter->as.body, size);
    size = rp_packet_seal((uint8_t *)data, &letter->message, size, letter->connection,
                          ++world->vandal_packet);
    sim_net_send(&world->net, world->vandal, &world->server.port->base.address, (uint8_t *)data,
                 size);
}

/* ---- strangers ---- */

static void garbage(struct sim_world *world) {
    uint64_t data[64];
    for (uint32_t i = 0; i < 64; i++) {
        data[i] = next(world);
    }
    if (below(world, 2) == 0) { /* a header that is right as far as the checksum */
        struct rp_outer outer = {
            .magic = RP_MAGIC, .version = (uint8_t)(1 + below(world, 2)), .connection = 1};
        memcpy(data, &outer, sizeof outer);
    }
    sim_net_send(&world->net, world->vandal, &world->server.port->base.address, (uint8_t *)data,
                 below(world, 513));
}

static void stranger(struct sim_world *world) {
    uint8_t op = (uint8_t)(1 + below(world, 20));
    uint64_t connection = next(world);
    uint64_t id = next(world);
    struct letter letter = letter_to(world, op, connection, id);
    for (uint32_t i = 0; i < GARBAGE_MAX / 8; i++) {
        letter.as.words[i] = next(world);
    }
    letter.size = below(world, GARBAGE_MAX + 1);
    if (letter.message.op == RP_OP_OPEN || letter.message.op == RP_OP_HELLO) {
        letter.connection = 0;
    }
    letter.message.reserved = below(world, 8) == 0;
    letter.size = letter.message.op == RP_OP_OPEN ? sizeof(struct rp_open) : letter.size;
    memset(letter.as.body + letter.size, 0, GARBAGE_MAX - letter.size);
    post(world, &letter);
}

/* ---- a session of its own ---- */

static void hello(struct sim_world *world) {
    struct rp_hello hello = {.mtu = world->mtu, .features = RP_FEATURES_SPOKEN};
    struct letter letter = letter_to(world, RP_OP_HELLO, 0, world->vandal_nonce);
    letter.message.table = 0;
    hello.version_min = hello.version_max = below(world, 10) == 0 ? 9 : RP_VERSION_MAX;
    put(&letter, &hello, sizeof hello);
    post(world, &letter);
}

static void answered(struct sim_world *world, const struct rp_packet *packet) {
    struct rp_view view;
    if (rp_packet_open(packet->data, packet->size, world->mtu, &view) != 0) {
        return;
    }
    const struct rp_answer *answer = (const void *)view.body;
    if (answer->status == RP_UNKNOWN_SESSION) {
        world->vandal_session = 0;
        world->vandal_nonce = next(world);
    } else if (view.message->op == (RP_OP_HELLO | RP_ANSWER) && answer->status == RP_OK) {
        const struct rp_cookie *cookie = (const void *)(answer + 1);
        struct rp_open open = {.cookie = cookie->cookie, .features = RP_FEATURES_SPOKEN,
                               .mtu = world->mtu, .version = RP_VERSION_MAX, .receive_budget = 8};
        struct letter letter = letter_to(world, RP_OP_OPEN, 0, world->vandal_nonce);
        letter.message.table = 0;
        put(&letter, &open, sizeof open);
        post(world, &letter);
    } else if (view.message->op == (RP_OP_OPEN | RP_ANSWER) && answer->status == RP_OK) {
        world->vandal_session = ((const struct rp_opened *)(const void *)(answer + 1))->session;
        struct rp_writer_request request = {.streams = 1};
        struct letter letter = letter_to(world, RP_OP_WRITER, world->vandal_session, 1);
        put(&letter, &request, sizeof request);
        post(world, &letter);
    }
}

/* A push that would be right but for one thing. */
static void bad_push(struct sim_world *world) {
    static const uint64_t zeros[SIM_BLOB_MAX / 8];
    struct letter letter = letter_to(world, RP_OP_PUSH, world->vandal_session, next(world));
    uint16_t number = letter.message.table;
    uint64_t epoch = rp_table_epoch(rp_server_table(world->server.server, number));
    uint32_t bytes = world->tables[number].config.step_bytes;
    uint16_t pieces = (uint16_t)rp_piece_count(bytes, world->mtu);
    struct rp_push push = {.epoch = epoch, .run_count = 1};
    struct rp_run run = {.count = 1, .piece_count = pieces, .size = bytes};
    run.size = pieces > 1 ? rp_piece_bytes(bytes, pieces) : bytes;
    uint32_t size = run.size;
    struct rp_create create = {.priority = NAN};
    switch (below(world, 8)) {
    case 0: run.stream = 60; break;
    case 1: run.sequence = (uint64_t)1 << 40; break;
    case 2: run.piece = pieces; break;
    case 3: run.size = 5000; break;
    case 4: push.epoch ^= 1; break;
    case 5: run.flags = 64; break;
    case 6: run.step = 100000; break;
    default:
        push.run_count = 0;
        push.create_count = 1;
        create.stream = below(world, 2) ? 60 : 0;
    }
    put(&letter, &push, sizeof push);
    if (push.run_count) {
        put(&letter, &run, sizeof run);
        put(&letter, zeros, size);
    } else {
        put(&letter, &create, sizeof create);
    }
    post(world, &letter);
}

static void bad_sample(struct sim_world *world) {
    struct letter letter = letter_to(world, RP_OP_SAMPLE, world->vandal_session, next(world));
    struct rp_sample sample = {.count = 1, .budget = 1};
    switch (below(world, 6)) {
    case 0: sample.count = SIM_BATCH_MAX + 1; break;
    case 1: sample.plan = 2; break;
    case 2: sample.mode = RP_SAMPLE_MODES; break;
    case 3: sample.epoch = 1; break;
    case 4: letter.message.table = SIM_TABLES; break;
    default: sample.count = 0;
    }
    put(&letter, &sample, sizeof sample);
    post(world, &letter);
}

static void bad_update(struct sim_world *world) {
    struct letter letter =
        letter_to(world, RP_OP_UPDATE, world->vandal_session, 1 + below(world, 100));
    uint64_t epoch = rp_table_epoch(rp_server_table(world->server.server, letter.message.table));
    struct rp_update update = {.epoch = epoch, .count = 1};
    struct rp_update_entry entry = {.key = below(world, 1000)};
    entry.priority = below(world, 2) ? -1.0 : INFINITY;
    put(&letter, &update, sizeof update);
    put(&letter, &entry, sizeof entry);
    post(world, &letter);
}

static void bad_blob(struct sim_world *world) {
    struct letter letter = letter_to(world, RP_OP_BLOB, world->vandal_session, next(world));
    struct rp_blob_request blob = {.version = 1000};
    blob.first = below(world, 3);
    blob.count = 1 + below(world, 100);
    blob.kind = (uint16_t)below(world, 4);
    struct rp_publish publish = {.size = below(world, 2) ? 1 << 20 : 100, .offset = 5, .piece = 8};
    struct rp_pull pull = {.batch = next(world), .count = 1};
    switch (below(world, 3)) {
    case 0: put(&letter, &blob, sizeof blob); break;
    case 1:
        letter.message.op = RP_OP_PUBLISH;
        put(&letter, &publish, sizeof publish);
        put(&letter, &pull, 8);
        break;
    default: letter.message.op = RP_OP_PULL; put(&letter, &pull, sizeof pull);
    }
    post(world, &letter);
}

static void listen(struct sim_world *world) {
    struct rp_packet packets[8];
    struct rp_port *port = sim_port_face(world->vandal);
    uint32_t count = rp_port_transport(port)->rx_burst(port, packets, 8);
    for (uint32_t i = 0; i < count; i++) {
        answered(world, &packets[i]);
    }
    rp_port_transport(port)->rx_release(port, packets, count);
}

void sim_vandal_act(struct sim_world *world) {
    static void (*const deeds[])(struct sim_world *world) = {
        garbage, stranger, bad_push, bad_push, bad_sample, bad_update, bad_blob};
    world->vandal_at = world->now + SIM_MS + rp_random_below(&world->random, 10 * SIM_MS);
    listen(world);
    if (!world->vandal_session && below(world, 3) == 0) {
        hello(world);
    }
    deeds[below(world, world->vandal_session ? 7 : 2)](world);
}
