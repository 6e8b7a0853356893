/* Time alone ends what the silent hold, and those who wait are served in order, whatever
 * sizes others ask for. Hours are virtual: nobody sleeps. Situations read "Given ... Expect ...".
 */
#include "script.h"

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script_push push;
struct room { /* a server with a writer and others */
    struct script script;
    struct script_client writer, other, third;
    uint64_t epoch;
    uint64_t sequence;
    uint64_t id;
};

/* Table "rows": 0 <= items created - items drawn <= 20. */
static void fresh(struct room *room) {
    script_tables(tables);
    tables[1].min_size = 1;
    config = script_config(tables);
    script_open(&room->script, &config);
    room->writer = script_client(1);
    room->other = script_client(2);
    room->third = script_client(3);
    script_connect(&room->script, &room->writer);
    script_connect(&room->script, &room->other);
    script_connect(&room->script, &room->third);
    room->epoch = script_writer(&room->script, &room->writer, 1, 2).epoch;
    room->sequence = 0;
    room->id = 100;
}

static uint64_t under_way; /* what a sample says of those before it */

static struct script_answer ask_sample(struct room *room, struct script_client *client, uint64_t id,
                                       uint32_t count) {
    struct rp_sample request = script_sample(count);
    request.under_way = under_way;
    return script_ask(&room->script, client, RP_OP_SAMPLE, 1, id, &request, sizeof request);
}

static uint16_t sample(struct room *room, struct script_client *client, uint64_t id,
                       uint32_t count) {
    return ask_sample(room, client, id, count).status;
}

/* Rows that are items, from one writer's own sequence. */
static uint16_t push_rows(struct room *room, struct script_client *client, uint64_t *sequence,
                          uint64_t id, uint16_t count) {
    script_push_begin(&push, room->epoch);
    script_push_run(&push, 0, *sequence, *sequence, count, RP_RUN_ITEM);
    uint16_t status = script_push(&room->script, client, 1, id, &push).status;
    *sequence += status == RP_OK ? count : 0;
    return status;
}

/* By the first writer: under one id until it is stored, as a client repeats it. */
static uint16_t fill(struct room *room, uint16_t count) {
    uint16_t status = push_rows(room, &room->writer, &room->sequence, room->id, count);
    room->id += status == RP_OK;
    return status;
}

static void pings(struct room *room, struct script_client *client) {
    CHECK_STATUS(script_ask(&room->script, client, RP_OP_PING, 0, 1, NULL, 0), RP_OK);
}

static struct rp_table_info info(struct room *room) {
    return script_info(&room->script, &room->writer, 1);
}

/* Was such an answer to this session among what was sent last? */
static int answered(const struct room *room, const struct script_client *client, uint8_t op,
                    uint64_t id, uint16_t status) {
    for (uint32_t i = 0; i < room->script.port.out_count; i++) {
        struct script_answer answer = script_answer(&room->script, i);
        if (answer.view.outer->connection == client->connection
            && answer.view.message->op == (op | RP_ANSWER) && answer.view.message->id == id
            && answer.status == status) {
            return 1;
        }
    }
    return 0;
}

/* 1. Given a learner that waits for more than there is, dies, and another that asks for what there
 *    is, for an hour. Expect the other held back for three seconds, no longer, and the dead one
 *    neither drawn for nor charged. */
static void situation_dead_learner(void) {
    struct room room;
    fresh(&room);
    CHECK(fill(&room, 5) == RP_OK);
    CHECK(sample(&room, &room.other, 1, 6) == RP_BLOCKED);
    uint32_t held_back = 0;
    for (uint32_t second = 0; second < 3600; second++) {
        uint16_t status = sample(&room, &room.third, 1 + second - held_back, 4);
        CHECK(status == RP_OK || status == RP_BLOCKED, "%s", rp_status_name(status));
        held_back += status == RP_BLOCKED;
        CHECK(status == RP_OK || second <= 3, "second %u: still behind the dead", second);
        if (status == RP_OK) {
            CHECK(fill(&room, 4) == RP_OK);
        }
        script_later(&room.script, 1000);
    }
    CHECK(held_back == 3 || held_back == 4, "%u", held_back);
    CHECK(info(&room).sampled == 4ull * (3600 - held_back));
    CHECK(script_counter(&room.script, RP_COUNT_waits_lapsed) == 1);
    CHECK(script_counter(&room.script, RP_COUNT_sessions_expired) == 1);
    CHECK(rp_server_sessions(room.script.server) == 2);
    script_close(&room.script);
    check_group("1 a dead learner's place lapses, nothing is drawn for it");
}

