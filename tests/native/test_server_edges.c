/* Rules of the server where they begin and end: the last datagram of a share, the first one
 * of a turn, a body one word too long, a place that lapses behind one that does not, the moment
 * after an attach. */
#include "script.h"

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script script;
static struct script_client writer, other, third;
static uint64_t epoch; /* of table "rows": 0 <= items created - items drawn <= 20 */
static uint64_t sequences[3];

static void fresh(void) {
    script_open(&script, &config);
    struct script_client *clients[] = {&writer, &other, &third};
    for (uint32_t i = 0; i < 3; i++) {
        *clients[i] = script_client((uint8_t)(i + 1));
        script_connect(&script, clients[i]);
        sequences[i] = 0;
    }
}

static void configure(void) {
    script_tables(tables);
    tables[1].writers_max = 3;
    tables[1].window = 10;
    config = script_config(tables);
}

/* Three sessions that write to table "rows". */
static void fresh_writers(void) {
    configure();
    fresh();
    epoch = script_writer(&script, &writer, 1, 1).epoch;
    script_writer(&script, &other, 1, 1);
    script_writer(&script, &third, 1, 1);
}

/* Rows that are items, by one of the three. */
static uint16_t push(uint32_t who, uint64_t id, uint16_t count) {
    static struct script_push body;
    struct script_client *clients[] = {&writer, &other, &third};
    script_push_begin(&body, epoch);
    script_push_run(&body, 0, sequences[who], sequences[who], count, RP_RUN_ITEM);
    uint16_t status = script_push(&script, clients[who], 1, id, &body).status;
    sequences[who] += status == RP_OK ? count : 0;
    return status;
}

static struct script_answer sample(struct script_client *client, uint16_t table, uint64_t id,
                                   uint32_t count) {
    struct rp_sample request = script_sample(count);
    request.under_way = UINT64_MAX;
    return script_ask(&script, client, RP_OP_SAMPLE, table, id, &request, sizeof request);
}

/* Was this session answered so among what was sent last? */
static int answered(const struct script_client *client, uint8_t op, uint64_t id, uint16_t status) {
    for (uint32_t i = 0; i < script.port.out_count; i++) {
        struct script_answer answer = script_answer(&script, i);
        if (answer.view.outer->connection == client->connection
            && answer.view.message->op == (op | RP_ANSWER) && answer.view.message->id == id
            && answer.status == status) {
            return 1;
        }
    }
    return 0;
}

/* ---- bodies ---- */

/* 1. Given every operation whose body has one length, and eight bytes more than that. Expect
 *    BAD_SIZE from each, and the session as it was. */
static void situation_too_long(void) {
    static const struct {
        uint8_t op;
        uint32_t bytes;
    } fixed[] = {
        {RP_OP_HELLO, sizeof(struct rp_hello)},          {RP_OP_OPEN, sizeof(struct rp_open)},
        {RP_OP_CLOSE, 0},                                {RP_OP_PING, 0},
        {RP_OP_TABLE, sizeof(struct rp_table_request)},  {RP_OP_PULL, sizeof(struct rp_pull)},
        {RP_OP_WRITER, sizeof(struct rp_writer_request)}, {RP_OP_RESET, sizeof(struct rp_reset)},
        {RP_OP_BLOB, sizeof(struct rp_blob_request)},    {RP_OP_CANCEL, sizeof(struct rp_cancel)},
        {RP_OP_STATS, sizeof(struct rp_stats_request)},  {RP_OP_ECHO, sizeof(struct rp_echo)},
    };
    static const uint8_t zeros[256];
    configure();
    fresh();
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        uint32_t size = fixed[i].bytes > RP_REQUEST_BODY_MIN ? fixed[i].bytes : RP_REQUEST_BODY_MIN;
        struct script_client asker = writer;
        if (fixed[i].op == RP_OP_HELLO || fixed[i].op == RP_OP_OPEN) {
            asker.connection = 0;
        }
        struct script_answer answer =
            script_ask(&script, &asker, fixed[i].op, 0, 1, zeros, size + 8);
        CHECK(answer.status == RP_BAD_SIZE, "operation %u: %s", fixed[i].op,
              rp_status_name(answer.status));
        writer.packet = asker.packet;
    }
    CHECK(rp_server_sessions(script.server) == 3);
    CHECK_STATUS(script_ask(&script, &writer, RP_OP_PING, 0, 1, NULL, 0), RP_OK);
    script_close(&script);
    check_group("1 a body has one length");
}

