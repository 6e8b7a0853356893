/* A client opens a session only with answers that are right in every field, tells its caller
 * how it ended, and leaves nothing behind where it ends or begins anew. Situations read "Given ...
 * Expect ...". */
#include <stddef.h>

#include "client_world.h"

enum { ROWS = 1, BODY = RP_ANSWER_BYTES };

static struct rp_table_config tables[2];
static struct rp_server_config config;

static void defaults(void) {
    script_tables(tables);
    tables[0].samples_per_insert = tables[1].samples_per_insert = 0;
    config = script_config(tables);
}

static uint64_t count(const struct world *world, enum rp_counter counter) {
    return rp_client_counters(world->client)[counter];
}

/* ---- answers to HELLO and OPEN ---- */

#define COOKIE(field) RP_OP_HELLO, BODY + offsetof(struct rp_cookie, field),                       \
                      sizeof ((struct rp_cookie *)0)->field
#define OPENED(field) RP_OP_OPEN, BODY + offsetof(struct rp_opened, field),                        \
                      sizeof ((struct rp_opened *)0)->field

static const struct field { /* `size` bytes at `offset` of the answer to `op` say `value` */
    const char *what;
    uint8_t op;
    uint32_t offset, size;
    uint64_t value;
} wrongs[] = {
    {"a version nobody speaks", COOKIE(version), 99},
    {"a cookie's mtu too small", COOKIE(mtu), RP_MTU_MIN - 8},
    {"a cookie's mtu too large", COOKIE(mtu), WORLD_MTU + 8},
    {"a cookie's mtu that is odd", COOKIE(mtu), WORLD_MTU - 4},
    {"no session", OPENED(session), 0},
    {"another session", OPENED(session), 12345},
    {"an mtu too small", OPENED(mtu), RP_MTU_MIN - 8},
    {"an mtu too large", OPENED(mtu), WORLD_MTU + 8},
    {"an mtu that is odd", OPENED(mtu), WORLD_MTU - 4},
    {"no idle time", OPENED(idle_ms), 0},
    {"no batch", OPENED(batch_max), 0},
    {"batches too large", OPENED(batch_max), RP_BATCH_MAX + 1},
    {"no records", OPENED(records), 0},
    {"too many records", OPENED(records), RP_RECORDS_MAX + 1},
    {"too few records of updates", OPENED(update_records), 15},
    {"too many tables", OPENED(table_count), RP_TABLES_MAX + 1},
    {"no train", OPENED(train_max), 0},
    {"weights too large", OPENED(weights_max), RP_BLOB_BYTES_MAX + 1u},
    {"a feature that is missing", OPENED(features), 0},
}, rights[] = {
    {"the smallest mtu in a cookie", COOKIE(mtu), RP_MTU_MIN},
    {"the smallest mtu", OPENED(mtu), RP_MTU_MIN},
    {"the shortest idle time", OPENED(idle_ms), 1},
    {"batches of one", OPENED(batch_max), 1},
    {"the largest batches", OPENED(batch_max), RP_BATCH_MAX},
    {"one record", OPENED(records), 1},
    {"the most records", OPENED(records), RP_RECORDS_MAX},
    {"the fewest records of updates", OPENED(update_records), 16},
    {"the most tables", OPENED(table_count), RP_TABLES_MAX},
    {"trains of one", OPENED(train_max), 1},
    {"the largest weights", OPENED(weights_max), RP_BLOB_BYTES_MAX},
};

/* Opens a session, one field of the first answer of that operation changed. */
static struct world *open_with(const struct field *field) {
    struct world *world = world_open(&config, 1);
    int changed = 0;
    for (uint32_t i = 0; rp_client_state(world->client) == 0; i++) {
        world_turn(world);
        struct world_datagram *datagram =
            world_find(&world->ports[1], field->op | RP_ANSWER, 0);
        if (datagram != NULL && !changed) {
            memcpy(datagram->data + field->offset, &field->value, field->size);
            world_reseal(datagram);
            changed = 1;
        }
        CHECK(i < 1000, "%s: the session never opens", field->what);
        world_advance(world, 10 * WORLD_MS);
    }
    CHECK(changed, "%s: nothing was changed", field->what);
    return world;
}

/* 1. Given one field of an answer to HELLO or OPEN that cannot be, or only just. Expect the former
 *    dropped, counted, and asked for again; the latter taken. */
