/* Fuzz target: turns of the server. An input is a list of commands: datagrams, turns, time, attach.
 *
 * The first byte chooses where it starts (its lowest bit): before any session, or behind an open
 * one with a writer, stored steps and items; and the server's shape (the next five bits): mtu,
 * the mtu its session agreed, receive budgets, window and tables. A datagram command says what the
 * harness puts right, so that the fuzzer need not guess checksums, cookies, epochs or session
 * numbers:
 *
 *     kind (1) | op (1) | table (1) | id (1) | size (2) | body ...
 *     kind: FIX_HEADER  magic, version, sizes, checksum; else the body is the datagram
 *           FIX_SESSION connection is the open session's; else the body's first 8 bytes are
 *           FIX_EPOCH   the body starts with the table's epoch (push, sample, update, reset)
 *           FIX_COOKIE  the body starts with the newest cookie that was answered
 *           STRANGER    comes from another address
 *
 * A turn may cost no more units of work (store.h) than its datagrams are allowed; how many it cost
 * is told to the fuzzer as something to be reached, so that it looks for the dearest. After every
 * input the server's and tables' own checks must hold. The state an input starts from
 * is copied back into place, so that each starts alike.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fuzz_port.h"
#include "server/server.h"
#include "table/store.h"

enum { FIX_HEADER = 1, FIX_SESSION = 2, FIX_EPOCH = 4, FIX_COOKIE = 8, STRANGER = 16, PADDED = 32 };
enum { COMMAND_TURN = 0xF0, COMMAND_TIME, COMMAND_ATTACH, COMMAND_ROOM, COMMAND_CHECK };
enum { MTU_MOST = 8952, COMMANDS_MAX = 64, STEP_BYTES = 64, SHAPES = 32, TABLES = 2 };

struct shape {
    uint32_t mtu;          /* the server's */
    uint32_t session_mtu;  /* what its session agrees to */
    uint32_t budget;       /* datagrams the server takes in one go; its client half as many */
    uint32_t window;
    uint32_t pieces, writers, streams;
};

static struct shape shape_of(uint32_t number) {
    static const uint32_t mtus[] = {1024, 512, 1400, MTU_MOST};
    uint32_t mtu = mtus[number & 3];
    return (struct shape){.mtu = mtu,
                          .session_mtu = number & 4 ? (mtu > 600 ? 600 : RP_MTU_MIN) : mtu,
                          .budget = number & 8 ? 3 : 32,
                          .window = number & 16 ? 61 : 8,
                          .pieces = number & 16 ? 1 : 4,
                          .writers = number & 16 ? 3 : 2,
                          .streams = number & 16 ? 5 : 2};
}

struct world {
    struct shape shape;
    struct rp_server *server;
    uint8_t *region;
    size_t bytes;
    struct rp_server_config config;
    struct rp_table_config tables[TABLES];
    struct rp_server *first; /* its handle before any attach */
    uint64_t behind_session, behind_packet, behind_now;
    uint8_t *fresh, *behind; /* the region as it is at the two starts */
    struct fuzz_port port;
    uint64_t now, packet, session, cookie, fresh_now;
};

static struct world worlds[SHAPES];
static struct world *world;

/* The fuzzer takes these for places of the program that were reached. */
static uint8_t work_reached[64] __attribute__((section("__libfuzzer_extra_counters")));

static void sent(const struct rp_packet *packet, const struct rp_view *view) {
    const struct rp_answer *answer = (const void *)view->body;
    CHECK(view->message->op & RP_ANSWER, "the server asks");
    CHECK(packet->peer.size == 1, "an answer to nobody");
    int extra = answer->status == RP_OK || answer->status == RP_ADDRESS_CHANGED;
    if (view->message->op == (RP_OP_HELLO | RP_ANSWER) && extra) {
        world->cookie = ((const struct rp_cookie *)(const void *)(answer + 1))->cookie;
    } else if (view->message->op == (RP_OP_OPEN | RP_ANSWER) && extra) {
        world->session = ((const struct rp_opened *)(const void *)(answer + 1))->session;
    } else if (answer->status == RP_ADDRESS_CHANGED) {
        world->cookie = ((const struct rp_address_changed *)(const void *)(answer + 1))->cookie;
    }
}