/* 2. Given a table without a spec. Expect one datagram that says so, and none after it. */
static void situation_no_spec(void) {
    configure();
    tables[1].spec_bytes = 0;
    fresh();
    struct rp_blob_request request = {.count = 4, .kind = RP_BLOB_SPEC};
    struct script_answer answer =
        script_ask(&script, &writer, RP_OP_BLOB, 1, 1, &request, sizeof request);
    CHECK_STATUS(answer, RP_OK);
    struct rp_blob_datagram head = SCRIPT_READ(answer, struct rp_blob_datagram);
    CHECK(script.port.out_count == 1 && head.datagram_count == 1 && head.size == 0);
    request.first = 1;
    CHECK_STATUS(script_ask(&script, &writer, RP_OP_BLOB, 1, 2, &request, sizeof request),
                 RP_BAD_ARGUMENT);
    script_close(&script);
    check_group("2 a table without a spec");
}

/* ---- transmit room ---- */

static uint32_t first_lease; /* what the turn asked for first; 0: nothing yet */

static uint32_t lease_noted(struct rp_port *port, struct rp_packet *packets, uint32_t count) {
    first_lease = first_lease ? first_lease : count;
    return script_transport.tx_lease(port, packets, count);
}

/* 3. Given turns that send many datagrams, few, or none. Expect the next turn to begin with room
 *    for as many, for no fewer than four and no more than a burst. */
static void situation_lease(void) {
    static const struct {
        uint32_t pings, leased;
    } turns[] = {{1, 4}, {40, 40}, {64, 64}, {0, 4}, {5, 5}, {3, 4}};
    struct rp_transport transport = script_transport;
    transport.tx_lease = lease_noted;
    configure();
    fresh();
    script.port.base.transport = &transport;
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        for (uint32_t k = 0; k < turns[i].pings; k++) {
            script_put(&script, &writer, RP_OP_PING, 0, k, NULL, 0);
        }
        CHECK(script_turn(&script) == turns[i].pings);
        first_lease = 0;
        script_put(&script, &other, RP_OP_PING, 0, 1, NULL, 0);
        CHECK(script_turn(&script) == 1);
        CHECK(first_lease == turns[i].leased, "%u after %u", first_lease, turns[i].pings);
    }
    script_close(&script);
    check_group("3 a turn begins with the room that the last one used");
}

/* 4. Given more sessions in a turn than leave each a part of as many trains as a client may have
 *    asked for. Expect all of these for somebody in the next turn, and what is beyond dropped, and
 *    counted; so is what does not fit beside others, and what does is sent. */
static void situation_whole_share(void) {
    enum { CROWD = RP_TURN_DATAGRAMS / RP_TRAIN_MAX + 1 };
    static uint8_t spec[RP_TRAIN_MAX * 512];
    static struct script_client clients[CROWD];
    configure();
    config.sessions_max = CROWD;
    config.receive_budget = 64 * CROWD;
    tables[0].spec = (const char *)spec;
    tables[0].spec_bytes = sizeof spec;
    script_open(&script, &config);
    for (uint32_t i = 0; i < CROWD; i++) {
        clients[i] = script_client((uint8_t)(i + 1));
        clients[i].mtu = RP_MTU_MIN;
        script_connect(&script, &clients[i]);
    }
    enum { ASKED = RP_PULL_TRAINS + 2 };
    uint64_t id = 0;
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < CROWD; i++) {
            script_put(&script, &clients[i], RP_OP_PING, 0, 1, NULL, 0);
        }
        CHECK(script_turn(&script) == CROWD);
        script_put(&script, &clients[5], RP_OP_PING, 0, 2, NULL, 0); /* no part of it */
        for (uint32_t i = 0; i < ASKED; i++) { /* whole trains, 1, 1; or one less, 2, 1 */
            uint32_t count = i < RP_PULL_TRAINS ? RP_TRAIN_MAX - (turn && i == 0)
                                                : 1 + (turn && i == RP_PULL_TRAINS);
            struct rp_blob_request request = {.count = (uint16_t)count, .kind = RP_BLOB_SPEC};
            script_put(&script, &clients[5], RP_OP_BLOB, 0, id++, &request, sizeof request);
        }
        CHECK(script_turn(&script) == RP_PULL_TRAINS * RP_TRAIN_MAX + 1, "%u",
              script.port.out_count);
        CHECK(script_counter(&script, RP_COUNT_drop_no_room) == 2 + turn);
    }
    script_close(&script);
    check_group("4 a session's part of a turn is all that its client may have asked for");
}

