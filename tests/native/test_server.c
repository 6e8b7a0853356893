/* Sessions begin, repeat, move, are replaced and end as the protocol says, and the small
 * operations answer. Situations read "Given ... Expect ...". */
#include "base/random.h"
#include "script.h"
#include "table/store.h"

static struct rp_table_config tables[2];
static struct rp_server_config config;

static void fresh(struct script *script) {
    script_tables(tables);
    config = script_config(tables);
    script_open(script, &config);
}

/* 1. Given a new client. Expect HELLO gives a cookie, OPEN a session, both again the same. */
static void situation_handshake(void) {
    struct script script;
    fresh(&script);
    struct script_client client = script_client(1);
    client.mtu = 1003;
    struct script_answer answer = script_hello(&script, &client);
    struct rp_cookie cookie = SCRIPT_READ(answer, struct rp_cookie);
    CHECK(answer.view.outer->connection == 0);
    CHECK(cookie.version == RP_VERSION_MAX && cookie.mtu == 1000, "mtu %u", cookie.mtu);
    CHECK(answer.head.incarnation == rp_server_incarnation(script.server));
    CHECK(answer.head.incarnation != 0 && rp_server_sessions(script.server) == 0);
    answer = script_hello(&script, &client);
    CHECK(SCRIPT_READ(answer, struct rp_cookie).cookie == cookie.cookie);

    struct script_answer opened = script_say_open(&script, &client, cookie.cookie);
    CHECK_STATUS(opened, RP_OK);
    struct rp_opened first = SCRIPT_READ(opened, struct rp_opened);
    CHECK(first.mtu == 1000 && first.idle_ms == 30000 && first.batch_max == 64);
    CHECK(first.records == 4 && first.update_records == 64 && first.table_count == 2);
    CHECK(first.train_max >= 1 && first.weights_max == 20000);
    CHECK(first.session >> 12 != 0 && (first.session & 4095) < 4);
    opened = script_say_open(&script, &client, cookie.cookie);
    CHECK(SCRIPT_READ(opened, struct rp_opened).session == first.session);
    CHECK(rp_server_sessions(script.server) == 1);
    CHECK(script_counter(&script, RP_COUNT_sessions_opened) == 1);
    CHECK(script_counter(&script, RP_COUNT_hellos) == 2);
    script_close(&script);
    check_group("1 handshake, with repeats");
}

/* 2. Given cookies that are wrong, of another address, of another nonce, or old.
 *    Expect BAD_COOKIE, and no session; a cookie of the period before is still good. */
static void situation_cookies(void) {
    struct script script;
    fresh(&script);
    struct script_client client = script_client(1);
    struct script_client other = script_client(2);
    struct script_answer answer = script_hello(&script, &client);
    uint64_t cookie = SCRIPT_READ(answer, struct rp_cookie).cookie;
    answer = script_say_open(&script, &client, cookie ^ 1);
    CHECK_STATUS(answer, RP_BAD_COOKIE);
    CHECK(answer.size == 0 && answer.view.outer->connection == 0);
    other.nonce = client.nonce;
    CHECK_STATUS(script_say_open(&script, &other, cookie), RP_BAD_COOKIE);
    client.nonce++;
    CHECK_STATUS(script_say_open(&script, &client, cookie), RP_BAD_COOKIE);
    client.nonce--;
    script_later(&script, 128000);
    CHECK_STATUS(script_say_open(&script, &client, cookie), RP_BAD_COOKIE);
    answer = script_hello(&script, &client);
    cookie = SCRIPT_READ(answer, struct rp_cookie).cookie;
    script_later(&script, 64000);
    CHECK(rp_server_sessions(script.server) == 0);
    CHECK_STATUS(script_say_open(&script, &client, cookie), RP_OK);
    CHECK(script_counter(&script, RP_COUNT_cookie_refused) == 4);
    script_close(&script);
    check_group("2 cookies: wrong, foreign, expired");
}

