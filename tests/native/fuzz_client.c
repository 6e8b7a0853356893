/* Fuzz target: turns of the client against a server that answers right, wrong, or not at all.
 *
 * An input is a list of commands from a client whose session is open, with two tables known and
 * a writer place on each. A real server stands behind it, asked only when a command says so; its
 * answers can be delivered as they are, or with bytes changed and the checksum put right, or made
 * up from nothing. The memory that answers land in is exactly as large as what was asked for.
 *
 *     whatever arrives, every ticket ends once its time is over, and rp_client_check holds
 *
 * The client's and the server's memory are copied back before each input.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "client/client.h"
#include "fuzz_port.h"
#include "server/server.h"

enum {
    COMMAND_TURN,
    COMMAND_SERVER,
    COMMAND_TIME,
    COMMAND_POST,
    COMMAND_PUSH,
    COMMAND_FORGE,
    COMMAND_CHANGE,
    COMMAND_LOSE,
    COMMANDS
};
enum {
    MTU = 1024,
    COMMANDS_MAX = 64,
    KEPT = 16,
    TICKETS = 16,
    ITEMS = 12,
    STEP_BYTES = 64,
    BLOB_BYTES = 3000
};
#define SECOND ((uint64_t)1000000000)

static struct {
    struct rp_client *client;
    struct rp_server *server;
    uint8_t *client_memory, *client_copy, *region, *region_copy;
    size_t client_bytes, region_bytes;
    struct fuzz_port client_port, server_port;
    uint64_t now, start, packet, sent, session, incarnation, ids[RP_OP_COUNT];
    struct {
        uint8_t data[MTU];
        uint32_t size;
    } kept[KEPT];
    uint32_t kept_count;
    int tickets[TICKETS];
    struct rp_table_info info[2];
    struct rp_writer_granted granted;
} world;

struct place { /* where one ticket's answers land, unmoved while it is under way */
    uint8_t *items, *blob;
    struct rp_landing_column column;
    struct rp_landing landing;
    uint64_t keys[ITEMS], masses[ITEMS], totals[ITEMS], ages[ITEMS], asked[ITEMS];
    uint16_t behind[ITEMS], ahead[ITEMS];
    uint32_t drawables[ITEMS];
    uint8_t valid[ITEMS];
    uint64_t size, version, published, epoch, counters[RP_COUNTER_COUNT];
    struct rp_fact facts[RP_FACTS_MAX];
    uint32_t fact_count;
    uint32_t sessions;
    struct rp_updated updated;
    struct rp_table_info info;
    struct rp_writer_granted granted;
};

static struct place places[TICKETS];
static uint8_t weights[BLOB_BYTES];

static void client_sent(const struct rp_packet *packet, const struct rp_view *view) {
    struct rp_peer peer = fuzz_peer(1);
    CHECK(!(view->message->op & RP_ANSWER), "the client answers");
    world.ids[view->message->op] = view->message->id;
    world.sent = view->outer->packet;
    world.session = view->outer->connection ? view->outer->connection : world.session;
    fuzz_port_feed(&world.server_port, packet->data, packet->size, &peer);
}

static void server_sent(const struct rp_packet *packet, const struct rp_view *view) {
    struct rp_peer peer = fuzz_peer(9);
    uint32_t place = world.kept_count++ % KEPT;
    const struct rp_answer *answer = (const void *)view->body;
    world.incarnation = answer->incarnation;
    world.packet = view->outer->packet;
    memcpy(world.kept[place].data, packet->data, packet->size);
    world.kept[place].size = packet->size;
    fuzz_port_feed(&world.client_port, packet->data, packet->size, &peer);
}

static void client_turn(void) {
    rp_client_turn(world.client, fuzz_port_face(&world.client_port), world.now);
    rp_client_check(world.client);
    world.now += 50000;
}

static void server_turn(void) {
    rp_server_turn(world.server, fuzz_port_face(&world.server_port), world.now);
}

/* ---- the start ---- */

static const struct rp_column columns[] = {{0, 16, 1}, {16, 40, 0}};
static const struct rp_pick picks[] = {{0, 0}, {1, 0}, {0, 1}};
static const struct rp_plan plan = {"plan", picks, 3};
static const struct rp_plan row_plan = {"row", picks, 2};