/* ---- the server ---- */

static const struct rp_column columns[] = {{0, 16, 1}, {16, 40, 0}};
static const struct rp_pick window_picks[] = {{0, -2}, {0, -1}, {0, 0}, {0, 2}, {1, 0}};
static const struct rp_pick row_picks[] = {{0, 0}, {1, 0}};
static const struct rp_plan window_plans[] = {{"window", window_picks, 5}, {"row", row_picks, 2}};
static const struct rp_plan row_plans[] = {{"row", row_picks, 2}};

static struct rp_table_config table_config(const struct shape *shape, int windows) {
    struct rp_table_config config = {.capacity = 16 * shape->window * shape->writers,
                                     .step_bytes = STEP_BYTES,
                                     .columns = columns,
                                     .column_count = 2,
                                     .plans = windows ? window_plans : row_plans,
                                     .plan_count = windows ? 2 : 1,
                                     .alpha = 0.5,
                                     .min_size = 1,
                                     .writers_max = shape->writers,
                                     .streams_max = shape->streams,
                                     .window = shape->window,
                                     .pieces_max = shape->pieces,
                                     .spec = columns,
                                     .spec_bytes = sizeof columns};
    snprintf(config.name, sizeof config.name, "%s", windows ? "windows" : "rows");
    if (!windows) {
        config.samples_per_insert = 2;
        config.error_min = -40;
        config.error_max = 120;
    }
    return config;
}

static void server_open(void) {
    const struct shape *shape = &world->shape;
    for (int i = 0; i < TABLES; i++) {
        world->tables[i] = table_config(shape, i);
    }
    struct rp_server_config config = {.tables = world->tables,
                                      .table_count = TABLES,
                                      .sessions_max = 3,
                                      .batch_max = 32,
                                      .records = 4,
                                      .mtu = shape->mtu,
                                      .receive_budget = shape->budget,
                                      .idle_ms = 1000,
                                      .lapse_ms = 50,
                                      .weights_max = 2048,
                                      .seed = 7};
    char error[256] = "";
    uint8_t entropy[32] = {1, 2, 3};
    world->config = config;
    world->now = 1000000000;
    world->bytes = rp_server_bytes(&config, error);
    CHECK(world->bytes > 0, "%s", error);
    world->region = aligned_alloc(64, (world->bytes + 63) & ~(size_t)63);
    CHECK(world->region != NULL);
    memset(world->region, 0, world->bytes);
    int status = rp_server_create(&world->server, world->region, world->bytes, &config, entropy,
                                  world->now, error);
    CHECK(status == 0, "%s", error);
    fuzz_port_open(&world->port, shape->mtu, shape->budget, sent);
}

static uint64_t work_done(void) {
    uint64_t units = 0;
    for (uint32_t i = 0; i < TABLES; i++) {
        units += rp_server_table(world->server, i)->private->work_total;
    }
    return units;
}

/* What a datagram may cost: its steps and creates, each at its dearest (a create is looked up
 * twice, to be counted and to be made), and once the window's entries, which may all have waited
 * for it. */
static uint64_t work_allowed(void) {
    uint64_t entries = world->shape.mtu / sizeof(struct rp_create) + world->shape.window;
    return entries * (RP_WALK_MAX / 4 + 2 * RP_BUCKET_MAX + 2 * RP_WORK_COMMIT);
}

static void turn(void) {
    uint64_t work = work_done();
    uint64_t datagrams = rp_server_counters(world->server)[RP_COUNT_datagrams_in];
    rp_server_turn(world->server, fuzz_port_face(&world->port), world->now);
    datagrams = rp_server_counters(world->server)[RP_COUNT_datagrams_in] - datagrams;
    work = work_done() - work;
    CHECK(work <= datagrams * work_allowed(), "%" PRIu64 " units of work in %" PRIu64 " datagrams",
          work, datagrams);
    work_reached[work > 0 && datagrams > 0 ? 64 - __builtin_clzll(work / datagrams + 1) : 0] = 1;
    world->now += 1000;
}