/* 3. Given a session that speaks from another address. Expect ADDRESS_CHANGED with a cookie and
 *    nothing applied; an unknown operation dropped; a wrong echo refused; the right one moves the
 *    session. */
static void situation_address(void) {
    struct script script;
    fresh(&script);
    struct script_client client = script_client(1);
    script_connect(&script, &client);
    struct rp_peer before = client.peer;
    memset(client.peer.bytes, 9, 4);
    struct rp_writer_request writer = {.streams = 1};
    struct script_answer answer =
        script_ask(&script, &client, RP_OP_WRITER, 0, 1, &writer, sizeof writer);
    CHECK_STATUS(answer, RP_ADDRESS_CHANGED);
    CHECK(answer.view.outer->connection == client.connection);
    struct rp_address_changed cookie = SCRIPT_READ(answer, struct rp_address_changed);
    CHECK(cookie.packet == (uint32_t)client.packet && cookie.reserved == 0);
    CHECK(script_counter(&script, RP_COUNT_address_changed) == 1);
    CHECK(rp_writer_find(rp_server_table(script.server, 0), client.connection) < 0);

    script_put(&script, &client, RP_OP_COUNT, 0, 1, NULL, 0);
    CHECK(script_turn(&script) == 0 && script_counter(&script, RP_COUNT_drop_op) == 1);

    struct rp_echo echo = {.cookie = cookie.cookie + 1};
    answer = script_ask(&script, &client, RP_OP_ECHO, 0, 2, &echo, sizeof echo);
    CHECK_STATUS(answer, RP_BAD_COOKIE);
    echo.cookie = cookie.cookie;
    answer = script_ask(&script, &client, RP_OP_ECHO, 0, 3, &echo, sizeof echo);
    CHECK_STATUS(answer, RP_OK);
    answer = script_ask(&script, &client, RP_OP_PING, 0, 4, NULL, 0);
    CHECK_STATUS(answer, RP_OK);
    client.peer = before;
    answer = script_ask(&script, &client, RP_OP_PING, 0, 5, NULL, 0);
    CHECK_STATUS(answer, RP_ADDRESS_CHANGED);
    script_later(&script, 20000);
    answer = script_ask(&script, &client, RP_OP_PING, 0, 6, NULL, 0);
    echo.cookie = SCRIPT_READ(answer, struct rp_address_changed).cookie;
    CHECK_STATUS(script_ask(&script, &client, RP_OP_ECHO, 0, 7, &echo, sizeof echo), RP_OK);
    script_later(&script, 30000);
    script_turn(&script);
    CHECK(rp_server_sessions(script.server) == 1, "an echo is heard like any request");
    script_later(&script, 101);
    script_turn(&script);
    CHECK(rp_server_sessions(script.server) == 0);
    script_close(&script);
    check_group("3 a new address echoes a cookie");
}

/* 4. Given all sessions taken. Expect NO_SESSION_FREE until one has been silent for idle_ms; then
 *    that one is given up, its writer freed, and its connection unknown. */
static void situation_replacement(void) {
    struct script script;
    fresh(&script);
    struct script_client clients[4];
    for (uint8_t i = 0; i < 4; i++) {
        clients[i] = script_client((uint8_t)(i + 1));
        script_connect(&script, &clients[i]);
        script_later(&script, 1);
    }
    script_writer(&script, &clients[0], 0, 1);
    struct script_client late = script_client(7);
    struct script_answer answer = script_hello(&script, &late);
    uint64_t cookie = SCRIPT_READ(answer, struct rp_cookie).cookie;
    CHECK_STATUS(script_say_open(&script, &late, cookie), RP_NO_SESSION_FREE);
    CHECK(script_counter(&script, RP_COUNT_sessions_refused) == 1);
    script_later(&script, 29990);
    for (uint8_t i = 1; i < 4; i++) {
        CHECK_STATUS(script_ask(&script, &clients[i], RP_OP_PING, 0, 1, NULL, 0), RP_OK);
    }
    script_later(&script, 11);
    script_connect(&script, &late);
    CHECK(script_counter(&script, RP_COUNT_sessions_expired) == 1);
    CHECK(rp_server_sessions(script.server) == 4);
    CHECK(rp_writer_find(rp_server_table(script.server, 0), clients[0].connection) < 0);
    answer = script_ask(&script, &clients[0], RP_OP_PING, 0, 1, NULL, 0);
    CHECK_STATUS(answer, RP_UNKNOWN_SESSION);
    CHECK(answer.view.outer->connection == 0);
    struct rp_refused refused = SCRIPT_READ(answer, struct rp_refused);
    CHECK(refused.connection == clients[0].connection && refused.reserved == 0);
    CHECK(refused.packet == (uint32_t)clients[0].packet && refused.port == 0);
    CHECK(script_counter(&script, RP_COUNT_unknown_session) == 1);
    script_close(&script);
    check_group("4 idle sessions are replaced");
}