/* 2. Given a waiting sample that is asked for again each half second. Expect its place kept for an
 *    hour, against another that asks for less all the time. */
static void situation_place_kept(void) {
    struct room room;
    fresh(&room);
    CHECK(sample(&room, &room.other, 1, 10) == RP_BLOCKED);
    for (uint32_t half = 0; half < 7200; half++) {
        CHECK(sample(&room, &room.third, 1, 1) == RP_BLOCKED, "overtaken");
        CHECK(sample(&room, &room.other, 1, 10) == RP_BLOCKED);
        pings(&room, &room.writer);
        if (half % 800 == 799) {
            CHECK(fill(&room, 1) == RP_OK);
        }
        script_later(&room.script, 500);
    }
    CHECK(info(&room).sampled == 0 && info(&room).inserted == 9);
    CHECK(fill(&room, 1) == RP_OK);
    CHECK(answered(&room, &room.other, RP_OP_SAMPLE, 1, RP_OK), "ten at last");
    script_close(&room.script);
    check_group("2 a larger sample keeps its place");
}

/* 3. Given a session whose larger sample waits. Expect its own later, smaller ones behind it; an
 *    older one of its own takes the place over. */
static void situation_own_order(void) {
    struct room room;
    fresh(&room);
    under_way = UINT64_MAX;
    CHECK(fill(&room, 5) == RP_OK);
    struct script_answer answer = ask_sample(&room, &room.other, 7, 8);
    CHECK(SCRIPT_READ(answer, struct rp_blocked).noted == 1);
    answer = ask_sample(&room, &room.other, 8, 1);
    CHECK_STATUS(answer, RP_BLOCKED);
    CHECK(SCRIPT_READ(answer, struct rp_blocked).noted == 0);
    CHECK(SCRIPT_READ(answer, struct rp_blocked).need == 1);
    answer = ask_sample(&room, &room.other, 6, 7);
    CHECK(SCRIPT_READ(answer, struct rp_blocked).noted == 1);
    CHECK(SCRIPT_READ(answer, struct rp_blocked).need == 2);
    CHECK(fill(&room, 2) == RP_OK);
    CHECK(answered(&room, &room.other, RP_OP_SAMPLE, 6, RP_OK));
    CHECK(sample(&room, &room.other, 8, 1) == RP_BLOCKED, "there is no room left");
    CHECK(fill(&room, 1) == RP_OK);
    CHECK(answered(&room, &room.other, RP_OP_SAMPLE, 8, RP_OK));
    script_close(&room.script);
    under_way = 0;
    check_group("3 a session's samples go in order");
}

/* 15. Given a session whose sample waits first, another's behind it, and an older one of the first
 *     session for which there is enough. Expect the older one drawn, and the later one last. */
static void situation_older_one(void) {
    struct room room;
    fresh(&room);
    under_way = UINT64_MAX;
    CHECK(fill(&room, 5) == RP_OK);
    CHECK(sample(&room, &room.other, 8, 8) == RP_BLOCKED);
    CHECK(sample(&room, &room.third, 1, 6) == RP_BLOCKED);
    CHECK(sample(&room, &room.other, 7, 3) == RP_OK);
    CHECK(fill(&room, 4) == RP_OK);
    CHECK(answered(&room, &room.third, RP_OP_SAMPLE, 1, RP_OK), "who stood behind goes first");
    CHECK(fill(&room, 8) == RP_OK && answered(&room, &room.other, RP_OP_SAMPLE, 8, RP_OK));
    script_close(&room.script);
    under_way = 0;
    check_group("15 an older sample is drawn, a later one stands last");
}

/* 4. Given a push of 5 that waits, and 10 000 pushes of 1 by another, while one item a second is
 *    drawn. Expect the 5 in as soon as there is room for five, and the small ones behind it. */