/* ---- samples ---- */

/* 5. Given a sample that is repeated under the name of another table. Expect the batch as it was
 *    drawn, and the table it was drawn from. */
static void situation_other_table(void) {
    fresh_writers();
    CHECK(push(0, 1, 10) == RP_OK);
    struct script_answer answer = sample(&other, 1, 1, 4);
    CHECK_STATUS(answer, RP_OK);
    for (uint16_t table = 0; table < 2; table++) {
        answer = sample(&other, table, 1, 4);
        CHECK_STATUS(answer, RP_OK);
        CHECK(answer.view.message->table == 1, "as if table %u's", answer.view.message->table);
    }
    CHECK(script_counter(&script, RP_COUNT_samples) == 1);
    script_close(&script);
    check_group("5 a repeat is answered from the table that was drawn from");
}

/* 18. Given a sample of the epoch that the table has, and no items yet. Expect its batch once there
 *     are some. */
static void situation_waits_in_epoch(void) {
    fresh_writers();
    struct rp_sample request = script_sample(4);
    request.epoch = epoch;
    CHECK_STATUS(script_ask(&script, &other, RP_OP_SAMPLE, 1, 1, &request, sizeof request),
                 RP_BLOCKED);
    CHECK(push(0, 1, 10) == RP_OK && answered(&other, RP_OP_SAMPLE, 1, RP_OK));
    script_close(&script);
    check_group("6 a sample of one epoch waits in it");
}

/* 6. Given a sample that is withdrawn before it came, when a newer one was drawn. Expect it
 *    FORGOTTEN when it comes, and nothing drawn for it. */
static void situation_withdrawn_below(void) {
    fresh_writers();
    CHECK(push(0, 1, 10) == RP_OK);
    CHECK_STATUS(sample(&other, 1, 5, 1), RP_OK);
    for (uint32_t i = 0; i < 3; i++) {
        struct rp_cancel odd = {.request = 4, .op = RP_OP_SAMPLE};
        odd.reserved[i] = 1;
        CHECK_STATUS(script_ask(&script, &other, RP_OP_CANCEL, 1, 4, &odd, sizeof odd),
                     RP_BAD_RESERVED);
    }
    struct rp_cancel cancel = {.request = 4, .op = RP_OP_SAMPLE};
    CHECK_STATUS(script_ask(&script, &other, RP_OP_CANCEL, 1, 4, &cancel, sizeof cancel), RP_OK);
    CHECK_STATUS(sample(&other, 1, 4, 1), RP_FORGOTTEN);
    CHECK_STATUS(sample(&other, 1, 3, 1), RP_OK);
    CHECK(script_counter(&script, RP_COUNT_samples) == 2);
    script_close(&script);
    check_group("7 a late sample that was withdrawn is not drawn");
}

/* ---- places ---- */

/* 7. Given a push that was not asked for again for nearly as long as a place is kept, and room
 *    then. Expect it stored. */
static void situation_just_in_time(void) {
    fresh_writers();
    CHECK(push(0, 1, 10) == RP_OK && push(0, 2, 10) == RP_OK);
    CHECK(push(1, 1, 5) == RP_BLOCKED);
    script_later(&script, RP_NOTE_MS - 1);
    CHECK_STATUS(sample(&third, 1, 1, 5), RP_OK);
    CHECK(answered(&other, RP_OP_PUSH, 1, RP_OK));
    CHECK(script_info(&script, &writer, 1).inserted == 25);
    script_close(&script);
    check_group("8 a place is kept until it lapses");
}

/* 8. Given two pushes that wait, the first one asked for again, the second not, for as long as a
 *    place is kept, and room for both then. Expect the first stored, and nothing of the second. */
static void situation_lapse_behind(void) {
    fresh_writers();
    CHECK(push(0, 1, 10) == RP_OK && push(0, 2, 10) == RP_OK);
    CHECK(push(1, 1, 4) == RP_BLOCKED && push(2, 1, 5) == RP_BLOCKED);
    for (uint32_t i = 0; i < 8; i++) {
        script_later(&script, RP_NOTE_MS / 7);
        CHECK(push(1, 1, 4) == RP_BLOCKED);
    }
    CHECK_STATUS(sample(&third, 1, 1, 9), RP_OK);
    CHECK(answered(&other, RP_OP_PUSH, 1, RP_OK) && !answered(&third, RP_OP_PUSH, 1, RP_OK));
    CHECK(script_info(&script, &writer, 1).inserted == 24);
    CHECK(script_counter(&script, RP_COUNT_waits_lapsed) == 1);
    script_close(&script);
    check_group("9 a place lapses behind one that is kept");
}