/* 5. Given one datagram twice, and numbers out of order. Expect each number answered once. */
static void situation_replay(void) {
    struct script script;
    fresh(&script);
    struct script_client client = script_client(1);
    script_connect(&script, &client);
    client.packet = 5000;
    script_put(&script, &client, RP_OP_PING, 0, 1, NULL, 0);
    script_put_raw(&script, &client.peer, script.port.in[0].data, script.port.in[0].size);
    CHECK(script_turn(&script) == 1);
    CHECK(script_counter(&script, RP_COUNT_drop_replayed) == 1);
    client.packet = 4990;
    CHECK_STATUS(script_ask(&script, &client, RP_OP_PING, 0, 2, NULL, 0), RP_OK);
    client.packet = 4936;
    script_put(&script, &client, RP_OP_PING, 0, 3, NULL, 0);
    CHECK(script_turn(&script) == 0, "64 behind the newest, 5001: older than the window");
    CHECK(script_counter(&script, RP_COUNT_drop_replayed) == 2);
    CHECK_STATUS(script_ask(&script, &client, RP_OP_PING, 0, 4, NULL, 0), RP_OK);
    CHECK(client.packet == 5001 - 63, "the oldest that is told apart");
    script_close(&script);
    check_group("5 packet numbers are taken once");
}

/* 5b. Given packet numbers in any order, with gaps around the window's size. Expect what a list of
 *     everything that came says: each number once, and none 64 or more behind the newest. */
static void situation_replay_window(void) {
    static uint8_t came[1 << 19];
    struct rp_replay replay = {0};
    struct rp_random random;
    rp_random_seed(&random, 5);
    for (uint32_t i = 0; i < 10000; i++) {
        uint64_t newest = replay.newest, reach = newest < 70 ? newest : 70;
        uint64_t gap = rp_random_below(&random, 4) ? 1 + rp_random_below(&random, 3)
                                                   : 62 + rp_random_below(&random, 5);
        uint64_t packet = reach > 0 && rp_random_below(&random, 3)
                              ? newest - rp_random_below(&random, reach)
                              : newest + gap;
        CHECK(packet < sizeof came);
        int expected = !came[packet] && packet + 64 > newest;
        CHECK(rp_replay_accept(&replay, packet) == expected, "packet %" PRIu64 " of %" PRIu64,
              packet, newest);
        came[packet] = 1;
    }
    check_group("5b the window of packet numbers");
}

/* 6. Given requests by name, by number, and for tables that are not there. Expect facts, or
 *    UNKNOWN_TABLE. */
