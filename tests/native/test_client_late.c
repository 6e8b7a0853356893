/* What comes late, or in between: an answer that lacked a record is believed only where nothing can
 * have been drawn since; and a read by key, which takes a record again and again, makes way for who
 * lacks one. Situations read "Given ... Expect ...". */
#include "client_world.h"

enum { ITEM = 16, BATCH = 64, MAIN = 0, QUEUE = 1, KEYS = 600 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct rp_table_info infos[2];
static uint8_t bytes[3][KEYS * ITEM], rows[BATCH * ITEM];
static struct rp_landing_column columns[3] = {
    {bytes[0], ITEM, 0, ITEM}, {bytes[1], ITEM, 0, ITEM}, {bytes[2], ITEM, 0, ITEM}};

static void push(struct world *world, uint16_t table, uint32_t count) {
    for (uint32_t left = count, tries = 0; left > 0; tries++) {
        int taken = rp_client_push(world->client, table, 0, rows, left, RP_RUN_ITEM, NULL);
        CHECK(tries < 1000);
        left -= taken > 0 ? (uint32_t)taken : 0;
        rp_client_flush(world->client, table);
        world_run(world, WORLD_MS);
    }
    world_run(world, 5 * WORLD_MS);
}

/* A plain table and a queue, one record, and a client of both that takes small datagrams. */
static struct world *opened(void) {
    struct rp_client_options options = world_options();
    script_tables(tables);
    tables[MAIN].plan_count = 1;
    tables[QUEUE].alpha = 0;
    tables[QUEUE].fifo = 1;
    tables[QUEUE].error_max = 60;
    config = script_config(tables);
    config.records = 1;
    options.mtu = 512;
    options.receive_budget = 2;
    options.connect_timeout_ns = 5000 * WORLD_MS;
    struct world *world = world_open(&config, 16);
    world_client(world, &options);
    world_connect(world);
    for (uint16_t i = 0; i < 2; i++) {
        struct rp_writer_granted granted;
        struct rp_client *client = world->client;
        uint64_t deadline = world_later(world, 5000);
        CHECK(world_wait(world, rp_client_table_number(client, i, &infos[i], deadline)) == 0);
        CHECK(world_wait(world, rp_client_writer(client, &infos[i], 1, &granted, deadline)) == 0);
    }
    return world;
}

static int post(struct world *world, uint16_t table, uint32_t count) {
    struct rp_sample request = {.count = count};
    struct rp_landing landing = {.columns = &columns[table], .column_count = 1,
                                 .item_bytes = ITEM, .consumes = table == QUEUE};
    return rp_client_sample(world->client, table, &request, NULL, &landing,
                            world_later(world, 60000));
}

static int read_keys(struct world *world, uint32_t count) {
    static uint64_t keys[KEYS];
    struct rp_sample request = {.count = count, .mode = RP_SAMPLE_KEYS};
    struct rp_landing landing = {.columns = &columns[2], .column_count = 1, .item_bytes = ITEM};
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = infos[MAIN].capacity + i % 8;
    }
    return rp_client_sample(world->client, MAIN, &request, keys, &landing,
                            world_later(world, 60000));
}

static uint64_t sampled(struct world *world, uint16_t table) {
    struct rp_table_info info;
    rp_table_info(&world->server->tables[table], &info);
    return info.sampled;
}

/* A key that was never stored lands as a hole. */
static int is_read(int status) {
    return status == RP_OK || status == -RP_SHORT_BATCH;
}

/* Takes what is told of this sample off its way. 1 where one of that lacked a record: *late. */
static int take(struct world *world, uint64_t id, struct world_datagram *late) {
    struct world_port *port = &world->ports[1];
    uint32_t kept = 0;
    int found = 0;
    for (uint32_t i = 0; i < port->count; i++) {
        struct world_datagram *datagram = &port->queue[i];
        const struct rp_message *message = world_message(datagram);
        const struct rp_answer *answer = (void *)rp_packet_body(datagram->data);
        const struct rp_blocked *blocked = (const void *)(answer + 1);
        if (message->op != (RP_OP_SAMPLE | RP_ANSWER) || message->id != id) {
            port->queue[kept++] = *datagram;
        } else if (late != NULL && !found && answer->status == RP_BLOCKED
                   && blocked->noted == RP_NO_RECORD) {
            *late = *datagram;
            found = 1;
        } else {
            free(datagram->data);
        }
    }
    port->count = kept;
    return found;
}