static void server_open(void) {
    struct rp_table_config tables[2];
    uint8_t entropy[32] = {9};
    char error[256] = "";
    for (uint32_t i = 0; i < 2; i++) {
        tables[i] = (struct rp_table_config){.capacity = 256,
                                             .step_bytes = STEP_BYTES,
                                             .columns = columns,
                                             .column_count = 2,
                                             .plans = i ? &plan : &row_plan,
                                             .plan_count = 1,
                                             .alpha = 1,
                                             .min_size = 1,
                                             .writers_max = 2,
                                             .streams_max = 2,
                                             .window = 8,
                                             .pieces_max = 4,
                                             .spec = columns,
                                             .spec_bytes = sizeof columns};
        snprintf(tables[i].name, sizeof tables[i].name, "%s", i ? "windows" : "rows");
    }
    struct rp_server_config config = {.tables = tables,
                                      .table_count = 2,
                                      .sessions_max = 3,
                                      .batch_max = 32,
                                      .records = 4,
                                      .mtu = MTU,
                                      .receive_budget = 32,
                                      .idle_ms = 1000,
                                      .lapse_ms = 50,
                                      .weights_max = BLOB_BYTES,
                                      .seed = 7};
    world.region_bytes = rp_server_bytes(&config, error);
    CHECK(world.region_bytes > 0, "%s", error);
    world.region = aligned_alloc(64, (world.region_bytes + 63) & ~(size_t)63);
    CHECK(world.region != NULL);
    memset(world.region, 0, world.region_bytes);
    CHECK(rp_server_create(&world.server, world.region, world.region_bytes, &config, entropy,
                           world.now, error)
              == 0,
          "%s", error);
    fuzz_port_open(&world.server_port, MTU, 32, server_sent);
    world.server_port.base.address = fuzz_peer(9);
}

static void client_open(void) {
    struct rp_client_options options = {.mtu = MTU,
                                        .receive_budget = 32,
                                        .requests_max = TICKETS,
                                        .messages_max = 8,
                                        .batch_max = ITEMS,
                                        .tables_max = 2,
                                        .retry_us_min = 1000,
                                        .retry_us_max = 50000,
                                        .connect_timeout_ns = SECOND,
                                        .nonce = 5,
                                        .seed = 6};
    struct rp_peer server = fuzz_peer(9);
    char error[256] = "";
    world.client_bytes = rp_client_bytes(&options, error);
    CHECK(world.client_bytes > 0, "%s", error);
    world.client_memory = aligned_alloc(64, (world.client_bytes + 63) & ~(size_t)63);
    CHECK(world.client_memory != NULL);
    memset(world.client_memory, 0, world.client_bytes);
    CHECK(rp_client_open(&world.client, world.client_memory, world.client_bytes, &options, &server,
                         world.now, error)
              == 0,
          "%s", error);
    fuzz_port_open(&world.client_port, MTU, 32, client_sent);
    world.client_port.base.address = fuzz_peer(1);
}

static void until_ended(int ticket) {
    CHECK(ticket > 0, "the harness's own request: %d", ticket);
    for (int i = 0; i < 100 && rp_client_poll(world.client, ticket) == RP_PENDING; i++) {
        client_turn();
        server_turn();
    }
    CHECK(rp_client_poll(world.client, ticket) == 0, "the harness's own request: %d",
          rp_client_poll(world.client, ticket));
    rp_client_take(world.client, ticket);
}

static void open_once(void) {
    if (world.client) {
        return;
    }
    world.now = SECOND;
    server_open();
    client_open();
    static const char *const names[] = {"rows", "windows"};
    for (uint32_t i = 0; i < 2; i++) {
        until_ended(rp_client_table(world.client, names[i], &world.info[i], 9 * SECOND));
        until_ended(rp_client_writer(world.client, &world.info[i], 2, &world.granted, 9 * SECOND));
    }
    for (uint32_t i = 0; i < TICKETS; i++) {
        places[i].items = malloc((size_t)ITEMS * STEP_BYTES * 2);
        places[i].blob = malloc(BLOB_BYTES);
        CHECK(places[i].items && places[i].blob);
    }
    world.client_copy = malloc(world.client_bytes);
    world.region_copy = malloc(world.region_bytes);
    CHECK(world.client_copy && world.region_copy);
    memcpy(world.client_copy, world.client_memory, world.client_bytes);
    memcpy(world.region_copy, world.region, world.region_bytes);
    world.start = world.now;
}

/* ---- requests ---- */