/* 9. Given sessions whose samples wait, at several tables, and a server that closes. Expect each
 *    told so, under its own id and table, at once. */
static void situation_farewell(void) {
    fresh_writers();
    CHECK_STATUS(sample(&other, 0, 7, 1), RP_BLOCKED);
    CHECK_STATUS(sample(&third, 0, 8, 1), RP_BLOCKED);
    CHECK_STATUS(sample(&third, 1, 9, 1), RP_BLOCKED);
    script_forget(&script);
    rp_server_last_turn(script.server, (struct rp_port *)&script.port, script.now_ns, 1);
    CHECK(script.port.leased == 0 && script.port.out_count == 3, "%u", script.port.out_count);
    CHECK(answered(&other, RP_OP_SAMPLE, 7, RP_CLOSED));
    CHECK(answered(&third, RP_OP_SAMPLE, 8, RP_CLOSED));
    CHECK(answered(&third, RP_OP_SAMPLE, 9, RP_CLOSED));
    CHECK(script_answer(&script, 2).view.message->table == 1);
    script_close(&script);
    check_group("10 a farewell to all who wait");
}

/* 10. Given a sample that waits, and the same id once more with fewer items. Expect the place to
 *     stay the first one's: nothing is drawn before there is enough for that. */
static void situation_other_count(void) {
    fresh_writers();
    CHECK_STATUS(sample(&other, 1, 1, 6), RP_BLOCKED);
    CHECK_STATUS(sample(&other, 1, 1, 2), RP_BLOCKED);
    CHECK(push(0, 1, 4) == RP_OK && !answered(&other, RP_OP_SAMPLE, 1, RP_OK));
    CHECK(push(0, 2, 2) == RP_OK && answered(&other, RP_OP_SAMPLE, 1, RP_OK));
    CHECK(script_info(&script, &writer, 1).sampled == 6);
    script_close(&script);
    check_group("11 a place is kept for what was asked first");
}

/* 11. Given pushes with creates: all good, and with the last one of three wrong. Expect the one
 *     counted as no refusal, and nothing of the other stored. */
static void situation_last_create(void) {
    static struct script_push body;
    configure();
    fresh();
    uint64_t main_epoch = script_writer(&script, &writer, 0, 1).epoch;
    for (uint16_t time = 0; time < 2; time++) {
        script_push_begin(&body, main_epoch);
        script_push_run(&body, 0, 8 * time, 8 * time, 8, 0);
        for (uint64_t i = 0; i < 3; i++) {
            script_push_create(&body, 0, 8 * time + 1 + i, 1.0)->flags = i == 2 && time ? 8 : 0;
        }
        CHECK_STATUS(script_push(&script, &writer, 0, 1, &body), time ? RP_BAD_ARGUMENT : RP_OK);
        CHECK(script_counter(&script, RP_COUNT_refused_argument) == time);
        CHECK(script_counter(&script, RP_COUNT_items_created) == 3);
    }
    CHECK(script_counter(&script, RP_COUNT_steps_committed) == 8);
    script_close(&script);
    check_group("12 every create is looked at before anything is stored");
}

/* ---- weights ---- */

/* One half of a blob of 2000 zeros. */
static uint16_t publish_half(struct script_client *client, uint64_t id, uint64_t offset) {
    static struct {
        struct rp_publish publish;
        uint8_t bytes[1000];
    } piece;
    static const uint8_t zeros[2000];
    piece.publish = (struct rp_publish){
        .size = sizeof zeros, .offset = offset, .piece = 1000, .crc = rp_crc32c(0, zeros, 2000)};
    return script_ask(&script, client, RP_OP_PUBLISH, 0, id, &piece, sizeof piece).status;
}

/* 12. Given somebody who pulls the oldest version and asks for its first datagram once more. Expect
 *     that to be no progress: a publisher is held up as if it had been asked for once. */