static void situation_tables(void) {
    struct script script;
    fresh(&script);
    struct script_client client = script_client(1);
    script_connect(&script, &client);
    struct rp_table_request request = {"rows"};
    struct script_answer answer =
        script_ask(&script, &client, RP_OP_TABLE, 0, 1, &request, sizeof request);
    CHECK_STATUS(answer, RP_OK);
    CHECK(answer.view.message->table == 1);
    struct rp_table_info info = SCRIPT_READ(answer, struct rp_table_info);
    CHECK(info.number == 1 && info.capacity == SCRIPT_CAPACITY && info.plan_count == 1);
    CHECK(info.epoch == rp_table_epoch(rp_server_table(script.server, 1)) && info.epoch != 0);
    CHECK(info.spec_bytes == sizeof script_spec - 1);
    CHECK(info.spec_crc == rp_crc32c(0, script_spec, info.spec_bytes));
    info = script_info(&script, &client, 0);
    CHECK(strcmp((const char *)info.name, "main") == 0 && info.plan_count == 2);
    CHECK(info.item_bytes[0] == 16 && info.item_bytes[1] == 32);
    struct rp_table_request nobody = {"nobody"};
    answer = script_ask(&script, &client, RP_OP_TABLE, 0, 1, &nobody, sizeof nobody);
    CHECK_STATUS(answer, RP_UNKNOWN_TABLE);
    memset(&nobody, 0, sizeof nobody);
    answer = script_ask(&script, &client, RP_OP_TABLE, 2, 1, &nobody, sizeof nobody);
    CHECK_STATUS(answer, RP_UNKNOWN_TABLE);
    CHECK(script_counter(&script, RP_COUNT_refused_table) == 2);
    script_close(&script);
    check_group("6 tables by name and number");
}

/* 7. Given two writer places. Expect a repeat finds its own, a third session is refused, and a
 *    place is given back by CLOSE or by long silence. */
static void situation_writers(void) {
    struct script script;
    fresh(&script);
    struct script_client clients[4];
    for (uint8_t i = 0; i < 4; i++) {
        clients[i] = script_client((uint8_t)(i + 1));
        script_connect(&script, &clients[i]);
    }
    struct rp_writer_granted granted = script_writer(&script, &clients[0], 0, 2);
    CHECK(granted.next_sequence == 0 && granted.window == SCRIPT_WINDOW && granted.streams == 2);
    CHECK(granted.epoch == rp_table_epoch(rp_server_table(script.server, 0)));
    CHECK(granted.pieces_max == 4);
    script_writer(&script, &clients[0], 0, 2);
    script_writer(&script, &clients[1], 0, 1);
    struct rp_writer_request request = {.streams = 1};
    struct script_answer answer =
        script_ask(&script, &clients[2], RP_OP_WRITER, 0, 1, &request, sizeof request);
    CHECK_STATUS(answer, RP_NO_WRITER_FREE);
    CHECK(script_counter(&script, RP_COUNT_refused_writer) == 1);
    CHECK_STATUS(script_ask(&script, &clients[1], RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
    CHECK(script_counter(&script, RP_COUNT_sessions_closed) == 1);
    answer = script_ask(&script, &clients[1], RP_OP_CLOSE, 0, 1, NULL, 0);
    CHECK_STATUS(answer, RP_UNKNOWN_SESSION);
    script_writer(&script, &clients[2], 0, 1);
    script_later(&script, 30001);
    script_writer(&script, &clients[3], 0, 1);
    CHECK(script_counter(&script, RP_COUNT_sessions_expired) == 2);
    CHECK(rp_server_sessions(script.server) == 1);
    script_close(&script);
    check_group("7 writer places");
}

/* 8. Given a receive budget of 64 and four sessions. Expect the sum of grants never above it, all
 *    of what is free to the first, fair shares later, and everything back after the lapse. */
static void situation_credit(void) {
    struct script script;
    fresh(&script);
    struct script_client clients[4];
    uint16_t credit[4];
    for (uint8_t i = 0; i < 4; i++) {
        clients[i] = script_client((uint8_t)(i + 1));
        clients[i].want = 1;
        script_connect(&script, &clients[i]);
        clients[i].want = 1000;
    }
    for (int i = 0; i < 4; i++) {
        struct script_answer answer = script_ask(&script, &clients[i], RP_OP_PING, 0, 1, NULL, 0);
        credit[i] = answer.head.credit;
        CHECK(answer.head.lapse_us == 10000);
    }
    CHECK(credit[0] == 61 && credit[1] == 1, "%u %u", credit[0], credit[1]);
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < 4; i++) {
            credit[i] = script_ask(&script, &clients[i], RP_OP_PING, 0, 2, NULL, 0).head.credit;
            CHECK(credit[0] + credit[1] + credit[2] + credit[3] <= 64);
        }
    }
    for (int i = 0; i < 4; i++) {
        CHECK(credit[i] == 16, "session %d holds %u", i, credit[i]);
    }
    script_later(&script, 10);
    CHECK(script_ask(&script, &clients[2], RP_OP_PING, 0, 3, NULL, 0).head.credit == 61);
    clients[2].want = 3;
    CHECK(script_ask(&script, &clients[2], RP_OP_PING, 0, 4, NULL, 0).head.credit == 3);
    script_close(&script);
    check_group("8 credit");
}