static int post_sample(struct fuzz_input *input, struct place *land, uint64_t deadline) {
    uint32_t table = (uint32_t)fuzz_take(input, 1) % 2, count = 1 + fuzz_take(input, 1) % ITEMS;
    uint32_t item_bytes = world.info[table].item_bytes[0];
    struct rp_sample request = {.epoch = world.info[table].epoch,
                                .count = count,
                                .budget = 4,
                                .mode = (uint8_t)(fuzz_take(input, 1) % RP_SAMPLE_MODES)};
    land->column = (struct rp_landing_column){land->items, item_bytes, 0, item_bytes};
    land->landing = (struct rp_landing){.columns = &land->column,
                                        .column_count = 1,
                                        .item_bytes = item_bytes,
                                        .keys = land->keys,
                                        .masses = land->masses,
                                        .behind = land->behind,
                                        .ahead = land->ahead,
                                        .totals = land->totals,
                                        .drawables = land->drawables,
                                        .ages = land->ages,
                                        .valid = land->valid};
    for (uint32_t i = 0; i < ITEMS; i++) {
        land->asked[i] = world.info[table].capacity + i;
    }
    CHECK(item_bytes <= 2 * STEP_BYTES);
    return rp_client_sample(world.client, (uint16_t)table, &request,
                            request.mode == RP_SAMPLE_KEYS ? land->asked : NULL, &land->landing,
                            deadline);
}

static int post_update(struct fuzz_input *input, struct place *land, uint64_t deadline) {
    double priorities[ITEMS] = {1, 2, 3};
    uint32_t table = (uint32_t)fuzz_take(input, 1) % 2;
    for (uint32_t i = 0; i < ITEMS; i++) {
        land->asked[i] = world.info[table].capacity + i / 2;
    }
    return rp_client_update(world.client, (uint16_t)table, world.info[table].epoch, land->asked,
                            priorities, ITEMS, &land->updated, deadline);
}

static int post_request(struct fuzz_input *input, struct place *land) {
    uint64_t deadline = world.now + SECOND / 1000 * fuzz_take(input, 1);
    uint32_t what = (uint32_t)fuzz_take(input, 1) % 12, table = what % 2;
    switch (what) {
    case 0:
    case 1: return post_sample(input, land, deadline);
    case 2: return post_update(input, land, deadline);
    case 3:
        return rp_client_publish(world.client, weights, 1 + fuzz_take(input, 2) % BLOB_BYTES,
                                 &land->published, deadline);
    case 4:
        return rp_client_blob(world.client, RP_BLOB_WEIGHTS, 0, fuzz_take(input, 1) % 3, land->blob,
                              BLOB_BYTES, &land->size, &land->version, deadline);
    case 5:
        return rp_client_blob(world.client, RP_BLOB_SPEC, 0, 0, land->blob, BLOB_BYTES, &land->size,
                              &land->version, deadline);
    case 6: return rp_client_stats(world.client, land->counters, &land->sessions, deadline);
    case 7:
        return rp_client_reset(world.client, (uint16_t)table, world.info[table].epoch, &land->epoch,
                               deadline);
    case 8: return rp_client_table_number(world.client, (uint16_t)table, &land->info, deadline);
    case 9: return rp_client_writer(world.client, &world.info[table], 2, &land->granted, deadline);
    case 10: return rp_client_close(world.client, deadline);
    default:
        return fuzz_take(input, 1) & 1
            ? rp_client_facts(world.client, land->facts, &land->fact_count, deadline)
            : rp_client_ping(world.client, deadline);
    }
}

/* A ticket in a place of its own; the one that was there is abandoned. */
static void post(struct fuzz_input *input) {
    uint32_t place = (uint32_t)fuzz_take(input, 1) % TICKETS;
    if (world.tickets[place] > 0) {
        rp_client_take(world.client, world.tickets[place]);
    }
    world.tickets[place] = post_request(input, &places[place]);
}

static void push(struct fuzz_input *input) {
    uint8_t steps[4 * STEP_BYTES] = {1};
    double priorities[4] = {1, 2, 0, 4};
    uint32_t how = (uint32_t)fuzz_take(input, 1), table = how & 1, stream = how >> 1 & 1;
    uint32_t count = 1 + (how >> 2 & 3);
    uint32_t flags =
        table ? (how & 16 ? RP_RUN_END : 0) : RP_RUN_ITEM | (how >> 3 & RP_RUN_PRIORITY);
    rp_client_push(world.client, (uint16_t)table, (uint16_t)stream, steps, count, flags,
                   flags & RP_RUN_PRIORITY ? priorities : NULL);
    if (how & 64 && table) {
        rp_client_create(world.client, 1, (uint16_t)stream, fuzz_take(input, 1) % 8, 1, 0);
    }
    if (how & 128) {
        rp_client_flush(world.client, (uint16_t)table);
    }
}

/* ---- answers ---- */

static void deliver(uint8_t *data, const struct rp_message *message, uint32_t size,
                    uint64_t connection, uint64_t packet) {
    struct rp_peer peer = fuzz_peer(9);
    size = rp_packet_seal(data, message, size, connection, packet);
    fuzz_port_feed(&world.client_port, data, size, &peer);
}