static void situation_fields(void) {
    for (uint32_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        struct world *world = open_with(&wrongs[i]);
        CHECK(rp_client_state(world->client) == 1 && count(world, RP_COUNT_drop_reserved) == 1,
              "%s", wrongs[i].what);
        CHECK(rp_client_mtu(world->client) == WORLD_MTU, "%s", wrongs[i].what);
        world_close(world);
    }
    for (uint32_t i = 0; i < sizeof rights / sizeof rights[0]; i++) {
        struct world *world = open_with(&rights[i]);
        CHECK(rp_client_state(world->client) == 1 && count(world, RP_COUNT_drop_reserved) == 0,
              "%s", rights[i].what);
        CHECK(count(world, RP_COUNT_retransmissions) == 0, "%s", rights[i].what);
        CHECK(rp_client_mtu(world->client) == (i < 2 ? RP_MTU_MIN : WORLD_MTU));
        world_close(world);
    }
    check_group("1 each field of an opening is checked");
}

/* The state that the client comes to where the first answer to `op` has this status. */
static struct world *open_told(uint8_t op, uint16_t status) {
    struct field field = {"status", op, RP_HEADER_BYTES + offsetof(struct rp_answer, status), 2,
                          status};
    return open_with(&field);
}

/* 2. Given an answer to HELLO or OPEN that refuses. Expect what the caller can mend to end the
 *    client with that status; what nobody sends there to be dropped; a cookie that is too old
 *    to be asked for anew, under another nonce. */
static void situation_refused(void) {
    static const struct {
        uint8_t op;
        uint16_t status;
        int state;
    } cases[] = {
        {RP_OP_HELLO, RP_BAD_VERSION, -RP_BAD_VERSION},
        {RP_OP_HELLO, RP_BAD_FEATURE, -RP_BAD_FEATURE},
        {RP_OP_HELLO, RP_BUSY, 1},
        {RP_OP_OPEN, RP_NO_SESSION_FREE, -RP_NO_SESSION_FREE},
        {RP_OP_OPEN, RP_ADDRESS_FULL, -RP_ADDRESS_FULL},
        {RP_OP_OPEN, RP_BAD_FEATURE, -RP_BAD_FEATURE},
        {RP_OP_OPEN, RP_BAD_COOKIE, 1},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world *world = open_told(cases[i].op, cases[i].status);
        CHECK(rp_client_state(world->client) == cases[i].state, "case %u: %d", i,
              rp_client_state(world->client));
        CHECK(count(world, RP_COUNT_drop_unsolicited) == (cases[i].status == RP_BUSY));
        uint64_t sessions = cases[i].status == RP_BAD_COOKIE ? 2 : cases[i].op == RP_OP_OPEN;
        sessions = cases[i].status == RP_BUSY ? 1 : sessions;
        CHECK(rp_server_counters(world->server)[RP_COUNT_sessions_opened] == sessions,
              "case %u: %" PRIu64, i, sessions);
        CHECK(rp_client_state(world->client) == 1
              || (rp_client_deadline(world->client) == UINT64_MAX
                  && rp_client_ping(world->client, 1) == cases[i].state));
        world_close(world);
    }
    check_group("2 a refusal of an opening");
}

/* 2b. Given a session that the server gave up, and no place for a new one: of all, or of the host's
 *     share. Expect the client to wait for a place and to go on. */
static void situation_reopen_full(uint16_t status) {
    struct world *world = world_open(&config, 2);
    uint32_t told = 0;
    world_connect(world);
    rp_session_close(world->server,
                     (uint32_t)(rp_client_session(world->client) % RP_SESSIONS_MAX));
    int ticket = rp_client_ping(world->client, world_later(world, 5000));
    while (rp_client_poll(world->client, ticket) == RP_PENDING) {
        world_turn(world);
        struct world_datagram *answer =
            world_find(&world->ports[1], RP_OP_OPEN | RP_ANSWER, 0);
        if (answer != NULL && told < 2) {
            struct rp_answer head;
            memcpy(&head, answer->data + RP_HEADER_BYTES, sizeof head);
            told += head.status == RP_OK;
            head.status = head.status == RP_OK ? status : head.status;
            memcpy(answer->data + RP_HEADER_BYTES, &head, sizeof head);
            world_reseal(answer);
        }
        world_advance(world, 10 * WORLD_MS);
    }
    CHECK(told == 2 && rp_client_poll(world->client, ticket) == RP_OK, "%s: %s",
          rp_status_name(status), rp_status_name(rp_client_poll(world->client, ticket)));
    CHECK(rp_client_state(world->client) == 1);
    world_close(world);
    check_group("2b a session anew waits for a place");
}