static void situation_large_push(void) {
    struct room room;
    uint64_t other_sequence = 0, id = 1;
    fresh(&room);
    script_writer(&room.script, &room.other, 1, 1);
    CHECK(fill(&room, 10) == RP_OK && fill(&room, 10) == RP_OK);
    CHECK(push_rows(&room, &room.other, &other_sequence, 1, 5) == RP_BLOCKED);
    uint32_t small = 0, large = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        small += fill(&room, 1) == RP_OK;
        if (i % 10 == 9) {
            CHECK(sample(&room, &room.third, id++, 1) == RP_OK);
        }
        if (i % 5 == 4) {
            uint16_t status = push_rows(&room, &room.other, &other_sequence, 1 + large, 5);
            CHECK(status == RP_OK || status == RP_BLOCKED);
            large += status == RP_OK;
        }
        script_later(&room.script, 100);
    }
    CHECK(large >= 70, "%u pushes of five among %u of one", large, small);
    CHECK(small >= 70, "%u", small);
    script_close(&room.script);
    check_group("4 a larger push is not starved");
}

/* 5. Given two pushes of 5 that wait, and room for six. Expect the first one stored, and the one
 *    that is free not given to a push of 1, as the second stands before it; then both as there is
 *    room, in one turn. */
static void situation_in_order(void) {
    struct room room;
    uint64_t sequence[2] = {0, 0};
    fresh(&room);
    tables[1].writers_max = 3;
    tables[1].window = 10;
    config = script_config(tables);
    script_close(&room.script);
    script_open(&room.script, &config);
    struct script_client *clients[] = {&room.writer, &room.other, &room.third};
    for (uint32_t i = 0; i < 3; i++) {
        *clients[i] = script_client((uint8_t)(i + 1));
        script_connect(&room.script, clients[i]);
        room.epoch = script_writer(&room.script, clients[i], 1, 1).epoch;
    }
    room.sequence = 0;
    CHECK(fill(&room, 10) == RP_OK && fill(&room, 10) == RP_OK);
    CHECK(push_rows(&room, &room.other, &sequence[0], 1, 5) == RP_BLOCKED);
    CHECK(push_rows(&room, &room.third, &sequence[1], 1, 5) == RP_BLOCKED);
    CHECK(sample(&room, &room.writer, 1, 6) == RP_OK);
    CHECK(answered(&room, &room.other, RP_OP_PUSH, 1, RP_OK));
    CHECK(!answered(&room, &room.third, RP_OP_PUSH, 1, RP_OK), "six are not ten");
    CHECK(fill(&room, 1) == RP_BLOCKED, "one is free, and a push stands before it");
    CHECK(push_rows(&room, &room.other, &sequence[0], 1, 5) == RP_OK, "a repeat");
    CHECK(info(&room).inserted == 25);
    CHECK(sample(&room, &room.writer, 2, 5) == RP_OK);
    CHECK(answered(&room, &room.third, RP_OP_PUSH, 1, RP_OK));
    CHECK(answered(&room, &room.writer, RP_OP_PUSH, room.id, RP_OK));
    CHECK(info(&room).inserted == 31 && script_counter(&room.script, RP_COUNT_releases) == 3);
    script_close(&room.script);
    check_group("5 pushes go in order");
}

/* 7. Given a session that falls silent with an open episode, a place in a queue and credit, and
 *    nobody who asks for anything. Expect all of it gone idle_ms later, by turns that receive
 *    nothing. */
static void situation_silence(void) {
    struct room room;
    fresh(&room);
    CHECK(sample(&room, &room.other, 1, 6) == RP_BLOCKED);
    script_push_begin(&push, room.epoch);
    script_push_run(&push, 0, 0, 0, 3, 0);
    CHECK_STATUS(script_push(&room.script, &room.writer, 1, 1, &push), RP_OK);
    script_later(&room.script, 20000);
    pings(&room, &room.third);
    script_later(&room.script, 10001);
    CHECK(rp_server_sessions(room.script.server) == 3);
    room.script.port.room_left = 0;
    struct rp_port *port = (struct rp_port *)&room.script.port;
    CHECK(rp_server_turn(room.script.server, port, room.script.now_ns) == 0);
    room.script.port.room_left = UINT32_MAX;
    rp_server_check(room.script.server);
    CHECK(rp_server_sessions(room.script.server) == 1);
    CHECK(script_counter(&room.script, RP_COUNT_sessions_expired) == 2);
    CHECK(script_counter(&room.script, RP_COUNT_episodes_cut) == 1);
    CHECK(rp_writer_find(rp_server_table(room.script.server, 1), room.writer.connection) < 0);
    CHECK_STATUS(script_ask(&room.script, &room.other, RP_OP_PING, 0, 9, NULL, 0),
                 RP_UNKNOWN_SESSION);
    script_close(&room.script);
    check_group("7 the silent are given up by time");
}