/* An answer from nothing: to the newest request of some operation, or to none. */
static void forge(struct fuzz_input *input) {
    uint64_t data[MTU / 8] = {0};
    uint32_t how = (uint32_t)fuzz_take(input, 1), op = (uint32_t)fuzz_take(input, 1) % RP_OP_COUNT;
    struct rp_message message = {.op = (uint8_t)(op | (how & 1 ? 0 : RP_ANSWER)),
                                 .id = how & 2 ? fuzz_take(input, 1) : world.ids[op],
                                 .table = how & 4 ? 1 : 0};
    struct rp_answer answer = {.incarnation = world.incarnation + (how >> 3 & 1),
                               .weights_version = fuzz_take(input, 1),
                               .status = (uint16_t)fuzz_take(input, 1),
                               .credit = (uint16_t)fuzz_take(input, 1),
                               .lapse_us = 10000};
    uint8_t *body = (uint8_t *)data + RP_HEADER_BYTES;
    uint32_t most = MTU - RP_ANSWER_BYTES, size = (uint32_t)fuzz_take(input, 2) % (most + 1);
    memcpy(body, &answer, sizeof answer);
    fuzz_take_bytes(input, body + sizeof answer, size);
    if (how & 64) { /* as who saw the client's last datagram could say it, but for one byte */
        struct rp_refused wrong = {.connection = world.session, .packet = (uint32_t)world.sent,
                                   .port = answer.credit};
        memcpy(body + sizeof answer, &wrong, sizeof wrong);
        answer.status = how & 8 ? RP_UNKNOWN_SESSION : RP_WRONG_QUEUE;
        memcpy(body, &answer, sizeof answer);
        body[sizeof answer + answer.weights_version % sizeof wrong] ^= (uint8_t)(size >> 2 & 1);
        deliver((uint8_t *)data, &message, sizeof answer + sizeof wrong, 0, ++world.packet);
        return;
    }
    size = how & 16 ? size / 4 : sizeof answer + (size & ~7u);
    deliver((uint8_t *)data, &message, size & ~7u, how & 32 ? 0 : world.session, ++world.packet);
}

/* A true answer with some bytes changed. */
static void change(struct fuzz_input *input) {
    if (world.kept_count == 0) {
        return;
    }
    uint32_t kept = world.kept_count < KEPT ? world.kept_count : KEPT;
    uint32_t which = (uint32_t)fuzz_take(input, 1), offset = (uint32_t)fuzz_take(input, 2);
    uint64_t data[MTU / 8];
    uint32_t size = world.kept[which % kept].size;
    memcpy(data, world.kept[which % kept].data, size);
    struct rp_outer *outer = (void *)data;
    uint64_t connection = outer->connection, packet = which & 128 ? outer->packet : ++world.packet;
    uint32_t body = size - RP_HEADER_BYTES, bytes = 1 + (which >> 4 & 7);
    offset = body ? offset % body : 0;
    fuzz_take_bytes(input, (uint8_t *)data + RP_HEADER_BYTES + offset,
                    bytes < body - offset ? bytes : body - offset);
    struct rp_message message = *(struct rp_message *)(void *)((uint8_t *)data + sizeof *outer);
    deliver((uint8_t *)data, &message, body, connection, packet);
}

static void command(struct fuzz_input *input) {
    switch (fuzz_take(input, 1) % COMMANDS) {
    case COMMAND_TURN: client_turn(); break;
    case COMMAND_SERVER: server_turn(); break;
    case COMMAND_TIME: world.now += (uint64_t)1 << fuzz_take(input, 1) % 34; break;
    case COMMAND_POST: post(input); break;
    case COMMAND_PUSH: push(input); break;
    case COMMAND_FORGE: forge(input); break;
    case COMMAND_CHANGE: change(input); break;
    default: fuzz_port_drain(&world.client_port); fuzz_port_drain(&world.server_port);
    }
}

/* Silence until every deadline is past: no ticket may be under way then. */
static void finish(void) {
    for (int i = 0; i < 8; i++) {
        world.now += SECOND;
        client_turn();
        fuzz_port_drain(&world.server_port);
    }
    for (uint32_t i = 0; i < TICKETS; i++) {
        CHECK(world.tickets[i] <= 0 || rp_client_poll(world.client, world.tickets[i]) != RP_PENDING,
              "a ticket outlived its deadline");
    }
    fuzz_port_drain(&world.client_port);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input input = {data, size};
    open_once();
    memcpy(world.client_memory, world.client_copy, world.client_bytes);
    memcpy(world.region, world.region_copy, world.region_bytes);
    memset(world.tickets, 0, sizeof world.tickets);
    world.kept_count = 0;
    world.now = world.start;
    for (uint32_t i = 0; i < COMMANDS_MAX && input.size > 0; i++) {
        command(&input);
    }
    finish();
    return 0;
}