/* 3. Given answers to HELLO and OPEN that come twice, under new packet numbers. Expect one
 *    session, and the second ones counted as asked for by nobody. */
static void situation_twice(void) {
    struct rp_client_options options = world_options();
    struct world *world = world_open(&config, 3);
    world->delay_ns = 15 * WORLD_MS; /* HELLO and OPEN are repeated before their answers come */
    options.retry_us_min = 20000;
    world_client(world, &options);
    world_connect(world);
    uint64_t repeated = count(world, RP_COUNT_retransmissions);
    CHECK(repeated >= 1, "nothing was repeated");
    world_run(world, 1000 * WORLD_MS);
    CHECK(count(world, RP_COUNT_drop_unsolicited) == repeated, "%" PRIu64 " of %" PRIu64,
          count(world, RP_COUNT_drop_unsolicited), repeated);
    CHECK(rp_server_counters(world->server)[RP_COUNT_sessions_opened] == 1);
    world_close(world);
    check_group("3 answers to an opening that come twice");
}

/* 4. Given more room to receive than the protocol can tell. Expect the most that it can. */
static void situation_budget(void) {
    struct rp_client_options options = world_options();
    struct world *world = world_open(&config, 4);
    options.receive_budget = 0x20000;
    world_client(world, &options);
    struct world_datagram *datagram = NULL;
    for (uint32_t i = 0; datagram == NULL; i++) {
        CHECK(i < 1000, "no OPEN");
        world_client_turn(world);
        datagram = world_find(&world->ports[0], RP_OP_OPEN, 0);
        if (datagram == NULL) {
            world_step(world, WORLD_MS);
        }
    }
    const struct rp_open *open = (const void *)(datagram->data + RP_HEADER_BYTES);
    CHECK(open->receive_budget == 0xFFFF, "%u", open->receive_budget);
    world_close(world);
    check_group("4 a receive budget beyond what can be told");
}

/* ---- ends, and beginnings anew ---- */