/* ---- datagrams ---- */

static void datagram(uint32_t kind, uint8_t op, uint16_t table, uint64_t id, uint8_t *data,
                     uint32_t size) {
    struct rp_peer peer = fuzz_peer(kind & STRANGER ? 2 : 1);
    uint8_t *body = data + RP_HEADER_BYTES;
    if (!(kind & FIX_HEADER)) {
        fuzz_port_feed(&world->port, body, size, &peer);
        return;
    }
    uint64_t connection = 0, epoch = 1;
    memcpy(&connection, body, size < 8 ? size : 8);
    if (kind & FIX_SESSION) {
        connection = op == RP_OP_HELLO || op == RP_OP_OPEN ? 0 : world->session;
    }
    if (table < rp_server_table_count(world->server)) {
        epoch = rp_table_epoch(rp_server_table(world->server, table));
    }
    if (kind & (FIX_EPOCH | FIX_COOKIE) && size >= 8) {
        memcpy(body, kind & FIX_COOKIE ? &world->cookie : &epoch, 8);
    }
    if (kind & PADDED) {
        uint32_t least = op == RP_OP_HELLO ? RP_HELLO_BYTES : RP_REQUEST_BODY_MIN;
        uint32_t padded = size < least ? least : (size + 7) & ~7u;
        memset(body + size, 0, padded - size);
        size = padded;
    }
    struct rp_message message = {.op = op, .table = table, .want = 4, .id = id};
    size = rp_packet_seal(data, &message, size & ~7u, connection, ++world->packet);
    fuzz_port_feed(&world->port, data, size, &peer);
}

static void send_now(uint8_t op, uint16_t table, uint64_t id, const void *body, uint32_t size) {
    uint64_t data[MTU_MOST / 8];
    memcpy((uint8_t *)data + RP_HEADER_BYTES, body, size);
    uint32_t fix = op == RP_OP_OPEN ? FIX_COOKIE : 0;
    fix |= op == RP_OP_PUSH || op == RP_OP_SAMPLE || op == RP_OP_UPDATE ? FIX_EPOCH : 0;
    datagram(FIX_HEADER | FIX_SESSION | PADDED | fix, op, table, id, (uint8_t *)data, size);
    turn();
}

/* Steps 0 .. 4 of stream 0: rows that are items at once, or an episode with items at 0 and 1. */
static void push_steps(uint16_t table) {
    struct {
        struct rp_push push;
        struct rp_run run;
        uint8_t steps[5][STEP_BYTES];
        struct rp_create creates[2];
    } body = {.push = {.run_count = 1, .create_count = table ? 2 : 0},
              .run = {.count = 5,
                      .piece_count = 1,
                      .size = 5 * STEP_BYTES,
                      .flags = table ? RP_RUN_END : RP_RUN_ITEM},
              .creates = {{.step = 0, .priority = 1}, {.step = 1, .priority = 2}}};
    memset(body.steps, 0x5A, sizeof body.steps);
    send_now(RP_OP_PUSH, table, 1, &body, sizeof body - (table ? 0 : sizeof body.creates));
}

static void session_open(void) {
    struct rp_hello hello = {.version_min = RP_VERSION_MIN, .version_max = RP_VERSION_MAX,
                             .mtu = world->shape.session_mtu, .features = RP_FEATURES_SPOKEN};
    struct rp_open open = {.features = RP_FEATURES_SPOKEN, .mtu = world->shape.session_mtu,
                           .version = RP_VERSION_MAX,
                           .receive_budget = (uint16_t)(world->shape.budget / 2)};
    struct rp_writer_request writer = {.streams = 2};
    send_now(RP_OP_HELLO, 0, 77, &hello, sizeof hello);
    send_now(RP_OP_OPEN, 0, 77, &open, sizeof open);
    CHECK(world->session != 0, "the harness's own handshake failed");
    for (uint16_t table = 0; table < 2; table++) {
        send_now(RP_OP_WRITER, table, 1, &writer, sizeof writer);
        push_steps(table);
    }
    const uint64_t *counters = rp_server_counters(world->server);
    CHECK(counters[RP_COUNT_steps_committed] == 10 && counters[RP_COUNT_items_created] == 7);
}

