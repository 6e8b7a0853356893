/* Goal: a session is opened by who proved its address, once; is moved and ended only by who saw its
 * datagrams; and keeps to what was agreed when it was opened. */
#include "client_world.h"

static struct rp_table_config tables[2];
static struct rp_server_config config;

static void fresh(struct script *script, uint32_t sessions_per_address)
{
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    config = script_config(tables);
    config.sessions_per_address = sessions_per_address;
    script_open(script, &config);
}

/* 1. Given a session that agreed on mtu 512. Expect a datagram of more refused before anything of
 *     it is applied, though it fits the server's mtu: a PUSH of runs whose answer would not fit. */
static void situation_mtu(void)
{
    static struct script_push push;
    struct script script;
    fresh(&script, 0);
    struct script_client client = script_client(1);
    client.mtu = 512;
    script_connect(&script, &client);
    uint64_t epoch = script_writer(&script, &client, 0, 1).epoch;
    script_push_begin(&push, epoch);
    for (uint64_t i = 0; i < 26; i++) {
        script_push_run(&push, 0, i % 4, i % 4, 1, 0);
    }
    CHECK(push.size > 512 && RP_HEADER_BYTES + push.size <= 1400);
    CHECK_STATUS(script_push(&script, &client, 0, 1, &push), RP_BAD_SIZE);
    CHECK(script_counter(&script, RP_COUNT_drop_size) == 1);
    CHECK(script_counter(&script, RP_COUNT_steps_committed) == 0);
    CHECK_STATUS(script_ask(&script, &client, RP_OP_PING, 0, 1, NULL, 0), RP_OK);
    script_close(&script);
    check_group("1 no more than the session's mtu");
}

/* A HELLO as a client of another version sends it; the answer as that client reads it. */
static struct rp_cookie hello_of(struct script *script, uint8_t outer, uint16_t min, uint16_t max,
                                 uint16_t *status)
{
    _Alignas(8) uint8_t data[RP_HEADER_BYTES + RP_HELLO_BYTES] = {0};
    struct rp_hello hello = {.version_min = min, .version_max = max, .mtu = 1400,
                             .features = RP_FEATURES_SPOKEN};
    struct rp_message message = {.op = RP_OP_HELLO, .id = 7};
    struct rp_peer peer = script_client(9).peer;
    hello.reserved[39] = outer != RP_VERSION_MAX; /* what another version may say there */
    memcpy(rp_packet_body(data), &hello, sizeof hello);
    uint32_t size = rp_packet_seal_as(outer, data, &message, sizeof hello, 0, 1);
    script_put_raw(script, &peer, data, size);
    CHECK(script_turn(script) == 1, "version %u is not answered", outer);
    const struct script_datagram *out = &script->port.out[0];
    const struct rp_outer *head = (const void *)out->data;
    CHECK(head->version == outer && out->size <= size);
    struct rp_answer answer;
    struct rp_cookie cookie;
    CHECK(out->size == RP_ANSWER_BYTES + sizeof cookie);
    memcpy(&answer, out->data + RP_HEADER_BYTES, sizeof answer);
    *status = answer.status;
    memcpy(&cookie, out->data + RP_ANSWER_BYTES, sizeof cookie);
    CHECK(cookie.version_min == RP_VERSION_MIN && cookie.version_max == RP_VERSION_MAX);
    CHECK(cookie.features == RP_FEATURES_SPOKEN && cookie.required == RP_FEATURES_REQUIRED);
    return cookie;
}

/* 2. Given HELLOs of other versions. Expect each answered in its own version, in the one layout:
 *     with a cookie where a version is spoken by both, else with the versions that are spoken. */