static void situation_asked_again(void) {
    configure();
    fresh();
    for (uint64_t version = 1; version <= RP_WEIGHTS_SLOTS; version++) {
        CHECK(publish_half(&writer, version, 0) == RP_OK);
        CHECK(publish_half(&writer, version, 1000) == RP_OK);
    }
    struct rp_blob_request first = {.version = 1, .count = 1, .kind = RP_BLOB_WEIGHTS};
    for (uint64_t id = 1; id <= 2; id++) {
        CHECK_STATUS(script_ask(&script, &other, RP_OP_BLOB, 0, id, &first, sizeof first), RP_OK);
        script_later(&script, RP_WEIGHTS_REST_MS / 2 - (id - 1));
    }
    CHECK(publish_half(&writer, 4, 0) == RP_BUSY, "a millisecond early");
    script_later(&script, 1);
    CHECK(publish_half(&writer, 4, 0) == RP_OK);
    script_close(&script);
    check_group("13 who asks for the same again does not get on");
}

/* 13. Given a publisher whose time is over while another waits, and who begins anew before that one
 *     asks. Expect no new time for it: the other is let in. */
static void situation_time_over(void) {
    configure();
    fresh();
    CHECK(publish_half(&writer, 1, 0) == RP_OK && publish_half(&other, 1, 0) == RP_BUSY);
    script_later(&script, RP_WEIGHTS_REST_MS + 2000 / RP_WEIGHTS_BYTES_PER_MS);
    CHECK(publish_half(&writer, 2, 0) == RP_OK);
    CHECK(publish_half(&other, 1, 0) == RP_OK);
    script_close(&script);
    check_group("14 a publisher's time is one, whatever it begins");
}

/* ---- ends, and after an attach ---- */

/* 14. Given a writer that closes its session after an episode's end in one stream and in the middle
 *     of one in another. Expect one episode cut. */
static void situation_cut(void) {
    static struct script_push body;
    configure();
    fresh();
    script_push_begin(&body, script_writer(&script, &writer, 0, 2).epoch);
    script_push_run(&body, 0, 0, 0, 5, RP_RUN_END);
    script_push_run(&body, 1, 5, 0, 5, 0);
    CHECK_STATUS(script_push(&script, &writer, 0, 1, &body), RP_OK);
    CHECK_STATUS(script_ask(&script, &writer, RP_OP_CLOSE, 0, 2, NULL, 0), RP_OK);
    CHECK(script_counter(&script, RP_COUNT_episodes_cut) == 1);
    script_close(&script);
    check_group("15 what has ended is not cut");
}

/* 14. Given a publication under way when its server is killed. Expect its session's time to begin
 *     anew with the attach: others are BUSY until it has rested for too long. */
static void situation_publisher_kept(void) {
    configure();
    fresh();
    CHECK(publish_half(&writer, 1, 0) == RP_OK);
    script_later(&script, 100 * RP_WEIGHTS_REST_MS);
    script_kill(&script);
    CHECK(publish_half(&other, 1, 0) == RP_BUSY);
    script_later(&script, RP_WEIGHTS_REST_MS);
    CHECK(publish_half(&other, 1, 0) == RP_OK);
    script_close(&script);
    check_group("16 a publisher outlasts its server's death");
}

/* 15. Given the largest lapse that an answer can tell, and one more. Expect the one taken and told,
 *     the other refused. */
static void situation_lapse_limit(void) {
    char error[256] = "";
    configure();
    config.lapse_ms = UINT32_MAX / 1000;
    fresh();
    struct script_answer answer = script_ask(&script, &writer, RP_OP_PING, 0, 1, NULL, 0);
    CHECK(answer.head.lapse_us == config.lapse_ms * 1000);
    script_close(&script);
    config.lapse_ms++;
    CHECK(rp_server_bytes(&config, error) == 0 && strstr(error, "lapse_ms"), "%s", error);
    check_group("17 a lapse that fits its answer");
}

/* 13. Given a sample that keeps its place, a second one whose client died, and items for both.
 *     Expect the first drawn, and nothing for the dead one behind it. */
static void situation_dead_second(void) {
    fresh_writers();
    CHECK_STATUS(sample(&other, 1, 1, 5), RP_BLOCKED);
    CHECK_STATUS(sample(&third, 1, 1, 1), RP_BLOCKED);
    for (uint32_t half = 0; half < 8; half++) {
        script_later(&script, 500);
        CHECK_STATUS(sample(&other, 1, 1, 5), RP_BLOCKED);
    }
    CHECK(push(0, 1, 8) == RP_OK && answered(&other, RP_OP_SAMPLE, 1, RP_OK));
    CHECK(!answered(&third, RP_OP_SAMPLE, 1, RP_OK));
    CHECK(script_info(&script, &writer, 1).sampled == 5);
    CHECK(script_counter(&script, RP_COUNT_waits_lapsed) == 1);
    script_close(&script);
    check_group("18 who died behind another is not drawn for");
}