/* 8. Given 300 sessions that fall silent at once. Expect eight given up a tick, a tick each 100 ms,
 *    and the one that still speaks kept. */
static void situation_many(void) {
    enum { MANY = 300 };
    static struct script_client clients[MANY];
    struct script script;
    script_tables(tables);
    config = script_config(tables);
    config.sessions_max = MANY;
    config.receive_budget = 1000;
    script_open(&script, &config);
    for (uint32_t i = 0; i < MANY; i++) {
        clients[i] = script_client((uint8_t)(i % 200));
        clients[i].nonce = 5000 + i;
        script_connect(&script, &clients[i]);
    }
    uint32_t before = rp_server_sessions(script.server), turns = 0;
    CHECK(before == MANY);
    script_later(&script, 30001);
    for (; before > 1; turns++) {
        script_put(&script, &clients[7], RP_OP_PING, 0, turns, NULL, 0);
        script_turn(&script);
        uint32_t now = rp_server_sessions(script.server);
        CHECK(before - now <= 8, "%u at once", before - now);
        CHECK(turns < 60, "%u are left", now);
        before = now;
        script_later(&script, 100);
    }
    rp_server_check(script.server);
    CHECK(script_counter(&script, RP_COUNT_sessions_expired) == MANY - 1);
    CHECK_STATUS(script_ask(&script, &clients[7], RP_OP_PING, 0, 99, NULL, 0), RP_OK);
    script_close(&script);
    check_group("8 many silent sessions, a few at a time");
}

static uint16_t answer_to(const struct room *room, uint32_t index) {
    return script_answer(&room->script, index).status;
}

/* Turns until silence counts again. */
static void hear_all(struct room *room) {
    for (uint32_t turn = 0; turn <= RP_HEAR_MS / RP_GAP_MS; turn++) {
        script_turn(&room->script);
        script_stand_still(&room->script, RP_GAP_MS);
    }
}

/* 9. Given a server that stood still for a minute while its sessions went on speaking: their
 *    datagrams wait, and bursts bring one or many of them. Expect nobody given up who is heard in
 *    them, though some bursts bring nothing; and the silent given up after a second of turns of any
 *    rhythm. */
static void situation_stood_still(void) {
    struct room room;
    fresh(&room);
    script_turn(&room.script);
    script_stand_still(&room.script, RP_GAP_MS);
    pings(&room, &room.other); /* a turn that brings something */
    CHECK(room.script.server->unheard_ns == 0, "so long is no standstill");
    script_stand_still(&room.script, 60000);
    for (uint32_t i = 0; i < RP_BURST + 1; i++) {
        script_put(&room.script, i < RP_BURST ? &room.writer : &room.other, RP_OP_PING, 0, i, NULL,
                   0);
    }
    room.script.port.in_most = 1; /* as a socket whose first burst asks for one message */
    script_turn(&room.script);
    CHECK(rp_server_sessions(room.script.server) == 3, "not all was received yet");
    room.script.port.in_most = 0;
    for (uint32_t turn = 0; turn < 5; turn++) { /* all but the second bring nothing */
        script_turn(&room.script);
        CHECK(rp_server_sessions(room.script.server) == 3, "nor is it known that all was");
        script_stand_still(&room.script, RP_HEAR_MS / 5);
    }
    script_turn(&room.script);
    CHECK(rp_server_sessions(room.script.server) == 2, "the third is silent");
    CHECK(script_counter(&room.script, RP_COUNT_sessions_expired) == 1);
    static const struct {
        uint32_t each_ms, turns;
    } rhythm[] = {{10, 101}, {300, 6}};
    for (uint32_t r = 0; r < 2; r++) {
        pings(&room, &room.other);
        script_stand_still(&room.script, 30001);
        for (uint32_t turn = 1; turn <= rhythm[r].turns; turn++) {
            script_put(&room.script, &room.writer, RP_OP_PING, 0, turn, NULL, 0);
            script_turn(&room.script);
            CHECK(rp_server_sessions(room.script.server) == (turn < rhythm[r].turns ? 2 : 1),
                  "turn %u", turn);
            script_stand_still(&room.script, rhythm[r].each_ms);
        }
        script_connect(&room.script, &room.other);
        hear_all(&room);
    }
    pings(&room, &room.other);
    script_stand_still(&room.script, 30001);
    for (uint32_t turn = 0; turn < 7; turn++) { /* the sixth is short of the second by 1 ns */
        script_put(&room.script, &room.writer, RP_OP_PING, 0, turn, NULL, 0);
        script_turn(&room.script);
        CHECK(rp_server_sessions(room.script.server) == (turn < 6 ? 2 : 1), "turn %u", turn);
        script_stand_still(&room.script, turn == 5 ? 201 : 200);
        room.script.now_ns -= turn == 4;
    }
    script_close(&room.script);
    check_group("9 who is heard in what waits is not given up");
}