/* 9. Given counters asked for in parts, and beyond the end. Expect numbers that agree. */
static void situation_stats(void) {
    struct script script;
    fresh(&script);
    struct script_client client = script_client(1);
    script_connect(&script, &client);
    struct rp_stats_request request = {.first = 0, .count = 1000};
    struct script_answer answer =
        script_ask(&script, &client, RP_OP_STATS, 0, 1, &request, sizeof request);
    CHECK_STATUS(answer, RP_OK);
    struct rp_stats stats;
    memcpy(&stats, answer.rest, sizeof stats);
    CHECK(stats.total == RP_COUNTER_COUNT && stats.count == RP_COUNTER_COUNT);
    CHECK(stats.sessions == 1 && answer.size == sizeof stats + 8 * stats.count);
    const uint64_t *counters = (const void *)(answer.rest + sizeof stats);
    CHECK(counters[RP_COUNT_hellos] == 1 && counters[RP_COUNT_datagrams_in] == 3);
    request = (struct rp_stats_request){.first = RP_COUNTER_COUNT, .count = 5};
    answer = script_ask(&script, &client, RP_OP_STATS, 0, 2, &request, sizeof request);
    CHECK_STATUS(answer, RP_OK);
    CHECK(answer.size == sizeof stats);
    request.first++;
    answer = script_ask(&script, &client, RP_OP_STATS, 0, 3, &request, sizeof request);
    CHECK_STATUS(answer, RP_BAD_ARGUMENT);
    request = (struct rp_stats_request){.first = RP_STATS_FACTS | (RP_FACTS_MAX - 2), .count = 9};
    answer = script_ask(&script, &client, RP_OP_STATS, 0, 4, &request, sizeof request);
    CHECK_STATUS(answer, RP_OK);
    memcpy(&stats, answer.rest, sizeof stats);
    CHECK(stats.first == request.first && stats.count == 2 && stats.total == RP_FACTS_MAX);
    const struct rp_fact *facts = (const void *)(answer.rest + sizeof stats);
    CHECK(answer.size == sizeof stats + 2 * sizeof *facts);
    CHECK(facts[1].value == RP_FACTS_MAX && facts[1].kind == RP_FACT_IN);
    CHECK(strcmp((const char *)facts[1].name, "fact_47") == 0);
    script_close(&script);
    check_group("9 counters");
}

/* Rows from sequence and step 0, the last one closing; the five before it items of priority 3. */
static struct script_answer push_rows(struct script *script, struct script_client *client,
                                      uint64_t epoch) {
    static struct script_push push;
    script_push_begin(&push, epoch);
    script_push_run(&push, 0, 0, 0, 6, RP_RUN_END);
    for (uint64_t step = 0; step < 5; step++) {
        script_push_create(&push, 0, step, 3);
    }
    return script_push(script, client, 0, 1, &push);
}

/* 10. Given a reset that names the present epoch, then the same again. Expect one new epoch; the
 *     writer places as they were, at sequence and step 0; keys and the generator going on, all else
 *     anew. */