/* 14. Given a push that waits, and the same id once more with nothing to create. Expect it stored,
 *     and its place gone: who stood behind it is let in. */
static void situation_nothing_left(void) {
    static struct script_push body;
    fresh_writers();
    CHECK(push(0, 1, 10) == RP_OK && push(0, 2, 10) == RP_OK);
    CHECK(push(2, 9, 5) == RP_BLOCKED && push(0, 3, 1) == RP_BLOCKED);
    script_push_begin(&body, epoch);
    script_push_run(&body, 0, 0, 0, 1, 0);
    CHECK_STATUS(script_push(&script, &third, 1, 9, &body), RP_OK);
    CHECK_STATUS(sample(&other, 1, 1, 1), RP_OK);
    CHECK(answered(&writer, RP_OP_PUSH, 3, RP_OK));
    script_close(&script);
    check_group("19 a push that creates nothing any more gives up its place");
}

/* 15. Given twenty sessions that have fallen silent, all there is room for, and one more that
 *     opens before time has given up any. Expect eight to go for it, no fewer and no more. */
static void situation_room_made(void) {
    enum { ALL = 20 };
    static struct script_client clients[ALL];
    configure();
    config.sessions_max = ALL;
    script_open(&script, &config);
    for (uint32_t i = 0; i < ALL; i++) {
        clients[i] = script_client((uint8_t)(1 + i));
        script_connect(&script, &clients[i]);
    }
    struct script_client late = script_client(99);
    script_later(&script, 29950);
    struct script_answer answer = script_hello(&script, &late);
    uint64_t cookie = SCRIPT_READ(answer, struct rp_cookie).cookie;
    script_later(&script, 90);
    CHECK_STATUS(script_say_open(&script, &late, cookie), RP_OK);
    CHECK(script_counter(&script, RP_COUNT_sessions_expired) == 8);
    CHECK(rp_server_sessions(script.server) == ALL - 8 + 1);
    script_close(&script);
    check_group("20 room is made by eight");
}

/* 16. Given more silent sessions than are given up at once, and the last of them holds the only
 *     writer's place of a table. Expect a newcomer to get it at once, and nobody else given up. */
static void situation_silent_writer(void) {
    enum { SILENT = RP_EXPIRED_MAX + 4 };
    static struct script_client silent[SILENT];
    configure();
    tables[0].writers_max = 1;
    config.sessions_max = SILENT + 1;
    config.idle_ms = 1000;
    config.receive_budget = 128;
    script_open(&script, &config);
    for (uint32_t i = 0; i < SILENT; i++) {
        silent[i] = script_client((uint8_t)(i + 1));
        script_connect(&script, &silent[i]);
    }
    script_writer(&script, &silent[SILENT - 1], 0, 1);
    script_later(&script, 950);
    script_turn(&script);
    struct script_client late = script_client(SILENT + 1);
    struct rp_writer_request request = {.streams = 1};
    script_connect(&script, &late);
    CHECK_STATUS(script_ask(&script, &late, RP_OP_WRITER, 0, 1, &request, sizeof request),
                 RP_NO_WRITER_FREE);
    script_later(&script, 60);
    script.server->tick_ns = script.now_ns + 40000000; /* no tick meanwhile */
    CHECK_STATUS(script_ask(&script, &late, RP_OP_WRITER, 0, 2, &request, sizeof request), RP_OK);
    CHECK(rp_server_sessions(script.server) == SILENT);
    script_close(&script);
    check_group("21 a silent session's place is free for the first who asks");
}

int main(void) {
    situation_too_long();
    situation_no_spec();
    situation_lease();
    situation_whole_share();
    situation_other_table();
    situation_waits_in_epoch();
    situation_withdrawn_below();
    situation_just_in_time();
    situation_lapse_behind();
    situation_farewell();
    situation_other_count();
    situation_last_create();
    situation_asked_again();
    situation_time_over();
    situation_cut();
    situation_publisher_kept();
    situation_lapse_limit();
    situation_dead_second();
    situation_nothing_left();
    situation_room_made();
    situation_silent_writer();
    return check_done("test_server_edges");
}