/* 12. Given every place taken, a server that stood still, and what waits begins with an OPEN, or a
 *     WRITER, of one more. Expect it refused and nobody given up who is heard behind it; and who is
 *     silent given up for its repeat, a second later. */
static void situation_place_after_standstill(void) {
    struct room room;
    fresh(&room); /* four places, two writers */
    struct script_client fourth = script_client(4), late = script_client(9);
    script_connect(&room.script, &fourth);
    script_writer(&room.script, &room.other, 1, 2);
    uint64_t cookie = SCRIPT_READ(script_hello(&room.script, &late), struct rp_cookie).cookie;
    struct rp_open open = {.cookie = cookie, .features = RP_FEATURES_SPOKEN, .mtu = 1400,
                           .version = RP_VERSION_MAX, .receive_budget = 64};
    struct rp_writer_request writer = {.streams = 1};
    script_stand_still(&room.script, 31000);
    script_put(&room.script, &late, RP_OP_OPEN, 0, late.nonce, &open, sizeof open);
    script_put(&room.script, &fourth, RP_OP_WRITER, 1, 7, &writer, sizeof writer);
    script_put(&room.script, &room.writer, RP_OP_PING, 0, 5, NULL, 0);
    script_put(&room.script, &room.other, RP_OP_PING, 0, 5, NULL, 0);
    CHECK(script_turn(&room.script) == 4);
    CHECK(answer_to(&room, 0) == RP_NO_SESSION_FREE && answer_to(&room, 1) == RP_NO_WRITER_FREE);
    CHECK(answer_to(&room, 2) == RP_OK && answer_to(&room, 3) == RP_OK);
    hear_all(&room);
    CHECK(script_counter(&room.script, RP_COUNT_sessions_expired) == 1, "the third was silent");
    CHECK_STATUS(script_say_open(&room.script, &late, cookie), RP_OK);
    script_close(&room.script);
    check_group("12 nobody makes room before what waits is heard");
}

/* 13. Given two samples that wait, a server that stood still for longer than their places last,
 *     and the second's repeat received before the first's. Expect both places and their order kept;
 *     and one that is not asked for again gone a second later. */
static void situation_order_after_standstill(void) {
    struct room room;
    struct rp_sample four = script_sample(4);
    fresh(&room);
    CHECK(sample(&room, &room.other, 1, 4) == RP_BLOCKED);
    CHECK(sample(&room, &room.third, 1, 4) == RP_BLOCKED);
    script_stand_still(&room.script, 3100);
    script_put(&room.script, &room.third, RP_OP_SAMPLE, 1, 1, &four, sizeof four);
    script_put(&room.script, &room.other, RP_OP_SAMPLE, 1, 1, &four, sizeof four);
    script_turn(&room.script);
    CHECK(script_counter(&room.script, RP_COUNT_waits_lapsed) == 0);
    CHECK(fill(&room, 4) == RP_OK);
    CHECK(answered(&room, &room.other, RP_OP_SAMPLE, 1, RP_OK), "the first");
    CHECK(!answered(&room, &room.third, RP_OP_SAMPLE, 1, RP_OK), "not the second");
    hear_all(&room);
    script_stand_still(&room.script, 3100);
    pings(&room, &room.third);
    CHECK(script_counter(&room.script, RP_COUNT_waits_lapsed) == 0);
    hear_all(&room);
    CHECK(script_counter(&room.script, RP_COUNT_waits_lapsed) == 1);
    script_close(&room.script);
    check_group("13 places outlast a standstill, in order");
}