static void situation_versions(void)
{
    struct script script;
    uint16_t status;
    fresh(&script, 0);
    for (uint32_t outer = 0; outer < 256; outer++) {
        struct rp_cookie cookie = hello_of(&script, (uint8_t)outer, 3, 9, &status);
        CHECK(status == RP_BAD_VERSION && cookie.cookie == 0 && cookie.version == 0);
        cookie = hello_of(&script, (uint8_t)outer, 1, 3, &status);
        CHECK(status == RP_OK && cookie.cookie != 0 && cookie.version == 2 && cookie.mtu == 1400);
    }
    CHECK(script_counter(&script, RP_COUNT_drop_version) == 256);
    CHECK(script_counter(&script, RP_COUNT_hellos) == 256);
    script_close(&script);
    check_group("2 HELLO of every version is answered");
}

/* 3. Given an OPEN that was delayed on its way, and comes again when its session has been closed.
 *    Expect no new session; with the cookie's end in sight too, and after other sessions came. */
static void situation_open_again(void)
{
    struct script script;
    fresh(&script, 0);
    struct script_client client = script_client(1), other = script_client(2);
    struct script_answer answer = script_hello(&script, &client);
    uint64_t cookie = SCRIPT_READ(answer, struct rp_cookie).cookie;
    CHECK_STATUS(answer = script_say_open(&script, &client, cookie), RP_OK);
    client.connection = SCRIPT_READ(answer, struct rp_opened).session;
    CHECK_STATUS(script_ask(&script, &client, RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
    CHECK_STATUS(script_say_open(&script, &client, cookie), RP_BAD_COOKIE);
    script_connect(&script, &other);
    script_later(&script, 20000);
    CHECK_STATUS(script_say_open(&script, &client, cookie), RP_BAD_COOKIE);
    CHECK(rp_server_sessions(script.server) == 1);
    CHECK(script_counter(&script, RP_COUNT_cookie_refused) == 2);
    client.nonce++; /* who means it says HELLO again, under another nonce */
    script_connect(&script, &client);
    CHECK(rp_server_sessions(script.server) == 2);
    script_close(&script);
    check_group("3 an OPEN opens one session, ever");
}

/* 4. Given somebody who knows a session's number but not its cookie, and says ECHO with the largest
 *    packet number there is. Expect BAD_COOKIE, and nothing of the session moved: it is heard. */
static void situation_echo(void)
{
    struct script script;
    fresh(&script, 0);
    struct script_client client = script_client(1);
    script_connect(&script, &client);
    struct script_client liar = client;
    struct rp_echo echo = {.cookie = 1};
    for (int near = 0; near < 2; near++) {
        liar.packet = ~0ull - 1;
        memset(liar.peer.bytes, near ? client.peer.bytes[0] : 9, 4);
        struct script_answer answer =
            script_ask(&script, &liar, RP_OP_ECHO, 0, 1, &echo, sizeof echo);
        CHECK_STATUS(answer, RP_BAD_COOKIE);
        CHECK_STATUS(script_ask(&script, &client, RP_OP_PING, 0, 2, NULL, 0), RP_OK);
    }
    CHECK(script_counter(&script, RP_COUNT_drop_replayed) == 0);
    script_close(&script);
    check_group("4 nothing moves before it is proved");
}

/* 5. Given a share of two, of four sessions. Expect another host's third OPEN refused, whatever
 *    its port, until it closes one; a repeated OPEN to find its session; a second host and this
 *    machine's own clients not to be bound by it. */
static void situation_share(void)
{
    struct script script;
    fresh(&script, 2);
    struct script_client far[3], near = script_client(1), second = script_client(101);
    for (uint8_t i = 0; i < 3; i++) {
        far[i] = script_client(100);
        far[i].nonce += i;
        far[i].peer.bytes[1] = i; /* its port */
    }
    script_connect(&script, &far[0]);
    script_connect(&script, &far[1]);
    uint64_t before = far[1].connection;
    script_connect(&script, &far[1]);
    CHECK(far[1].connection == before && rp_server_sessions(script.server) == 2);
    struct script_answer answer = script_hello(&script, &far[2]);
    uint64_t cookie = SCRIPT_READ(answer, struct rp_cookie).cookie;
    CHECK_STATUS(script_say_open(&script, &far[2], cookie), RP_ADDRESS_FULL);
    CHECK(script_counter(&script, RP_COUNT_refused_address) == 1);
    CHECK(script_counter(&script, RP_COUNT_sessions_refused) == 0);
    script_connect(&script, &second);
    CHECK_STATUS(script_ask(&script, &far[0], RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
    script_connect(&script, &far[2]);
    CHECK_STATUS(script_ask(&script, &far[1], RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
    CHECK_STATUS(script_ask(&script, &second, RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
    for (uint8_t i = 0; i < 3; i++) {
        near.nonce++;
        script_connect(&script, &near);
    }
    CHECK(rp_server_sessions(script.server) == 4);
    script_close(&script);
    check_group("5 no other host takes every session");
}

/* ---- the client ---- */

/* The first datagram on its way to the client that has this status, copied; 0: there is none. */
static uint32_t find_answer(struct world *world, uint16_t status, uint8_t *copy)
{
    struct world_port *port = &world->ports[1];
    for (uint32_t i = 0; i < port->count; i++) {
        struct rp_answer answer;
        memcpy(&answer, port->queue[i].data + RP_HEADER_BYTES, sizeof answer);
        if (answer.status == status) {
            memcpy(copy, port->queue[i].data, port->queue[i].size);
            return port->queue[i].size;
        }
    }
    return 0;
}

static void deliver(struct world *world, const uint8_t *data, uint32_t size)
{
    static uint8_t bytes[RP_MTU_DEFAULT] __attribute__((aligned(8)));
    struct rp_packet packet = {.data = bytes, .size = size};
    memcpy(bytes, data, size);
    world_put(&world->ports[0], &packet);
}

/* 6. Given a server that starts empty again, and its refusal of the old session repeated all the
 *    while the new one asks: the same operation, under the same id. Expect one reopening. */
static void situation_refused_again(void)
{
    static uint8_t copy[RP_MTU_DEFAULT] __attribute__((aligned(8)));
    static uint64_t values[8];
    struct rp_landing_column column = {(uint8_t *)values, 8, 0, 8};
    struct rp_landing landing = {.columns = &column, .column_count = 1, .item_bytes = 16};
    struct rp_sample request = {.count = 2};
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    config = script_config(tables);
    struct world *world = world_open(&config, 6);
    const uint64_t *counters = rp_client_counters(world->client);
    world_connect(world);
    world_server(world, &config, 78);
    uint32_t size = 0;
    int ticket = rp_client_sample(world->client, 1, &request, NULL, &landing,
                                  world_later(world, 2000));
    while (size == 0) {
        world_step(world, WORLD_MS);
        size = find_answer(world, RP_UNKNOWN_SESSION, copy);
    }
    while (counters[RP_COUNT_reconnects] == 0 || rp_client_state(world->client) != 1) {
        world_step(world, WORLD_MS);
    }
    uint64_t session = rp_client_session(world->client);
    for (int i = 0; i < 200; i++) {
        deliver(world, copy, size);
        world_run(world, WORLD_MS);
    }
    CHECK(rp_client_poll(world->client, ticket) == RP_PENDING, "there is nothing to draw");
    CHECK(counters[RP_COUNT_reconnects] == 1 && rp_client_session(world->client) == session,
          "%" PRIu64 " reopenings", counters[RP_COUNT_reconnects]);
    CHECK(counters[RP_COUNT_drop_unsolicited] == 200);
    CHECK(rp_server_sessions(world->server) == 1);
    world_close(world);
    check_group("6 a late refusal ends nothing");
}

int main(void)
{
    situation_mtu();
    situation_versions();
    situation_open_again();
    situation_echo();
    situation_share();
    situation_refused_again();
    return check_done("test_session");
}