static void situation_reset(void) {
    struct script script;
    fresh(&script);
    struct script_client client = script_client(1);
    script_connect(&script, &client);
    struct script_client others[2] = {script_client(2), script_client(3)};
    struct rp_reset request = {.epoch = script_writer(&script, &client, 0, 2).epoch};
    for (int i = 0; i < 2; i++) {
        script_connect(&script, &others[i]);
    }
    script_writer(&script, &others[0], 0, 1);
    push_rows(&script, &client, request.epoch);
    struct rp_sample draw = {.count = 1, .budget = 1};
    struct script_answer answer =
        script_ask(&script, &client, RP_OP_SAMPLE, 0, 1, &draw, sizeof draw);
    CHECK_STATUS(answer, RP_OK);
    struct rp_random random = rp_server_table(script.server, 0)->header->random;
    struct rp_table_info had = script_info(&script, &client, 0);
    CHECK(had.inserted == 5 && had.sampled == 1 && had.count == 5);
    answer = script_ask(&script, &client, RP_OP_RESET, 0, 1, &request, sizeof request);
    uint64_t epoch = SCRIPT_READ(answer, struct rp_reset_done).epoch;
    CHECK(epoch != request.epoch && epoch != 0);
    answer = script_ask(&script, &client, RP_OP_RESET, 0, 1, &request, sizeof request);
    CHECK(SCRIPT_READ(answer, struct rp_reset_done).epoch == epoch);
    const struct rp_table_header *header = rp_server_table(script.server, 0)->header;
    struct rp_table_info has = script_info(&script, &client, 0);
    CHECK(has.head == had.head && has.total == 0 && has.count == 0);
    CHECK(has.inserted == 0 && has.sampled == 0 && header->maximum == RP_POWER_ONE);
    CHECK(memcmp(&header->random, &random, sizeof random) == 0);
    struct rp_writer_request one = {.streams = 1};
    answer = script_ask(&script, &others[1], RP_OP_WRITER, 0, 1, &one, sizeof one);
    CHECK_STATUS(answer, RP_NO_WRITER_FREE);
    answer = push_rows(&script, &client, request.epoch);
    CHECK_STATUS(answer, RP_STALE_EPOCH);
    answer = push_rows(&script, &client, epoch); /* sequence and step 0 again, and no new WRITER */
    CHECK(script_done(answer, 0).committed == 6 && script_done(answer, 0).key == had.head);
    CHECK(script_pushed(answer).done_through == 6);
    CHECK(script_writer(&script, &client, 0, 2).next_sequence == 6);
    script_close(&script);
    check_group("10 reset once per epoch");
}

/* 11. Given a killed server, attached again. Expect the client notices nothing: incarnation,
 *     session, address are kept, and answers' packet numbers go on rising. */
static void situation_attach(void) {
    struct script script;
    fresh(&script);
    struct script_client client = script_client(1);
    script_connect(&script, &client);
    struct script_answer answer = script_ask(&script, &client, RP_OP_PING, 0, 1, NULL, 0);
    uint64_t incarnation = answer.head.incarnation;
    uint64_t packet = answer.view.outer->packet;
    for (int i = 0; i < 5; i++) {
        script_kill(&script);
        answer = script_ask(&script, &client, RP_OP_PING, 0, 2, NULL, 0);
        CHECK_STATUS(answer, RP_OK);
        CHECK(answer.head.incarnation == incarnation && answer.view.outer->packet > packet);
        packet = answer.view.outer->packet;
    }
    script_close(&script);
}

/* 11. Given tables of one server, and of the next one over its region. Expect each to hash its
 *     steps that wait by a number of its own, which comes of the entropy alone. */
static void situation_salts(void) {
    struct script script;
    uint64_t salts[6];
    fresh(&script);
    for (int i = 0; i < 6; i++) {
        if (i > 0 && i % 2 == 0) {
            script_kill(&script);
        }
        salts[i] = rp_server_table(script.server, (uint32_t)i % 2)->private->salt;
        CHECK(salts[i] % 2 == 1, "even");
        for (int k = 0; k < i; k++) {
            CHECK(salts[i] != salts[k], "%d and %d", i, k);
        }
    }
    script_close(&script);
    check_group("11 kill and attach");
}