static uint8_t *copy_of(const uint8_t *region) {
    uint8_t *copy = malloc(world->bytes);
    CHECK(copy != NULL);
    memcpy(copy, region, world->bytes);
    return copy;
}

static void open_once(uint32_t number) {
    world = &worlds[number];
    if (world->server) {
        return;
    }
    world->shape = shape_of(number);
    server_open();
    world->first = world->server;
    world->fresh = copy_of(world->region);
    world->fresh_now = world->now;
    session_open();
    world->behind = copy_of(world->region);
    world->behind_session = world->session;
    world->behind_packet = world->packet;
    world->behind_now = world->now;
}

/* ---- commands ---- */

static void attach(uint64_t salt) {
    char error[256] = "";
    uint8_t entropy[32] = {0};
    memcpy(entropy, &salt, sizeof salt);
    if (salt % 4 == 3) { /* a header that is not what this build writes is refused */
        uint8_t *damaged = aligned_alloc(64, (world->bytes + 63) & ~(size_t)63);
        struct rp_server *none;
        CHECK(damaged != NULL);
        memcpy(damaged, world->region, world->bytes);
        damaged[salt / 4 % 24] ^= 1; /* magic, version, checksum */
        int refused = rp_server_attach(&none, damaged, world->bytes, &world->config, entropy,
                                       world->now, error);
        CHECK(refused == -RP_BAD_REGION && error[0], "a damaged header was taken: %d", refused);
        free(damaged);
    }
    int status =
        rp_server_attach(&world->server, world->region, world->bytes, &world->config, entropy,
                         world->now, error);
    CHECK(status == 0, "attach: %s", error);
}

static void check_all(void) {
    rp_server_check(world->server);
    for (uint32_t i = 0; i < rp_server_table_count(world->server); i++) {
        rp_table_check(rp_server_table(world->server, i));
    }
}

static void command(struct fuzz_input *input) {
    uint64_t data[MTU_MOST / 8 + 16];
    uint8_t kind = (uint8_t)fuzz_take(input, 1);
    switch (kind) {
    case COMMAND_TURN: turn(); break;
    case COMMAND_TIME: world->now += (uint64_t)1 << fuzz_take(input, 1) % 40; break;
    case COMMAND_ATTACH: attach(fuzz_take(input, 1)); break;
    case COMMAND_ROOM:
        world->port.lease_max = (uint32_t)fuzz_take(input, 1) % (RP_BURST + 1);
        break;
    case COMMAND_CHECK: check_all(); break;
    default: {
        uint8_t op = (uint8_t)fuzz_take(input, 1), table = (uint8_t)fuzz_take(input, 1);
        uint64_t id = fuzz_take(input, 1);
        uint32_t most = world->shape.mtu - RP_HEADER_BYTES;
        uint32_t size = (uint32_t)fuzz_take(input, 2) % (most + 1);
        memset(data, 0, sizeof data);
        size = fuzz_take_bytes(input, (uint8_t *)data + RP_HEADER_BYTES, size);
        datagram(kind, op, table, id, (uint8_t *)data, size);
        if (kind & 64) {
            turn();
        }
    }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input input = {data, size};
    uint32_t start = (uint32_t)fuzz_take(&input, 1);
    int behind = start & 1;
    open_once(start / 2 % SHAPES);
    memcpy(world->region, behind ? world->behind : world->fresh, world->bytes);
    world->now = behind ? world->behind_now : world->fresh_now;
    world->session = behind ? world->behind_session : 0;
    world->packet = world->behind_packet;
    world->cookie = 0;
    world->port.lease_max = RP_BURST;
    world->server = world->first; /* an attach may have put its handle elsewhere */
    for (uint32_t i = 0; i < COMMANDS_MAX && input.size > 0; i++) {
        command(&input);
    }
    turn();
    check_all();
    fuzz_port_drain(&world->port);
    return 0;
}
