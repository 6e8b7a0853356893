/* A client that moves, to another port or another host, goes on, or is told why it cannot.
 * Situations read "Given ... Expect ...".
 */
#include "client_world.h"
#include "server/server_state.h"

enum { SHARE = 1, FAR = 100, PINGS_MAX = 60 };

static struct rp_table_config tables[2];
static struct rp_server_config config;

static void move_to(struct world *world, uint8_t host) {
    memset(world->ports[1].base.address.bytes, host, 4);
}

static int ping(struct world *world, uint64_t timeout_ms) {
    return world_wait(world, rp_client_ping(world->client, world_later(world, timeout_ms)));
}

/* 1. Given a client that moves to a host whose share another one has. Expect its calls to end with
 *    that reason, without a storm of repeats; and it to go on once there is room, or back where it
 *    was, where a later silence is a plain one. */
static void situation_full_host(int goes_back) {
    struct world *world = world_open(&config, 1);
    struct rp_peer other = {.size = 4, .bytes = {FAR, 1, 1, 1}};
    uint8_t home = world->ports[1].base.address.bytes[0];
    world_connect(world);
    uint32_t held = rp_session_open(world->server, &other, FAR, 512 | 64ull << 32 | 1ull << 48);
    CHECK(held != RP_NOBODY && ping(world, 1000) == 0);
    move_to(world, FAR);
    uint64_t sent = world->ports[1].sent;
    CHECK(ping(world, 2000) == -RP_ADDRESS_FULL, "it is not told");
    CHECK(world->ports[1].sent - sent < PINGS_MAX, "%" PRIu64, world->ports[1].sent - sent);
    if (goes_back) {
        move_to(world, home);
    } else {
        rp_session_close(world->server, held);
    }
    CHECK(ping(world, 2000) == 0);
    world->lose = 1000;
    CHECK(ping(world, 500) == -RP_TIMEOUT);
    CHECK(rp_client_counters(world->client)[RP_COUNT_reconnects] == 0);
    world_close(world);
    check_group(goes_back ? "1 a host without room, and home again" : "1 a host without room");
}

/* 2. Given a client whose session is gone, at a host whose share others have. Expect it to ask for
 *    a place now and then, and its calls to say what it lacks. */
static void situation_no_place(void) {
    struct world *world = world_open(&config, 2);
    struct rp_peer other = {.size = 4, .bytes = {FAR, 1, 1, 1}};
    move_to(world, FAR);
    world_connect(world);
    rp_session_close(world->server,
                     (uint32_t)(rp_client_session(world->client) % RP_SESSIONS_MAX));
    CHECK(rp_session_open(world->server, &other, FAR, 512 | 64ull << 32 | 1ull << 48) != RP_NOBODY);
    uint64_t sent = world->ports[1].sent;
    CHECK(ping(world, 5000) == -RP_ADDRESS_FULL);
    CHECK(world->ports[1].sent - sent < PINGS_MAX, "%" PRIu64, world->ports[1].sent - sent);
    world_close(world);
    check_group("2 a session anew asks now and then, and says what it lacks");
}

/* 3. Given a client that is sent on to another port again and again in its life. Expect no end of
 *    that: only moves without an answer in between are counted. */
static void situation_moves(void) {
    struct world *world = world_open(&config, 3);
    world->queues = 7;
    world->names_port = 1;
    world_connect(world);
    for (uint32_t i = 0; i < 140; i++) {
        move_to(world, 3);
        CHECK(ping(world, 5000) == 0, "move %u", i);
    }
    CHECK(rp_client_counters(world->client)[RP_COUNT_rebinds] >= 140);
    world_close(world);
    check_group("3 moves with answers in between are no end");
}

int main(void) {
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    config = script_config(tables);
    config.sessions_per_address = SHARE;
    situation_full_host(0);
    situation_full_host(1);
    situation_no_place();
    situation_moves();
    return check_done("test_client_moved");
}
