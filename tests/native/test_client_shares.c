/* Writers that share a client's messages: one that its limiter holds back never stops another.
 * Situations read "Given ... Expect ...". */
#include "client/client_parts.h"
#include "client_world.h"

enum { MAIN = 0, ROWS = 1, MESSAGES = 12, LARGE = 5000, MANY = 40 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static uint8_t step[LARGE];

/* The limiter of "rows" admits a few items; "main" has none. */
static struct world *fresh(uint32_t rows_bytes, uint32_t main_bytes) {
    struct rp_client_options options = world_options();
    options.messages_max = MESSAGES;
    options.unacknowledged_max = 10000;
    script_tables(tables);
    tables[ROWS].step_bytes = rows_bytes;
    tables[MAIN].step_bytes = main_bytes;
    config = script_config(tables);
    struct world *world = world_open(&config, 1);
    world_client(world, &options);
    world_connect(world);
    return world;
}

static void writer(struct world *world, const char *table) {
    static struct rp_writer_granted granted;
    struct rp_table_info info;
    int ticket = rp_client_table(world->client, table, &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &info, 1, &granted, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
}

static struct rp_push_state state_of(const struct world *world, uint16_t table) {
    struct rp_push_state state;
    rp_client_push_state(world->client, table, &state);
    return state;
}

/* Items of "rows", one a message, until none is taken any more. */
static void block(struct world *world) {
    uint64_t end = world_later(world, 1000);
    while (world->now_ns < end) {
        int taken = rp_client_push(world->client, ROWS, 0, step, 1, RP_RUN_ITEM, NULL);
        CHECK(taken == 0 || taken == 1, "push: %d", taken);
        rp_client_flush(world->client, ROWS);
        world_step(world, WORLD_MS);
    }
    CHECK(state_of(world, ROWS).need > 0 && state_of(world, ROWS).messages_open >= MESSAGES - 4);
    CHECK(rp_client_push(world->client, ROWS, 0, step, 1, RP_RUN_ITEM, NULL) == 0);
}

/* Steps of "main", each with its item: all stored within the time. */
static void others_go_on(struct world *world, uint64_t before) {
    uint64_t end = world_later(world, 20000), posted = before;
    while (state_of(world, MAIN).steps_stored < before + MANY) {
        CHECK(world->now_ns < end, "%" PRIu64 " stored", state_of(world, MAIN).steps_stored);
        if (posted < before + MANY) {
            int taken = rp_client_push(world->client, MAIN, 0, step, 1, 0, NULL);
            CHECK(taken >= 0, "push: %d", taken);
            posted += (uint32_t)taken;
        }
        rp_client_flush(world->client, MAIN);
        world_step(world, WORLD_MS);
    }
    CHECK(state_of(world, ROWS).need > 0, "it is blocked all the time");
}

/* Draws items until the blocked writer's are all stored. */
static void draw_all(struct world *world, uint32_t item_bytes) {
    uint64_t end = world_later(world, 60000);
    struct rp_landing landing = {.item_bytes = item_bytes};
    struct rp_sample one = {.count = 1, .mode = RP_SAMPLE_STRATIFIED};
    while (state_of(world, ROWS).messages_open > 0) {
        CHECK(world->now_ns < end && state_of(world, ROWS).status == 0);
        int ticket = rp_client_sample(world->client, ROWS, &one, NULL, &landing,
                                      world_later(world, 100));
        (void)world_wait(world, ticket);
        rp_client_flush(world->client, ROWS);
    }
    CHECK(state_of(world, ROWS).steps_stored == state_of(world, ROWS).steps_posted);
    CHECK(state_of(world, ROWS).items_created == state_of(world, ROWS).items_posted);
}

/* 1. Given a writer that its limiter holds back, which has taken all the messages it can, and
 *    another table's writer, begun before or after. Expect the other's steps to be stored, and the
 *    first one's once their items are drawn. */
static void situation(uint32_t rows_bytes, uint32_t main_bytes, int later) {
    struct world *world = fresh(rows_bytes, main_bytes);
    writer(world, "rows");
    if (!later) {
        writer(world, "main");
    }
    block(world);
    if (later) {
        writer(world, "main");
    }
    others_go_on(world, 0);
    others_go_on(world, MANY);
    CHECK(world->client->message_places == 2 * MESSAGES + 1);
    draw_all(world, rows_bytes);
    world_close(world);
}

int main(void) {
    for (int later = 0; later < 2; later++) {
        situation(16, 16, later);
        situation(16, LARGE, later);
        situation(LARGE, LARGE, later);
        situation(LARGE, 1296, later);
    }
    check_group("1 a writer that is held back stops no other");
    return check_done("test_client_shares");
}
