/* A session is opened by who proved its address, once; is moved and ended only by who saw its
 * datagrams; and keeps to what was agreed when it was opened. */
#include "client_world.h"

static struct rp_table_config tables[2];
static struct rp_server_config config;

static void fresh(struct script *script, uint32_t sessions_per_address) {
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    config = script_config(tables);
    config.sessions_per_address = sessions_per_address;
    script_open(script, &config);
}

/* 1. Given a session that agreed on mtu 512. Expect a datagram of more refused before anything of
 *     it is applied, though it fits the server's mtu: a PUSH of runs whose answer would not fit. */
static void situation_mtu(void) {
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
                                 uint16_t *status) {
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
static void situation_versions(void) {
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
static void situation_open_again(void) {
    struct script script;
    fresh(&script, 0);
    struct script_client client = script_client(1), other = script_client(2);
    struct script_answer answer = script_hello(&script, &client);
    uint64_t cookie = SCRIPT_READ(answer, struct rp_cookie).cookie;
    CHECK_STATUS(answer = script_say_open(&script, &client, cookie), RP_OK);
    CHECK(SCRIPT_READ(answer, struct rp_opened).features == RP_FEATURES_SPOKEN);
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

static uint64_t open_once(struct script *script, struct script_client *client) {
    struct script_answer answer = script_hello(script, client);
    uint64_t cookie = SCRIPT_READ(answer, struct rp_cookie).cookie;
    CHECK_STATUS(answer = script_say_open(script, client, cookie), RP_OK);
    client->connection = SCRIPT_READ(answer, struct rp_opened).session;
    return cookie;
}

static void expect_late_copy_refused(struct script *script, const struct script_client *client,
                                     uint64_t cookie) {
    struct script_client late = *client;
    uint32_t sessions = rp_server_sessions(script->server);
    late.connection = 0;
    CHECK_STATUS(script_say_open(script, &late, cookie), RP_BAD_COOKIE);
    CHECK(rp_server_sessions(script->server) == sessions);
}

/* 3b. The same, when the session has moved to another address meanwhile; when that one was closed;
 *     and when the place of a closed one was taken by another session. */
static void situation_open_elsewhere(void) {
    struct script script;
    fresh(&script, 0);
    struct script_client client = script_client(1), moved, other = script_client(2);
    uint64_t cookie = open_once(&script, &client);
    moved = client;
    memset(moved.peer.bytes, 9, 4);
    struct script_answer answer = script_ask(&script, &moved, RP_OP_PING, 0, 1, NULL, 0);
    CHECK_STATUS(answer, RP_ADDRESS_CHANGED);
    struct rp_echo echo = {SCRIPT_READ(answer, struct rp_address_changed).cookie};
    CHECK_STATUS(script_ask(&script, &moved, RP_OP_ECHO, 0, 2, &echo, sizeof echo), RP_OK);
    expect_late_copy_refused(&script, &client, cookie);
    CHECK_STATUS(script_ask(&script, &moved, RP_OP_CLOSE, 0, 3, NULL, 0), RP_OK);
    expect_late_copy_refused(&script, &client, cookie);
    for (int i = 0; i < 4; i++) { /* every place has another session */
        other.nonce++;
        open_once(&script, &other);
        expect_late_copy_refused(&script, &client, cookie);
    }
    script_close(&script);
    check_group("3b also where its session moved, or its place was taken");
}

/* 3c. Given more openings than a period of cookies remembers. Expect cookies to end sooner, and no
 *     nonce to open a second session: not the first one, nor the last of the period, nor one that
 *     was told its cookie before the period ended. */
static void situation_many_openings(void) {
    struct script script;
    fresh(&script, 0);
    struct script_client first = script_client(1), last = first, slow = script_client(3);
    uint64_t early = SCRIPT_READ(script_hello(&script, &slow), struct rp_cookie).cookie;
    uint64_t cookie = open_once(&script, &first), newest = 0;
    CHECK_STATUS(script_ask(&script, &first, RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
    for (uint32_t i = 1; i < 2 * RP_COOKIE_NONCES_MIN; i++) {
        last.nonce = 1000 + i;
        last.packet = 0;
        newest = open_once(&script, &last);
        CHECK_STATUS(script_ask(&script, &last, RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
        expect_late_copy_refused(&script, &last, newest);
        if (i == RP_COOKIE_NONCES_MIN) { /* the next period: both are good and remembered */
            expect_late_copy_refused(&script, &first, cookie);
            CHECK_STATUS(script_say_open(&script, &slow, early), RP_OK);
        }
        if (i % 64 == 0) {
            expect_late_copy_refused(&script, &first, cookie);
        }
    }
    last.nonce = 9999; /* a cookie of two periods ago opens nothing, though no time has passed */
    expect_late_copy_refused(&script, &first, cookie);
    early = SCRIPT_READ(script_hello(&script, &last), struct rp_cookie).cookie;
    CHECK_STATUS(script_say_open(&script, &last, early), RP_OK);
    script_close(&script);
    check_group("3c nor after any number of other openings");
}

/* 3d. Given every place taken, and newcomers. Expect that they are the reason for one look at who
 *     is silent, until the first of those who were heard last can have been so for too long. */
static void situation_full(void) {
    struct script script;
    fresh(&script, 0);
    struct script_client one = script_client(1), late = script_client(2);
    uint64_t idle_ms = config.idle_ms;
    for (int i = 0; i < 4; i++) {
        one.nonce++;
        open_once(&script, &one);
        script_later(&script, 10);
    }
    uint64_t cookie = SCRIPT_READ(script_hello(&script, &late), struct rp_cookie).cookie;
    CHECK_STATUS(script_say_open(&script, &late, cookie), RP_NO_SESSION_FREE);
    uint64_t heard_ns = script.server->lines[2].heard_ns;
    script.server->lines[2].heard_ns = 0; /* whoever looks, ends it */
    script.server->now_ns = script.now_ns;
    for (int i = 0; i < 50; i++) {
        CHECK_STATUS(script_say_open(&script, &late, cookie), RP_NO_SESSION_FREE);
    }
    script.server->lines[2].heard_ns = heard_ns;
    script.server->tick_ns = UINT64_MAX; /* nor does time's own work end any */
    script_later(&script, idle_ms - 41);
    CHECK_STATUS(script_say_open(&script, &late, cookie), RP_NO_SESSION_FREE);
    script_later(&script, 2);
    CHECK_STATUS(script_say_open(&script, &late, cookie), RP_OK);
    CHECK(script_counter(&script, RP_COUNT_sessions_expired) == 1);
    script_close(&script);
    check_group("3d a crowd of newcomers costs no look at all sessions each");
}

/* 4. Given somebody who knows a session's number but not its cookie, and says ECHO with the largest
 *    packet number there is. Expect BAD_COOKIE, nothing of the session moved, none of its credit
 *    granted: it is heard. */
static void situation_echo(void) {
    struct script script;
    fresh(&script, 0);
    struct script_client client = script_client(1);
    script_connect(&script, &client);
    uint16_t granted = script_ask(&script, &client, RP_OP_PING, 0, 1, NULL, 0).head.credit;
    CHECK(granted == 4);
    struct script_client liar = client;
    struct rp_echo echo = {.cookie = 1};
    for (int near = 0; near < 2; near++) {
        liar.packet = ~0ull - 1;
        memset(liar.peer.bytes, near ? client.peer.bytes[0] : 9, 4);
        struct script_answer answer =
            script_ask(&script, &liar, RP_OP_ECHO, 0, 1, &echo, sizeof echo);
        CHECK_STATUS(answer, RP_BAD_COOKIE);
        CHECK(answer.head.credit == 1, "he was granted %u datagrams", answer.head.credit);
        CHECK(script.server->lines[client.connection % RP_SESSIONS_MAX].credit + 1 == granted);
        CHECK_STATUS(script_ask(&script, &client, RP_OP_PING, 0, 2, NULL, 0), RP_OK);
    }
    CHECK(script_counter(&script, RP_COUNT_drop_replayed) == 0);
    script_close(&script);
    check_group("4 nothing moves before it is proved");
}

/* 5. Given a share of two, of four sessions. Expect another host's third OPEN refused, whatever
 *    its port, until it closes one; a repeated OPEN to find its session; a second host and this
 *    machine's own clients not to be bound by it. */
static void situation_share(void) {
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
    far[1].peer.bytes[1] = 77; /* a session of this host may move within it */
    answer = script_ask(&script, &far[1], RP_OP_PING, 0, 1, NULL, 0);
    CHECK_STATUS(answer, RP_ADDRESS_CHANGED);
    struct rp_echo echo = {SCRIPT_READ(answer, struct rp_address_changed).cookie};
    CHECK_STATUS(script_ask(&script, &far[1], RP_OP_ECHO, 0, 2, &echo, sizeof echo), RP_OK);
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
    fresh(&script, 1);
    script_connect(&script, &far[0]);
    answer = script_hello(&script, &far[2]);
    cookie = SCRIPT_READ(answer, struct rp_cookie).cookie;
    CHECK_STATUS(script_say_open(&script, &far[2], cookie), RP_ADDRESS_FULL);
    script.server->tick_ns = UINT64_MAX; /* no time's own work: the newcomer is the reason */
    script_later(&script, config.idle_ms + 1);
    CHECK_STATUS(script_say_open(&script, &far[2], cookie), RP_OK);
    CHECK(script_counter(&script, RP_COUNT_sessions_expired) == 1, "who is silent goes first");
    script_close(&script);
    check_group("5 no other host takes every session");
}

/* A model of the sessions: which host each client is on, 0: it has none. */
enum { CROWD = 60, HOSTS = 30, SHARE = 3 };
struct crowd {
    struct script script;
    struct script_client client[CROWD];
    uint8_t host[CROWD];
    uint32_t refused, kept; /* no session, or no move to another host: its share is taken */
};

static uint32_t crowd_count(const struct crowd *crowd, uint8_t host) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < CROWD; i++) {
        count += host != 0 && crowd->host[i] == host;
    }
    return count;
}

static void crowd_open(struct crowd *crowd, uint32_t i, uint8_t host) {
    struct script_client *client = &crowd->client[i];
    int full = crowd_count(crowd, host) >= SHARE;
    crowd->refused += (uint32_t)full;
    memset(client->peer.bytes, host, 1);
    client->nonce += 1000;
    client->connection = client->packet = 0;
    struct script_answer answer = script_hello(&crowd->script, client);
    uint64_t cookie = SCRIPT_READ(answer, struct rp_cookie).cookie;
    answer = script_say_open(&crowd->script, client, cookie);
    CHECK_STATUS(answer, full ? RP_ADDRESS_FULL : RP_OK);
    if (!full) {
        client->connection = SCRIPT_READ(answer, struct rp_opened).session;
        crowd->host[i] = host;
    }
}

/* To a host that has its share already it does not move: it is still where it was, and what is said
 * to that host is a stranger's. */
static void crowd_move(struct crowd *crowd, uint32_t i, uint8_t host) {
    struct script_client *client = &crowd->client[i];
    uint8_t before = crowd->host[i];
    int full = host != before && crowd_count(crowd, host) >= SHARE;
    uint32_t at = client->connection % RP_SESSIONS_MAX;
    const struct rp_line *line = &crowd->script.server->lines[at];
    crowd->kept += (uint32_t)full;
    memset(client->peer.bytes, host, 1);
    struct script_answer answer = script_ask(&crowd->script, client, RP_OP_PING, 0, 1, NULL, 0);
    CHECK_STATUS(answer, host == before ? RP_OK : RP_ADDRESS_CHANGED);
    if (host != before) {
        struct rp_echo echo = {SCRIPT_READ(answer, struct rp_address_changed).cookie};
        uint32_t had = line->credit;
        answer = script_ask(&crowd->script, client, RP_OP_ECHO, 0, 2, &echo, sizeof echo);
        CHECK_STATUS(answer, full ? RP_ADDRESS_FULL : RP_OK);
        CHECK(!full || (answer.head.credit == 1 && line->credit == had), "a stranger has credit");
        CHECK(crowd->script.port.out[0].session == (full ? 0 : at + 1), "whose connection it is");
    }
    crowd->host[i] = full ? before : host;
    memset(client->peer.bytes, crowd->host[i], 1);
    CHECK_STATUS(script_ask(&crowd->script, client, RP_OP_PING, 0, 3, NULL, 0), RP_OK);
}

/* 5b. Given a crowd of many hosts that open, move and close at random, and a server that is killed
 *     and taken over meanwhile. Expect each host refused exactly where it has its share, by OPEN
 *     and by ECHO. */
static void situation_crowd(uint64_t seed) {
    static struct crowd crowd;
    struct rp_random random;
    rp_random_seed(&random, seed);
    crowd = (struct crowd){0};
    fresh(&crowd.script, SHARE);
    script_close(&crowd.script);
    config.sessions_max = CROWD;
    script_open(&crowd.script, &config);
    for (uint8_t i = 0; i < CROWD; i++) {
        crowd.client[i] = script_client(100);
        crowd.client[i].peer.bytes[1] = i; /* its port */
        crowd.client[i].nonce = i;
    }
    for (int step = 0; step < 4000; step++) {
        uint32_t i = (uint32_t)rp_random_below(&random, CROWD);
        uint8_t host = (uint8_t)(100 + rp_random_below(&random, HOSTS));
        if (crowd.host[i] == 0) {
            crowd_open(&crowd, i, host);
        } else if (rp_random_below(&random, 3) == 0) {
            crowd_move(&crowd, i, host);
        } else if (rp_random_below(&random, 3) > 0) {
            script_ask(&crowd.script, &crowd.client[i], RP_OP_CLOSE, 0, 3, NULL, 0);
            crowd.host[i] = 0;
        }
        if (rp_random_below(&random, 100) == 0) {
            script_kill(&crowd.script);
        }
        rp_server_check(crowd.script.server);
    }
    CHECK(crowd.refused > 0 && crowd.kept > 0);
    script_close(&crowd.script);
}

/* ---- the client ---- */

/* The first datagram on its way to the client that has this status, copied; 0: there is none. */
static uint32_t find_answer(struct world *world, uint16_t status, uint8_t *copy) {
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

static void deliver(struct world *world, const uint8_t *data, uint32_t size) {
    static uint8_t bytes[RP_MTU_DEFAULT] __attribute__((aligned(8)));
    struct rp_packet packet = {.data = bytes, .size = size};
    memcpy(bytes, data, size);
    world_put(&world->ports[0], &packet);
}

/* 6. Given a server that starts empty again, and its refusal of the old session repeated all the
 *    while the new one asks: the same operation, under the same id. Expect one reopening. */
static void situation_refused_again(void) {
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

/* Given an OPEN with features that no server speaks. Expect those that both speak. */
static void situation_features(void) {
    struct script script;
    fresh(&script, 0);
    struct script_client client = script_client(1);
    struct script_answer answer = script_hello(&script, &client);
    struct rp_open open = {.cookie = SCRIPT_READ(answer, struct rp_cookie).cookie, .mtu = 1400,
                           .features = RP_FEATURES_SPOKEN | 1u << 30, .version = RP_VERSION_MAX,
                           .receive_budget = 64};
    answer = script_ask(&script, &client, RP_OP_OPEN, 0, client.nonce, &open, sizeof open);
    CHECK_STATUS(answer, RP_OK);
    CHECK(SCRIPT_READ(answer, struct rp_opened).features == RP_FEATURES_SPOKEN);
    script_close(&script);
    check_group("features: those that both speak");
}

/* 7. Given more who are silent than one look ends, and as many newcomers, with no other work of
 *    time's. Expect a place for each of them: a look that stopped is no reason to look no more. */
static void situation_many_silent(void) {
    enum { MANY = 2 * RP_EXPIRED_MAX + 3 };
    struct script script;
    struct script_client one = script_client(1);
    script_tables(tables);
    config = script_config(tables);
    config.sessions_max = MANY;
    script_open(&script, &config);
    for (int i = 0; i < MANY; i++) {
        one.nonce++;
        open_once(&script, &one);
    }
    script.server->tick_ns = UINT64_MAX;
    script_later(&script, config.idle_ms + 1);
    for (int i = 0; i < MANY; i++) {
        one.nonce++;
        open_once(&script, &one);
    }
    CHECK(script_counter(&script, RP_COUNT_sessions_expired) == MANY);
    script_close(&script);
    check_group("7 a crowd that is silent makes room for a crowd");
}

/* 8. Given servers that take a region over, each with another idle_ms. Expect who was silent given
 *    up behind what it was told, or behind what the server says where that is longer. */
static void situation_idle_told(void) {
    struct script script;
    struct script_client old = script_client(1), young = script_client(2);
    script_tables(tables);
    config = script_config(tables);
    script_open(&script, &config);
    open_once(&script, &old);
    script.config.idle_ms = 3000;
    script_kill(&script);
    open_once(&script, &young);
    script_later(&script, 3001);
    script_turn(&script);
    CHECK(script_counter(&script, RP_COUNT_sessions_expired) == 1 && script.server->open == 1);
    script.config.idle_ms = 5000;
    script_kill(&script);
    for (uint32_t i = 0; i < 2; i++) {
        open_once(&script, (young.nonce++, &young));
        script_later(&script, i == 0 ? 29900 : 101);
        script_turn(&script);
        CHECK(rp_session_find(script.server, old.connection) == (i == 0 ? 0 : RP_NOBODY));
    }
    script.config.idle_ms = 60000;
    script_kill(&script);
    CHECK(script.server->open == 1);
    script_later(&script, 60000);
    script_turn(&script);
    CHECK(script.server->open == 1);
    script_later(&script, 101);
    script_turn(&script);
    CHECK(script.server->open == 0);
    script_close(&script);
    check_group("8 what a session was told of silence holds");
}

/* 9. Given no place free, sessions that were told of longer silence than the server now says, and
 *    newcomers. Expect one look at all of them for the crowd, and the places free in time. */
static void situation_crowd_after_takeover(void) {
    struct script script;
    struct script_client clients[4], late = script_client(9);
    script_tables(tables);
    config = script_config(tables);
    script_open(&script, &config);
    for (uint8_t i = 0; i < 4; i++) {
        clients[i] = script_client((uint8_t)(i + 1));
        open_once(&script, &clients[i]);
    }
    script.config.idle_ms = 1000;
    script_kill(&script);
    uint64_t begun_ns = script.now_ns;
    script.server->tick_ns = UINT64_MAX;
    script_later(&script, 1500);
    struct rp_open open = {.features = RP_FEATURES_SPOKEN, .mtu = 1400,
                           .version = RP_VERSION_MAX, .receive_budget = 64};
    for (uint32_t i = 0; i < 3; i++) {
        late.nonce++;
        open.cookie = SCRIPT_READ(script_hello(&script, &late), struct rp_cookie).cookie;
        CHECK_STATUS(script_ask(&script, &late, RP_OP_OPEN, 0, late.nonce, &open, sizeof open),
                     RP_NO_SESSION_FREE);
        CHECK(script.server->silent_ns == begun_ns + 2500 * 1000000ull + 1, "one who opens now");
    }
    script_later(&script, config.idle_ms);
    late.nonce++;
    open_once(&script, &late);
    script_close(&script);
    check_group("9 a crowd of newcomers costs one look, also after a takeover");
}

int main(void) {
    situation_many_silent();
    situation_idle_told();
    situation_crowd_after_takeover();
    situation_features();
    situation_mtu();
    situation_versions();
    situation_open_again();
    situation_open_elsewhere();
    situation_many_openings();
    situation_full();
    situation_echo();
    situation_share();
    for (uint64_t seed = 1; seed <= 5; seed++) {
        situation_crowd(seed);
    }
    check_group("5b each host has its share, whoever comes and goes");
    situation_refused_again();
    return check_done("test_session");
}