static struct script_answer cancel(struct room *room, struct script_client *client, uint16_t op,
                                   uint64_t request, uint16_t table) {
    struct rp_cancel body = {.request = request, .op = op};
    return script_ask(&room->script, client, RP_OP_CANCEL, table, request, &body, sizeof body);
}

/* 10. Given a sample and a push that wait, and are withdrawn, once and again. Expect their places
 *     gone, who stood behind served at once, a late copy of the sample FORGOTTEN, and nothing drawn
 *     or charged; a sample that was drawn stays drawn; what makes no sense is refused. */
static void situation_withdrawn(void) {
    struct room room;
    fresh(&room);
    under_way = UINT64_MAX;
    CHECK(fill(&room, 5) == RP_OK);
    CHECK(sample(&room, &room.other, 3, 6) == RP_BLOCKED);
    CHECK(sample(&room, &room.third, 1, 4) == RP_BLOCKED);
    CHECK_STATUS(cancel(&room, &room.other, RP_OP_SAMPLE, 3, 1), RP_OK);
    CHECK(answered(&room, &room.third, RP_OP_SAMPLE, 1, RP_OK), "in the same turn");
    CHECK_STATUS(cancel(&room, &room.other, RP_OP_SAMPLE, 3, 1), RP_OK);
    CHECK(sample(&room, &room.other, 3, 6) == RP_FORGOTTEN);
    CHECK_STATUS(cancel(&room, &room.third, RP_OP_SAMPLE, 1, 1), RP_OK);
    CHECK(sample(&room, &room.third, 1, 4) == RP_FORGOTTEN, "its record was given up");
    CHECK(sample(&room, &room.other, 2, 1) == RP_OK);
    CHECK(sample(&room, &room.other, 4, 1) == RP_BLOCKED);
    script_kill(&room.script);
    CHECK(sample(&room, &room.other, 3, 6) == RP_FORGOTTEN);
    CHECK(info(&room).sampled == 5 && info(&room).inserted == 5);

    uint64_t sequence = 0;
    room.epoch = script_writer(&room.script, &room.third, 1, 1).epoch;
    CHECK(fill(&room, 10) == RP_OK && fill(&room, 10) == RP_OK);
    CHECK(push_rows(&room, &room.third, &sequence, 9, 5) == RP_BLOCKED);
    CHECK(fill(&room, 1) == RP_BLOCKED);
    CHECK(sample(&room, &room.other, 5, 1) == RP_OK);
    CHECK(fill(&room, 1) == RP_BLOCKED, "five stand before it");
    CHECK_STATUS(cancel(&room, &room.third, RP_OP_PUSH, 9, 1), RP_OK);
    CHECK(answered(&room, &room.writer, RP_OP_PUSH, room.id, RP_OK));
    CHECK(fill(&room, 1) == RP_OK);
    CHECK(script_counter(&room.script, RP_COUNT_waits_withdrawn) == 1, "since the attach");
    CHECK_STATUS(cancel(&room, &room.third, RP_OP_PULL, 9, 1), RP_BAD_ARGUMENT);
    CHECK_STATUS(cancel(&room, &room.third, RP_OP_PUSH, 0, 1), RP_BAD_ARGUMENT);
    CHECK_STATUS(cancel(&room, &room.third, RP_OP_PUSH, 9, 2), RP_UNKNOWN_TABLE);
    struct rp_cancel reserved = {.request = 9, .op = RP_OP_PUSH, .reserved = {0, 1, 0}};
    CHECK_STATUS(script_ask(&room.script, &room.third, RP_OP_CANCEL, 1, 9, &reserved,
                            sizeof reserved), RP_BAD_RESERVED);
    script_close(&room.script);
    under_way = 0;
    check_group("10 who gives up withdraws the place");
}