static struct rp_table_info writer_open(struct world *world, uint16_t table) {
    static struct rp_writer_granted granted;
    struct rp_table_info info;
    int ticket = rp_client_table_number(world->client, table, &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &info, 1, &granted, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    return info;
}

static int push_one(struct world *world, uint16_t table) {
    static const uint64_t step[2] = {1, 2};
    return rp_client_push(world->client, table, 0, (const uint8_t *)step, 1, 0, NULL);
}

static int update_one(struct world *world, uint64_t epoch, uint64_t ms) {
    static const uint64_t key = 1;
    static const double priority = 1;
    return rp_client_update(world->client, ROWS, epoch, &key, &priority, 1, NULL,
                            world_later(world, ms));
}

/* 5. Given an update and steps under way in a session that ends, as the client can move to no
 *    other port. Expect their status, and the client to rest for ever. */
static void situation_ended(void) {
    struct world *world = world_open(&config, 5);
    world_connect(world);
    uint64_t epoch = writer_open(world, ROWS).epoch;
    world->queues = 7;
    world->stuck = 1;
    int ticket = update_one(world, epoch, 5000);
    CHECK(push_one(world, ROWS) == 1);
    CHECK(world_wait(world, ticket) == -RP_WRONG_QUEUE);
    struct rp_push_state state;
    rp_client_push_state(world->client, ROWS, &state);
    CHECK(state.status == -RP_WRONG_QUEUE && state.messages_open == 0);
    CHECK(push_one(world, ROWS) == -RP_WRONG_QUEUE);
    CHECK(rp_client_deadline(world->client) == UINT64_MAX, "it never rests");
    world_close(world);
    check_group("5 an ended session leaves nothing under way");
}

/* 6. Given updates under way, as many as there is room for, and a server that begins anew. Expect
 *    them to end, all room to be there again, the next update to be applied; and a publication to
 *    be the first of the new session. */
static void situation_anew(void) {
    static uint64_t keys[1 << 12];
    static double priorities[1 << 12];
    static const uint8_t bytes[64];
    uint64_t version;
    struct world *world = world_open(&config, 6);
    world_connect(world);
    uint64_t epoch = writer_open(world, ROWS).epoch;
    int ticket = rp_client_publish(world->client, bytes, sizeof bytes, &version,
                                   world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0 && version == 1);
    uint32_t room = rp_client_update_room(world->client);
    CHECK(room > 256 && room <= sizeof keys / sizeof keys[0]);
    for (uint32_t i = 0; i < room; i++) {
        keys[i] = i + 1;
    }
    world->deaf = 1;
    ticket = rp_client_update(world->client, ROWS, epoch, keys, priorities, room, NULL,
                              world_later(world, 60000));
    world_run(world, 50 * WORLD_MS);
    CHECK(rp_client_update_room(world->client) == 0);
    world_server(world, &config, 77);
    world->deaf = 0;
    CHECK(world_wait(world, ticket) == -RP_SERVER_RESTARTED);
    world_run(world, 100 * WORLD_MS);
    CHECK(rp_client_state(world->client) == 1);
    CHECK(rp_client_update_room(world->client) == room, "room for %u",
          rp_client_update_room(world->client));
    epoch = writer_open(world, ROWS).epoch;
    CHECK(world_wait(world, update_one(world, epoch, 5000)) == 0);
    ticket = rp_client_publish(world->client, bytes, sizeof bytes, &version,
                               world_later(world, 5000));
    world_client_turn(world);
    struct world_datagram *datagram = world_find(&world->ports[0], RP_OP_PUBLISH, 0);
    CHECK(datagram != NULL && world_message(datagram)->id == 1);
    CHECK(world_wait(world, ticket) == 0 && version == 1);
    world_close(world);
    check_group("6 a new session begins with nothing of the old one");
}

/* 7. Given writers of both tables and requests under way, and CLOSE. Expect each of them to end at
 *    once, before CLOSE is answered, and nothing to be taken any more. */
static void situation_close(void) {
    struct world *world = world_open(&config, 7);
    world_connect(world);
    uint64_t epoch = writer_open(world, 0).epoch;
    writer_open(world, ROWS);
    world->deaf = 1;
    int update = update_one(world, epoch, 5000);
    CHECK(push_one(world, 0) == 1 && push_one(world, ROWS) == 1);
    world_client_turn(world);
    int ticket = rp_client_close(world->client, world_later(world, 5000));
    CHECK(rp_client_poll(world->client, update) == -RP_CLOSED);
    for (uint16_t table = 0; table < 2; table++) {
        struct rp_push_state state;
        rp_client_push_state(world->client, table, &state);
        CHECK(state.status == -RP_CLOSED && state.messages_open == 0, "table %u", table);
        CHECK(push_one(world, table) == -RP_CLOSED, "table %u", table);
    }
    CHECK(rp_client_ping(world->client, world_later(world, 5000)) == -RP_CLOSED);
    world->deaf = 0;
    CHECK(world_wait(world, ticket) == 0 && rp_client_state(world->client) == -RP_CLOSED);
    CHECK(rp_client_deadline(world->client) == UINT64_MAX);
    world_close(world);
    check_group("7 CLOSE ends all at once");
}

/* 7b. Given requests that ended and were not taken, as many as there may be, and CLOSE. Expect the
 *     server told, and each request to keep what it ended with. */
static void situation_close_full(void) {
    struct rp_client_options options = world_options();
    struct world *world = world_open(&config, 7);
    int held[2];
    options.requests_max = 2;
    world_client(world, &options);
    world_connect(world);
    for (int i = 0; i < 2; i++) {
        held[i] = rp_client_ping(world->client, world_later(world, 5000));
        while (rp_client_poll(world->client, held[i]) == RP_PENDING) {
            world_step(world, WORLD_MS);
        }
    }
    CHECK(rp_client_ping(world->client, world_later(world, 5000)) == -RP_FULL);
    int ticket = rp_client_close(world->client, world_later(world, 5000));
    CHECK(ticket > 0, "%s", rp_status_name(ticket));
    CHECK(rp_client_close(world->client, world_later(world, 5000)) == -RP_CLOSED);
    CHECK(world_wait(world, ticket) == 0 && rp_server_sessions(world->server) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(rp_client_poll(world->client, held[i]) == 0);
    }
    world_close(world);
    check_group("7b CLOSE needs no room that requests hold");
}

/* 8. Given a client that is told to use another port, with requests under way. Expect them to be
 *    sent again from there at once, long before their time is out. */
static void situation_moved(void) {
    struct rp_client_options options = world_options();
    struct world *world = world_open(&config, 8);
    options.retry_us_min = 500000;
    options.retry_us_max = 1000000;
    world_client(world, &options);
    world->queues = 7;
    world->names_port = 1;
    uint64_t begin = world->now_ns;
    world_connect(world);
    CHECK(world->now_ns - begin < 50 * WORLD_MS, "opened after %" PRIu64, world->now_ns - begin);
    memset(world->ports[1].base.address.bytes, 3, 4);
    begin = world->now_ns;
    CHECK(world_wait(world, rp_client_ping(world->client, world_later(world, 5000))) == 0);
    CHECK(world->now_ns - begin < 5 * WORLD_MS, "%" PRIu64 " ns", world->now_ns - begin);
    CHECK(count(world, RP_COUNT_rebinds) == 2);
    world_close(world);
    check_group("8 what was refused is sent again from the new port at once");
}

/* 9. Given a port without a packet to send in. Expect the client to be due at once, until it has
 *    sent what it has to. */
static void situation_full(void) {
    struct world *world = world_open(&config, 9);
    world_connect(world);
    int ticket = rp_client_ping(world->client, world_later(world, 5000));
    world->full = 1;
    for (uint32_t i = 0; i < 3; i++) {
        world_client_turn(world);
        CHECK(rp_client_deadline(world->client) <= world->now_ns, "it forgot what it has to send");
        world->now_ns += 1000;
    }
    world->full = 0;
    uint64_t begin = world->now_ns;
    CHECK(world_wait(world, ticket) == 0 && world->now_ns - begin < WORLD_MS);
    CHECK(rp_client_deadline(world->client) > world->now_ns, "it rests");
    world_close(world);
    check_group("9 a port that is full");
}

/* 10. Given weights on their way here, and a server that begins anew without any. Expect them
 *     to be asked for anew, and the caller to be told that there are none. */
static void situation_weights(void) {
    static uint8_t bytes[20000], back[20000];
    struct rp_client_options options = world_options();
    uint64_t version, size;
    struct world *world = world_open(&config, 10);
    options.receive_budget = 2;
    world_client(world, &options);
    world_connect(world);
    int ticket = rp_client_publish(world->client, bytes, sizeof bytes, &version,
                                   world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 0, back, sizeof back, &size,
                            &version, world_later(world, 5000));
    uint64_t received = world->ports[1].received;
    while (world->ports[1].received < received + 4) {
        world_turn(world);
        world_advance(world, WORLD_MS);
    }
    world_server(world, &config, 78);
    CHECK(world_wait(world, ticket) == -RP_NO_WEIGHTS);
    world_close(world);
    check_group("10 weights on their way from a server that is gone");
}

/* The opening, the first answer to HELLO damaged in one place: one drop of this kind, no session
 * by it, and one by the next. */
static void opened_after(const struct field *field, enum rp_counter counter) {
    struct world *world = open_with(field);
    CHECK(rp_client_state(world->client) == 1 && count(world, counter) == 1, "%s", field->what);
    CHECK(count(world, RP_COUNT_drop_unsolicited) + count(world, RP_COUNT_drop_reserved)
              + count(world, RP_COUNT_drop_size) == 1, "%s", field->what);
    world_close(world);
}

/* 11. Given an answer to HELLO with another's nonce, and one that is of another operation and moves
 *     a session there is none of. Expect each dropped as one that nobody asked for. */
static void situation_unasked(void) {
    const uint32_t message = sizeof(struct rp_outer);
    opened_after(&(struct field){"a nonce", RP_OP_HELLO, message + offsetof(struct rp_message, id),
                                 8, 12345}, RP_COUNT_drop_unsolicited);
    struct field moved[] = {
        {"a status", RP_OP_HELLO, RP_HEADER_BYTES + offsetof(struct rp_answer, status), 2,
         RP_ADDRESS_CHANGED},
        {"an operation", RP_OP_HELLO, message + offsetof(struct rp_message, op), 1,
         RP_OP_PING | RP_ANSWER}};
    struct world *world = world_open(&config, 11);
    struct world_datagram *answer;
    while (world_turn(world),
           (answer = world_find(&world->ports[1], RP_OP_HELLO | RP_ANSWER, 0)) == NULL) {
        world_advance(world, WORLD_MS / 100);
    }
    for (uint32_t i = 0; i < 2; i++) {
        memcpy(answer->data + moved[i].offset, &moved[i].value, moved[i].size);
    }
    world_reseal(answer);
    world_connect(world);
    CHECK(count(world, RP_COUNT_drop_unsolicited) == 1 && count(world, RP_COUNT_drop_size) == 0);
    world_close(world);
    check_group("11 answers that nobody asked for, before there is a session");
}

/* 12. Given a cookie that came too late. Expect another one to be asked for at once. */
static void situation_late_cookie(void) {
    struct world *world = world_open(&config, 14);
    struct world_datagram *answer;
    while (world_turn(world),
           (answer = world_find(&world->ports[1], RP_OP_OPEN | RP_ANSWER, 0)) == NULL) {
        world_advance(world, WORLD_MS / 100);
    }
    ((struct rp_answer *)(void *)(answer->data + RP_HEADER_BYTES))->status = RP_BAD_COOKIE;
    world_reseal(answer);
    world->now_ns = answer->due_ns;
    world_client_turn(world);
    CHECK(world_asked(world, RP_OP_HELLO) == 1, "it waits");
    world_connect(world);
    world_close(world);
    check_group("12 a cookie that came too late");
}

/* Answers one PING under a packet number that is so far ahead, then asks three more. */
static struct world *jumped(uint64_t ahead) {
    struct world *world = world_open(&config, 12);
    struct world_datagram *answer;
    world_connect(world);
    int ticket = rp_client_ping(world->client, world_later(world, 5000));
    while (world_turn(world),
           (answer = world_find(&world->ports[1], RP_OP_PING | RP_ANSWER, 0)) == NULL) {
        world_advance(world, WORLD_MS / 100);
    }
    struct rp_outer outer;
    memcpy(&outer, answer->data, sizeof outer);
    outer.packet += ahead;
    memcpy(answer->data, &outer, sizeof outer);
    world_reseal(answer);
    CHECK(world_wait(world, ticket) == 0);
    return world;
}

/* 13. Given a server whose packet numbers fall back: by as much as only one does that took a region
 *     over, or by less. Expect the former heard at once; the latter dropped as seen before. */
static void situation_jump(void) {
    struct world *world = jumped((1 << 24) + 1000);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(world_wait(world, rp_client_ping(world->client, world_later(world, 500))) == 0);
    }
    CHECK(count(world, RP_COUNT_drop_replayed) == 0);
    world_close(world);
    world = jumped((1 << 24) - 1000);
    CHECK(world_wait(world, rp_client_ping(world->client, world_later(world, 500))) == -RP_TIMEOUT);
    CHECK(count(world, RP_COUNT_drop_replayed) > 0);
    world_close(world);
    check_group("13 packet numbers that fall back");
}

