/* Writers that are asked for again: while they go on, after a refusal, in a later session.
 * Situations read "Given ... Expect ...". */
#include "client/client_parts.h"
#include "client_world.h"

enum { MAIN = 0, STEP = SCRIPT_STEP };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static const uint8_t steps[4 * STEP];

static struct world *fresh(uint64_t seed) {
    script_tables(tables);
    config = script_config(tables);
    struct world *world = world_open(&config, seed);
    world_connect(world);
    return world;
}

/* How the request for a writer of the main table ends. */
static int ask(struct world *world, uint16_t streams, struct rp_writer_granted *granted) {
    struct rp_table_info info;
    int ticket = rp_client_table(world->client, "main", &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &info, streams, granted, world_later(world, 5000));
    return world_wait(world, ticket);
}

static int push(struct world *world, uint16_t stream, uint32_t count, uint32_t flags) {
    return rp_client_push(world->client, MAIN, stream, steps, count, flags, NULL);
}

static struct rp_push_state settle(struct world *world) {
    struct rp_push_state state;
    rp_client_flush(world->client, MAIN);
    world_run(world, 100 * WORLD_MS);
    rp_client_push_state(world->client, MAIN, &state);
    CHECK(state.messages_open == 0);
    return state;
}

/* 1. Given a writer that a refusal ended before anything of it was stored. Expect one that is asked
 *    for then to begin. Given steps stored before the refusal. Expect the next request refused, and
 *    a writer of a later session to begin. */
static void situation_refused(void) {
    struct rp_writer_granted granted;
    struct world *world = fresh(1);
    CHECK(ask(world, 1, &granted) == 0 && push(world, 0, 1, RP_RUN_ITEM) == 1);
    CHECK(settle(world).status == -RP_BAD_ARGUMENT, "items of several steps come by creates");
    CHECK(push(world, 0, 1, 0) == -RP_BAD_ARGUMENT);
    CHECK(ask(world, 1, &granted) == 0 && push(world, 0, 4, 0) == 4);
    CHECK(settle(world).steps_stored == 4);
    CHECK(push(world, 0, 1, RP_RUN_ITEM) == 1 && settle(world).status == -RP_BAD_ARGUMENT);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(ask(world, 1, &granted) == -RP_BAD_STEP && push(world, 0, 1, 0) == -RP_BAD_ARGUMENT);
    }
    world_server(world, &config, 2);
    CHECK(ask(world, 1, &granted) == 0 && push(world, 0, 4, 0) == 4);
    CHECK(settle(world).steps_stored == 4);
    world_close(world);
    check_group("1 a writer after one that was refused");
}

/* 2. Given a writer of one stream, asked for with more of them in its session. Expect it to keep
 *    its one stream, nothing of the link's room used up. Given a later session. Expect more. */
static void situation_wider(void) {
    struct rp_writer_granted granted;
    struct world *world = fresh(2);
    CHECK(ask(world, 1, &granted) == 0 && granted.streams == 1 && push(world, 0, 2, 0) == 2);
    for (uint16_t streams = 2; streams <= 4; streams++) {
        CHECK(ask(world, streams, &granted) == 0 && granted.streams == 1);
        CHECK(push(world, 1, 1, 0) == -RP_BAD_STREAM && world->client->streams_used == 1);
    }
    CHECK(push(world, 0, 2, 0) == 2 && settle(world).steps_stored == 4);
    world_server(world, &config, 2);
    int ticket = rp_client_ping(world->client, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0 && push(world, 0, 1, 0) == -RP_SERVER_RESTARTED);
    CHECK(ask(world, 3, &granted) == 0 && granted.streams == 3);
    CHECK(push(world, 2, 4, 0) == 4 && push(world, 0, 4, 0) == 4);
    CHECK(settle(world).steps_stored == 8);
    CHECK(world->client->streams_used == 4);
    world_close(world);
    check_group("2 a writer that is asked for with more streams");
}

/* 3. Given a writer of one stream, asked for with four as its session is lost. Expect it to begin
 *    in the new session with four; where the link has no room for so many, with its one. */
static void situation_meanwhile(uint16_t room) {
    struct rp_writer_granted granted;
    struct rp_table_info info;
    struct world *world = fresh(3);
    CHECK(ask(world, 1, &granted) == 0);
    int ticket = rp_client_table(world->client, "main", &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    CHECK(rp_client_writer_reserve(world->client, 1, (uint16_t)(RP_STREAMS_MAX - 1 - room)) == 0);
    world_server(world, &config, 2);
    ticket = rp_client_writer(world->client, &info, 4, &granted, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0 && granted.streams == (room ? 4 : 1));
    CHECK(push(world, granted.streams, 1, 0) == -RP_BAD_STREAM);
    CHECK(push(world, (uint16_t)(granted.streams - 1), 3, 0) == 3);
    CHECK(settle(world).steps_stored == 3);
    world_close(world);
}

int main(void) {
    situation_refused();
    situation_wider();
    situation_meanwhile(4);
    situation_meanwhile(0);
    check_group("3 a writer that is asked for as its session ends");
    return check_done("test_client_again");
}