/* 11. Given 240 sessions that wait for the same item. Expect 64 let on in the turn that brings it,
 *     and the rest in the next three, which receive nothing: each says that work is left, so that
 *     nobody sleeps between them, but for the last; after a standstill too. */
static void crowd_waits(uint64_t gap_ms) {
    enum { CROWD = 240 };
    static struct script_client clients[CROWD];
    struct script script;
    struct rp_sample request = script_sample(1);
    script_tables(tables);
    config = script_config(tables);
    config.sessions_max = CROWD;
    config.receive_budget = 1000;
    script_open(&script, &config);
    for (uint32_t i = 0; i < CROWD; i++) {
        clients[i] = script_client((uint8_t)i);
        clients[i].nonce = 5000 + i;
        script_connect(&script, &clients[i]);
        CHECK_STATUS(script_ask(&script, &clients[i], RP_OP_SAMPLE, 0, 1, &request, sizeof request),
                     RP_BLOCKED);
    }
    struct rp_writer_granted granted = script_writer(&script, &clients[0], 0, 1);
    script_push_begin(&push, granted.epoch);
    script_push_run(&push, 0, 0, 0, 10, 0);
    for (uint64_t step = 1; step <= 4; step++) {
        script_push_create(&push, 0, step, 1.0);
    }
    script_stand_still(&script, gap_ms);
    CHECK_STATUS(script_push(&script, &clients[0], 0, 2, &push), RP_OK);
    CHECK(script.port.out_count == 1 + 64, "%u", script.port.out_count);
    for (uint32_t left = CROWD - 64; left > 0; left -= left < 64 ? left : 64) {
        script_forget(&script);
        uint32_t turned = rp_server_turn(script.server, (struct rp_port *)&script.port,
                                         script.now_ns);
        CHECK(script.port.out_count == (left < 64 ? left : 64), "%u", script.port.out_count);
        CHECK(turned == (left >= 64), "%u with %u left", turned, left);
    }
    CHECK(script_turn(&script) == 0 && script_counter(&script, RP_COUNT_releases) == CROWD);
    rp_server_check(script.server);
    script_close(&script);
}

static void situation_crowd(void) {
    crowd_waits(0);
    crowd_waits(300);
    check_group("11 a crowd is let on in parts");
}

/* 14. Given a push of one item that waits, and comes again under its id with ten. Expect the ten to
 *     wait in its place, before who came behind it. */
static void situation_larger(void) {
    struct room room;
    uint64_t small = 0;
    fresh(&room);
    tables[1].error_min = -20;
    tables[1].writers_max = 2;
    config = script_config(tables);
    script_close(&room.script);
    script_open(&room.script, &config);
    script_connect(&room.script, (room.writer = script_client(1), &room.writer));
    script_connect(&room.script, (room.other = script_client(2), &room.other));
    room.epoch = script_writer(&room.script, &room.writer, 1, 1).epoch;
    script_writer(&room.script, &room.other, 1, 1);
    CHECK(fill(&room, 10) == RP_OK && fill(&room, 10) == RP_OK);
    CHECK(push_rows(&room, &room.other, &small, 1, 1) == RP_BLOCKED);
    CHECK(fill(&room, 9) == RP_BLOCKED);
    CHECK(push_rows(&room, &room.other, &small, 1, 10) == RP_BLOCKED);
    CHECK(sample(&room, &room.writer, 1, 9) == RP_OK && info(&room).inserted == 20);
    CHECK(sample(&room, &room.writer, 2, 1) == RP_OK);
    CHECK(answered(&room, &room.other, RP_OP_PUSH, 1, RP_OK) && info(&room).inserted == 30);
    CHECK(fill(&room, 9) == RP_BLOCKED);
    CHECK(sample(&room, &room.writer, 3, 9) == RP_OK && info(&room).inserted == 39);
    rp_server_check(room.script.server);
    script_close(&room.script);
    check_group("14 a push that comes again with more");
}

int main(void) {
    situation_dead_learner();
    situation_place_kept();
    situation_own_order();
    situation_older_one();
    situation_large_push();
    situation_in_order();
    situation_silence();
    situation_many();
    situation_stood_still();
    situation_withdrawn();
    situation_crowd();
    situation_place_after_standstill();
    situation_order_after_standstill();
    situation_larger();
    return check_done("test_server_time");
}