/* 14. Given a client whose first request waits at the server, and weights to publish. Expect them
 *     published meanwhile. */
static void situation_first_waits(void) {
    static uint8_t bytes[3000];
    struct rp_client_options options = world_options();
    uint64_t values[2], version = 0;
    struct rp_landing_column column = {(uint8_t *)values, 8, 0, 8};
    struct rp_landing landing = {.columns = &column, .column_count = 1, .item_bytes = 16};
    struct rp_sample request = {.count = 1};
    struct world *world = world_open(&config, 13);
    world_client(world, &options);
    int waits = rp_client_sample(world->client, ROWS, &request, NULL, &landing,
                                 world_later(world, 60000));
    int ticket = rp_client_publish(world->client, bytes, sizeof bytes, &version,
                                   world_later(world, 1000));
    CHECK(world_wait(world, ticket) == 0 && version == 1);
    CHECK(rp_client_poll(world->client, waits) == RP_PENDING);
    world_close(world);
    check_group("14 weights published while the first request waits");
}

int main(void) {
    defaults();
    situation_fields();
    situation_refused();
    situation_reopen_full(RP_NO_SESSION_FREE);
    situation_reopen_full(RP_ADDRESS_FULL);
    situation_twice();
    situation_budget();
    situation_ended();
    situation_anew();
    situation_close();
    situation_close_full();
    situation_moved();
    situation_full();
    situation_weights();
    situation_unasked();
    situation_late_cookie();
    situation_jump();
    situation_first_waits();
    return check_done("test_client_session");
}