/* 12. Given impossible configs and foreign regions. Expect a sentence that names the matter. */
static void situation_refusals(void) {
    char error[256];
    uint8_t entropy[32] = {1};
    struct rp_server *server;
    script_tables(tables);
    config = script_config(tables);
    config.receive_budget = 3;
    CHECK(rp_server_bytes(&config, error) == 0 && strstr(error, "receive_budget"), "%s", error);
    config = script_config(tables);
    config.mtu = 1401;
    CHECK(rp_server_bytes(&config, error) == 0 && strstr(error, "mtu"), "%s", error);
    config = script_config(tables);
    tables[1].name[0] = 0;
    CHECK(rp_server_bytes(&config, error) == 0 && strstr(error, "name"), "%s", error);
    memcpy(tables[1].name, "main", 5);
    CHECK(rp_server_bytes(&config, error) == 0 && strstr(error, "both"), "%s", error);
    script_tables(tables);
    tables[1].capacity = 100;
    CHECK(rp_server_bytes(&config, error) == 0 && strstr(error, "capacity"), "%s", error);

    struct script script;
    fresh(&script);
    script.region[24] ^= 1; /* attaches: may change */
    CHECK(rp_server_attach(&server, script.region, script.bytes, &config, entropy, 1, error)
          == 0);
    script.region[56] ^= 1;
    CHECK(rp_server_attach(&server, script.region, script.bytes, &config, entropy, 1, error)
          == -RP_BAD_REGION);
    CHECK(strstr(error, "another build"), "%s", error);
    script.region[0] ^= 1;
    CHECK(rp_server_attach(&server, script.region, script.bytes, &config, entropy, 1, error)
          == -RP_BAD_REGION);
    script_close(&script);
    check_group("12 refusals in sentences");
}

/* 13. Given a port without room. Expect nothing is received; with room for a few answers, those
 *     that found none are dropped, counted, and not applied. */
static void situation_room(void) {
    struct script script;
    fresh(&script);
    struct script_client client = script_client(1);
    script_connect(&script, &client);
    uint64_t turns = script_counter(&script, RP_COUNT_turns);
    script_turn(&script);
    CHECK(script_counter(&script, RP_COUNT_turns) == turns, "nothing came");
    CHECK_STATUS(script_ask(&script, &client, RP_OP_PING, 0, 1, NULL, 0), RP_OK);
    CHECK(script_counter(&script, RP_COUNT_turns) == turns + 1, "one datagram is enough");
    script.port.room_left = 0;
    script_put(&script, &client, RP_OP_CLOSE, 0, 1, NULL, 0);
    CHECK(script_turn(&script) == 0 && script.port.in_count == 1);
    script_put(&script, &client, RP_OP_PING, 0, 1, NULL, 0);
    script.port.room_left = 1;
    struct script_client other = script_client(2);
    struct rp_hello hello = {.version_min = RP_VERSION_MIN, .version_max = RP_VERSION_MAX,
                             .mtu = 1400, .features = RP_FEATURES_SPOKEN};
    script_put(&script, &other, RP_OP_HELLO, 0, 1, &hello, sizeof hello);
    CHECK(script_turn(&script) == 1 && script.port.in_count == 0);
    CHECK(script_counter(&script, RP_COUNT_drop_no_room) == 2);
    CHECK(rp_server_sessions(script.server) == 0 && script_counter(&script, RP_COUNT_hellos) == 1);
    script_close(&script);
    check_group("13 transmit room");
}

int main(void) {
    situation_handshake();
    situation_cookies();
    situation_address();
    situation_replacement();
    situation_replay();
    situation_replay_window();
    situation_tables();
    situation_writers();
    situation_credit();
    situation_stats();
    situation_reset();
    situation_attach();
    situation_salts();
    situation_refusals();
    situation_room();
    return check_done("test_server");
}