/* 1. Given a draw of a queue that lacks a record, but is told so late: meanwhile it asked again,
 *    got its place and was drawn, its train lost; then the server closes, and tells a draw of
 *    another table so. Expect it to get its batch from the server that takes the region over. */
static void situation_late(void) {
    char error[256];
    uint8_t entropy[32];
    struct rp_blocked blocked;
    struct world_datagram late;
    struct world *world = opened();
    push(world, MAIN, 2);
    push(world, QUEUE, 3);
    int draw = post(world, QUEUE, 4); /* id 1 */
    world_run(world, 100 * WORLD_MS);
    int plain = post(world, MAIN, 3); /* id 2: fewer are there than its least size */
    world_run(world, 380 * WORLD_MS);
    int reading = read_keys(world, 1); /* id 3: it has the record as the first asks again */
    for (uint64_t end = world_later(world, 1000); !take(world, 1, &late);) {
        CHECK(world->now_ns < end, "it is never told");
        world_step(world, WORLD_MS / 20);
        (void)take(world, 3, NULL);
    }
    CHECK(is_read(world_wait(world, reading)));
    for (uint64_t end = world_later(world, 2000); world->now_ns < end;) {
        world_step(world, WORLD_MS);
        rp_client_blocked(world->client, draw, &blocked);
    }
    CHECK(blocked.noted == RP_PLACE && world->server->waiting[RP_WAIT_SAMPLE][QUEUE].count == 1);
    CHECK(rp_client_push(world->client, QUEUE, 0, rows, 1, RP_RUN_ITEM, NULL) == 1);
    rp_client_flush(world->client, QUEUE);
    while (sampled(world, QUEUE) == 0) {
        world_turn(world);
        (void)take(world, 1, NULL);
        world_advance(world, WORLD_MS / 100);
    }
    (void)take(world, 1, NULL);
    late.due_ns = world->now_ns;
    world->ports[1].queue[world->ports[1].count++] = late;
    world_client_turn(world);
    world_lose_all(world);
    rp_server_last_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns, 1);
    world->now_ns += WORLD_MS;
    world_client_turn(world);
    CHECK(rp_client_poll(world->client, plain) == -RP_CLOSED);
    CHECK(rp_client_poll(world->client, draw) == RP_PENDING);
    script_entropy(entropy, 9);
    CHECK(rp_server_attach(&world->server, world->region, world->region_bytes, &config, entropy,
                           world->now_ns, error) == 0, "%s", error);
    CHECK(world_wait(world, draw) == RP_OK && sampled(world, QUEUE) == 4);
    world_close(world);
    check_group("1 a late answer that a record lacks hides no batch");
}

/* 2. Given draws that wait at a queue, and a read of more keys than a datagram holds, so that it
 *    takes the only record again and again; then items for all. Expect both done within some round
 *    trips: each of the read's rounds makes way. */
static void situation_reading(void) {
    enum { DRAWS = 4 };
    struct world *world = opened();
    push(world, MAIN, 8);
    int draws[DRAWS];
    for (uint32_t i = 0; i < DRAWS; i++) {
        draws[i] = post(world, QUEUE, 1);
    }
    world_run(world, 100 * WORLD_MS);
    int reading = read_keys(world, KEYS);
    CHECK(rp_client_push(world->client, QUEUE, 0, rows, DRAWS, RP_RUN_ITEM, NULL) == DRAWS);
    rp_client_flush(world->client, QUEUE);
    uint64_t begin_ns = world->now_ns;
    CHECK(is_read(world_wait(world, reading)));
    for (uint32_t i = 0; i < DRAWS; i++) {
        CHECK(world_wait(world, draws[i]) == RP_OK);
    }
    CHECK(world->now_ns - begin_ns < 30 * WORLD_MS, "%u ms",
          (unsigned)((world->now_ns - begin_ns) / WORLD_MS));
    world_close(world);
    check_group("2 a read by key makes way for who lacks a record");
}

int main(void) {
    situation_late();
    situation_reading();
    return check_done("test_client_late");
}
