/* Things of more datagrams than a client tells apart at once: blobs that are published and pulled,
 * and batches. Situations read "Given ... Expect ...". */
#include "base/minmax.h"
#include "client/client_parts.h"
#include "client_world.h"

enum { MAIN = 0, STEP = 4096, ITEMS = 9000, STORED = 8 };
#define BLOB_BYTES ((uint64_t)40 << 20)

static struct rp_table_config tables[2];
static struct rp_server_config config;

static const struct rp_column column = {.offset = 0, .size = STEP};
static const struct rp_pick pick = {0, 0};
static const struct rp_plan plan = {.name = "row", .picks = &pick, .pick_count = 1};

static struct world *fresh(void) {
    struct rp_client_options options = world_options();
    options.mtu = RP_MTU_MIN;
    options.batch_max = ITEMS;
    script_tables(tables);
    tables[MAIN].step_bytes = STEP;
    tables[MAIN].columns = &column;
    tables[MAIN].column_count = 1;
    tables[MAIN].plans = &plan;
    tables[MAIN].plan_count = 1;
    tables[MAIN].min_size = 1;
    tables[MAIN].pieces_max = 16;
    config = script_config(tables);
    config.mtu = RP_MTU_MIN;
    config.batch_max = ITEMS;
    config.weights_max = BLOB_BYTES;
    struct world *world = world_open(&config, 1);
    world_client(world, &options);
    world_connect(world);
    return world;
}

static void fill(uint8_t *bytes, uint64_t size) {
    struct rp_random random;
    rp_random_seed(&random, 3);
    for (uint64_t i = 0; i < size; i += 8) {
        uint64_t word = rp_random_next(&random);
        memcpy(bytes + i, &word, 8);
    }
}

static void check_base(const struct world *world, uint32_t count) {
    uint32_t base = 0;
    for (uint32_t i = 0; i < world->client->slots_used; i++) {
        base = rp_max(base, world->client->slots[i].fetch.base);
    }
    CHECK(count > CLIENT_AHEAD_MAX && base > CLIENT_AHEAD_MAX && base <= count, "%u of %u", base,
          count);
}

/* 1. Given a blob of more datagrams than the client tells apart at once, and some of them lost,
 *    late or repeated. Expect it published and pulled back whole. */
static void situation_blob(uint32_t bad) {
    struct world *world = fresh();
    uint8_t *bytes = malloc(BLOB_BYTES), *back = calloc(1, BLOB_BYTES);
    uint64_t version = 0, size = 0, got = 0;
    fill(bytes, BLOB_BYTES);
    world->lose = world->repeat = bad;
    world->late = bad * 4;
    int ticket = rp_client_publish(world->client, bytes, BLOB_BYTES, &version,
                                   world_later(world, 1000000));
    CHECK(world_wait(world, ticket) == 0 && version > 0);
    check_base(world, (uint32_t)(BLOB_BYTES / rp_publish_piece(RP_MTU_MIN)));
    ticket = rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 0, back, BLOB_BYTES, &size, &got,
                            world_later(world, 1000000));
    CHECK(world_wait(world, ticket) == 0 && size == BLOB_BYTES && got == version);
    CHECK(memcmp(bytes, back, BLOB_BYTES) == 0);
    free(bytes);
    free(back);
    world_close(world);
}

/* 2. Given a batch of as many. Expect each item at its place. */
static void situation_batch(uint32_t bad) {
    static struct rp_writer_granted granted;
    static uint8_t steps[STORED * STEP];
    struct world *world = fresh();
    struct rp_table_info info;
    struct rp_push_state state;
    uint8_t *back = calloc(ITEMS, STEP);
    fill(steps, sizeof steps);
    int ticket = rp_client_table(world->client, "main", &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &info, 1, &granted, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    for (int taken = 0; taken < STORED; world_step(world, WORLD_MS)) {
        taken += rp_client_push(world->client, MAIN, 0, steps + taken * STEP, 1, RP_RUN_ITEM, NULL);
    }
    while (rp_client_push_state(world->client, MAIN, &state), state.items_created < STORED) {
        rp_client_flush(world->client, MAIN);
        world_step(world, WORLD_MS);
    }
    world->lose = world->repeat = bad;
    world->late = bad * 4;
    struct rp_landing_column whole = {.target = back, .stride = STEP, .size = STEP};
    uint64_t *keys = calloc(ITEMS, sizeof *keys);
    struct rp_landing landing = {
        .columns = &whole, .column_count = 1, .item_bytes = STEP, .keys = keys};
    struct rp_sample request = {.count = ITEMS, .mode = RP_SAMPLE_STRATIFIED};
    ticket = rp_client_sample(world->client, MAIN, &request, NULL, &landing,
                              world_later(world, 1000000));
    CHECK(world_wait(world, ticket) == 0);
    uint32_t each = rp_batch_payload(RP_MTU_MIN, STEP);
    check_base(world, (uint32_t)(rp_batch_bytes(ITEMS, STEP) / each + 1));
    for (uint32_t i = 0; i < ITEMS; i++) {
        uint64_t stored = keys[i] - info.capacity;
        CHECK(stored < STORED && !memcmp(back + i * STEP, steps + stored * STEP, STEP), "%u", i);
    }
    free(keys);
    free(back);
    world_close(world);
}

int main(void) {
    situation_blob(0);
    situation_blob(5);
    check_group("1 a long blob");
    situation_batch(0);
    situation_batch(5);
    check_group("2 a long batch");
    return check_done("test_client_long");
}
