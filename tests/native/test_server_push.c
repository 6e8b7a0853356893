/* Goal: pushes store each step exactly once, whatever the network does to their datagrams, and
 * all of a datagram or nothing of it. Situations read "Given ... Expect ...". */
#include "script.h"
#include "store.h"

#include <math.h>

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script_push push;

struct pusher {
    struct script script;
    struct script_client client;
    uint64_t epoch[2];
};

static void fresh(struct pusher *p)
{
    script_tables(tables);
    config = script_config(tables);
    script_open(&p->script, &config);
    p->client = script_client(1);
    script_connect(&p->script, &p->client);
    for (uint16_t i = 0; i < 2; i++) {
        p->epoch[i] = script_writer(&p->script, &p->client, i, 2).epoch;
    }
}

static struct script_answer send_run(struct pusher *p, uint16_t table, uint64_t id, uint16_t stream,
                                     uint64_t sequence, uint64_t step, uint16_t count,
                                     uint16_t flags)
{
    script_push_begin(&push, p->epoch[table]);
    script_push_run(&push, stream, sequence, step, count, flags);
    return script_push(&p->script, &p->client, table, id, &push);
}

/* 1. Given a whole run, then the same again. Expect keys in a row, the same keys, nothing new. */
static void situation_repeat(void)
{
    struct pusher p;
    fresh(&p);
    struct script_answer answer = send_run(&p, 0, 1, 0, 0, 0, 5, 0);
    struct rp_run_done done = script_done(answer, 0);
    CHECK(done.key == SCRIPT_CAPACITY && done.committed == 5 && done.lost == 0);
    CHECK(script_pushed(answer).done_through == 5 && script_pushed(answer).lost_total == 0);
    uint64_t head = script_info(&p.script, &p.client, 0).head;
    CHECK(head == SCRIPT_CAPACITY + 5);
    answer = send_run(&p, 0, 1, 0, 0, 0, 5, 0);
    done = script_done(answer, 0);
    CHECK(done.key == SCRIPT_CAPACITY && done.committed == 5);
    CHECK(script_info(&p.script, &p.client, 0).head == head);
    CHECK(script_counter(&p.script, RP_COUNT_steps_committed) == 5);
    CHECK(script_counter(&p.script, RP_COUNT_pushes_repeated) == 5);
    CHECK(script_counter(&p.script, RP_COUNT_pushes) == 2);
    script_close(&p.script);
    check_group("1 a run and its repeat");
}

/* 2. Given runs in reverse order, and overlapping ones. Expect commits in order only, each once. */
static void situation_order(void)
{
    struct pusher p;
    fresh(&p);
    struct script_answer answer = send_run(&p, 0, 2, 0, 3, 3, 3, 0);
    CHECK(script_done(answer, 0).committed == 0 && script_done(answer, 0).lost == 0);
    CHECK(script_pushed(answer).done_through == 0);
    answer = send_run(&p, 0, 1, 0, 0, 0, 3, 0);
    CHECK(script_done(answer, 0).committed == 3);
    CHECK(script_pushed(answer).done_through == 6, "%" PRIu64, script_pushed(answer).done_through);
    answer = send_run(&p, 0, 3, 0, 4, 4, 5, 0);
    CHECK(script_done(answer, 0).committed == 5);
    CHECK(script_done(answer, 0).key == SCRIPT_CAPACITY + 4);
    CHECK(script_counter(&p.script, RP_COUNT_steps_committed) == 9);
    CHECK_STATUS(send_run(&p, 0, 4, 0, 8, 500, 3, 0), RP_BAD_STEP); /* its first one is known */
    script_close(&p.script);
    check_group("2 out of order, overlapping");
}

/* 3. Given a step in two pieces, the second first, and one twice. Expect one whole step. */
static void situation_pieces(void)
{
    struct pusher p;
    fresh(&p);
    const uint64_t words[2] = {4711, 12};
    for (int i = 0; i < 3; i++) {
        uint16_t piece = i == 2 ? 0 : 1;
        struct rp_run run = {.count = 1, .piece = piece, .piece_count = 2, .size = 8};
        script_push_begin(&push, p.epoch[1]);
        script_push_bytes(&push, run, &words[piece]);
        script_push_create(&push, 0, 0, 1.0);
        struct script_answer answer = script_push(&p.script, &p.client, 1, 1 + (uint64_t)i, &push);
        CHECK(script_done(answer, 0).committed == (i == 2));
        CHECK(script_created(answer, 0) == (i == 2 ? RP_OK : RP_NOT_YET));
    }
    CHECK(script_counter(&p.script, RP_COUNT_steps_committed) == 1);
    struct rp_batch_item item = {.key = SCRIPT_CAPACITY};
    uint64_t seen[2];
    CHECK(rp_table_gather(rp_server_table(p.script.server, 1), 0, &item, 0, 16, (uint8_t *)seen)
          == 1);
    CHECK(seen[0] == 4711 && seen[1] == 12);
    script_close(&p.script);
    check_group("3 pieces");
}

/* 4. Given creates of each kind. Expect OK, EXISTS, NOT_YET, CLOSING_ROW, UNKNOWN_STEP. */
static void situation_creates(void)
{
    struct pusher p;
    fresh(&p);
    script_push_begin(&push, p.epoch[0]);
    script_push_run(&push, 0, 0, 0, 5, 0);
    script_push_create(&push, 0, 0, 2.0);
    script_push_create(&push, 0, 0, 3.0);
    script_push_create(&push, 0, 3, 1.0);
    script_push_create(&push, 0, 77, 1.0);
    struct script_answer answer = script_push(&p.script, &p.client, 0, 1, &push);
    CHECK(script_created(answer, 0) == RP_OK);
    CHECK(script_created(answer, 1) == RP_EXISTS);
    CHECK(script_created(answer, 2) == RP_NOT_YET);
    CHECK(script_created(answer, 3) == RP_UNKNOWN_STEP);
    script_push_begin(&push, p.epoch[0]);
    script_push_run(&push, 0, 5, 5, 1, RP_RUN_END);
    script_push_create(&push, 0, 3, 1.0);
    script_push_create(&push, 0, 4, 0.0)->flags = RP_CREATE_MAXIMUM;
    script_push_create(&push, 0, 5, 1.0);
    answer = script_push(&p.script, &p.client, 0, 2, &push);
    CHECK(script_created(answer, 0) == RP_OK && script_created(answer, 1) == RP_OK);
    CHECK(script_created(answer, 2) == RP_CLOSING_ROW);
    struct rp_table_info info = script_info(&p.script, &p.client, 0);
    CHECK(info.count == 3 && info.inserted == 3);
    CHECK(info.total == (2 + 1 + 2) * RP_POWER_ONE, "the maximum is that of priority 2");
    for (uint64_t i = 0; i < SCRIPT_CAPACITY; i += 4) {
        send_run(&p, 0, 3, 1, 6 + i, i, 4, 0);
    }
    script_push_begin(&push, p.epoch[0]);
    script_push_create(&push, 0, 2, 1.0);
    script_push_create(&push, 0, 3, 1.0);
    answer = script_push(&p.script, &p.client, 0, 4, &push);
    CHECK(script_created(answer, 0) == RP_OVERWRITTEN || script_created(answer,
                                                                        0) == RP_UNKNOWN_STEP);
    CHECK(script_info(&p.script, &p.client, 0).count == 0);
    script_close(&p.script);
    check_group("4 creates of each status");
}

/* 5. Given one bad thing in a datagram of good ones. Expect its status and nothing applied. */
static void situation_whole(void)
{
    struct pusher p;
    fresh(&p);
    static const struct {
        int status;
        struct rp_run run;
        struct rp_create create;
        int creates;
    } bad[] = {
        {RP_BAD_STREAM, {.stream = 4, .count = 1, .piece_count = 1, .size = 16}, {0}, 0},
        {RP_BAD_SEQUENCE, {.sequence = 16, .count = 1, .piece_count = 1, .size = 16}, {0}, 0},
        {RP_BAD_SEQUENCE, {.sequence = 1ull << 63, .count = 1, .piece_count = 1, .size = 16}, {0},
         0},
        {RP_BAD_PIECE, {.sequence = 2, .step = 2, .count = 1, .piece = 5, .piece_count = 5,
                        .size = 8},
         {0}, 0},
        {RP_BAD_RESERVED, {.sequence = 2, .step = 2, .count = 1, .piece_count = 1, .size = 16,
                           .reserved = 1},
         {0}, 0},
        {RP_BAD_PRIORITY, {.sequence = 2, .step = 2, .count = 1, .piece_count = 1, .size = 16},
         {.priority = -1.0}, 1},
        {RP_BAD_PRIORITY, {.sequence = 2, .step = 2, .count = 1, .piece_count = 1, .size = 16},
         {.priority = INFINITY}, 1},
        {RP_BAD_STREAM, {.sequence = 2, .step = 2, .count = 1, .piece_count = 1, .size = 16},
         {.stream = 9}, 1},
        {RP_BAD_ARGUMENT, {.sequence = 2, .step = 2, .count = 1, .piece_count = 1, .size = 16},
         {.flags = 2}, 1},
        {RP_BAD_RESERVED, {.sequence = 2, .step = 2, .count = 1, .piece_count = 1, .size = 16},
         {.reserved = 2}, 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t bytes[2] = {1, 2};
        script_push_begin(&push, p.epoch[0]);
        script_push_run(&push, 0, 0, 0, 2, 0);
        script_push_bytes(&push, bad[i].run, bytes);
        if (bad[i].creates) {
            *script_push_create(&push, 0, 0, 0) = bad[i].create;
        }
        struct script_answer answer = script_push(&p.script, &p.client, 0, 1, &push);
        CHECK(answer.status == bad[i].status, "case %zu: %s", i, rp_status_name(answer.status));
        CHECK(answer.size == 0);
        CHECK(script_info(&p.script, &p.client, 0).head == SCRIPT_CAPACITY, "case %zu", i);
    }
    script_push_begin(&push, p.epoch[0] + 1);
    script_push_run(&push, 0, 0, 0, 2, 0);
    CHECK_STATUS(script_push(&p.script, &p.client, 0, 1, &push), RP_STALE_EPOCH);
    struct script_client stranger = script_client(3);
    script_connect(&p.script, &stranger);
    script_push_begin(&push, p.epoch[0]);
    script_push_run(&push, 0, 0, 0, 2, 0);
    CHECK_STATUS(script_push(&p.script, &stranger, 0, 1, &push), RP_NOT_A_WRITER);
    script_close(&p.script);
    check_group("5 all of a datagram or nothing");
}

/* 6. Given plain rows that are items at once. Expect items with their priorities, and a refusal
 * in a
 *    table whose windows reach further. */
static void situation_rows(void)
{
    struct pusher p;
    fresh(&p);
    struct script_answer answer = send_run(&p, 1, 1, 0, 0, 0, 5, RP_RUN_ITEM | RP_RUN_PRIORITY);
    CHECK(script_done(answer, 0).committed == 5);
    struct rp_table_info info = script_info(&p.script, &p.client, 1);
    CHECK(info.count == 5 && info.total == 15 * RP_POWER_ONE);
    answer = send_run(&p, 1, 2, 0, 5, 5, 2, RP_RUN_ITEM);
    CHECK(script_info(&p.script, &p.client, 1).total == 25 * RP_POWER_ONE);
    answer = send_run(&p, 0, 1, 0, 0, 0, 5, RP_RUN_ITEM);
    CHECK_STATUS(answer, RP_BAD_ARGUMENT);
    script_close(&p.script);
    check_group("6 rows that are items");
}

/* 7. Given a limiter that admits twenty items beyond what was drawn. Expect BLOCKED with the need,
 *    noted once, RETRY to the noted id when a draw makes room, and NEVER_FITS beyond all room. */
static void situation_blocked(void)
{
    struct pusher p;
    fresh(&p);
    for (uint64_t i = 0; i < 20; i += 10) {
        script_done(send_run(&p, 1, 1 + i, 0, i, i, 10, RP_RUN_ITEM), 0);
    }
    struct script_answer answer = send_run(&p, 1, 31, 0, 20, 20, 3, RP_RUN_ITEM);
    CHECK_STATUS(answer, RP_BLOCKED);
    struct rp_blocked blocked = SCRIPT_READ(answer, struct rp_blocked);
    CHECK(blocked.noted == 1 && blocked.by_size == 0 && blocked.need == 3);
    CHECK(script_info(&p.script, &p.client, 1).head == SCRIPT_CAPACITY + 20);
    answer = send_run(&p, 1, 32, 0, 20, 20, 2, RP_RUN_ITEM);
    CHECK(SCRIPT_READ(answer, struct rp_blocked).noted == 0);
    answer = send_run(&p, 1, 31, 0, 20, 20, 3, RP_RUN_ITEM);
    CHECK(SCRIPT_READ(answer, struct rp_blocked).noted == 1);
    answer = send_run(&p, 1, 1, 0, 0, 0, 10, RP_RUN_ITEM);
    CHECK(script_done(answer, 0).committed == 10, "a repeat adds no items");

    struct rp_sample sample = script_sample(2);
    answer = script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 1, &sample, sizeof sample);
    CHECK_STATUS(answer, RP_OK);
    CHECK(script_answer(&p.script, p.script.port.out_count - 1).view.message->op
          == (RP_OP_SAMPLE | RP_ANSWER), "two draws do not make room for three");
    sample.count = 1;
    answer = script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 2, &sample, sizeof sample);
    CHECK_STATUS(answer, RP_OK);
    answer = script_answer(&p.script, p.script.port.out_count - 1);
    CHECK(answer.view.message->op == (RP_OP_PUSH | RP_ANSWER) && answer.view.message->id == 31);
    CHECK_STATUS(answer, RP_RETRY);
    CHECK(answer.size == 0 && script_counter(&p.script, RP_COUNT_releases) == 1);
    answer = send_run(&p, 1, 31, 0, 20, 20, 3, RP_RUN_ITEM);
    CHECK(script_done(answer, 0).committed == 3);
    CHECK(script_counter(&p.script, RP_COUNT_pushes_blocked) == 3);
    script_push_begin(&push, p.epoch[1]);
    script_push_run(&push, 0, 23, 23, 15, RP_RUN_ITEM);
    script_push_run(&push, 1, 38, 0, 1, RP_RUN_ITEM);
    answer = script_push(&p.script, &p.client, 1, 40, &push);
    CHECK_STATUS(answer, RP_BLOCKED);
    script_close(&p.script);
    check_group("7 blocked and released");
}

/* 7a. Given steps that are no items yet, and room for twenty items. Expect creates alone to be
 *     counted: five let in, 16 more held back, 15 let in. */
static void situation_creates_blocked(void)
{
    struct pusher p;
    script_tables(tables);
    tables[1].plan_count = 2;
    config = script_config(tables);
    script_open(&p.script, &config);
    p.client = script_client(1);
    script_connect(&p.script, &p.client);
    p.epoch[1] = script_writer(&p.script, &p.client, 1, 2).epoch;
    for (uint64_t step = 0; step < 30; step += 10) {
        CHECK_STATUS(send_run(&p, 1, 1 + step, 0, step, step, 10, 0), RP_OK);
    }
    static const uint64_t creates[3] = {5, 16, 15};
    for (uint64_t time = 0; time < 3; time++) {
        script_push_begin(&push, p.epoch[1]);
        for (uint64_t i = 0; i < creates[time]; i++) {
            script_push_create(&push, 0, (time ? 7 : 2) + i, 1.0);
        }
        CHECK_STATUS(script_push(&p.script, &p.client, 1, time ? 41 : 40, &push),
                     time == 1 ? RP_BLOCKED : RP_OK);
    }
    CHECK(script_info(&p.script, &p.client, 1).inserted == 20);
    script_close(&p.script);
    check_group("7a creates alone are held back");
}

/* 7b. Given a push that waits, and one that was told RETRY, when the server closes. Expect CLOSED
 *     for both, unless the region stays for another server. */
static void situation_farewell(void)
{
    for (int promised = 0; promised < 2; promised++) {
        struct pusher p;
        fresh(&p);
        script_done(send_run(&p, 1, 1, 0, 0, 0, 10, RP_RUN_ITEM), 0);
        script_done(send_run(&p, 1, 2, 0, 10, 10, 10, RP_RUN_ITEM), 0);
        CHECK_STATUS(send_run(&p, 1, 31, 0, 20, 20, 3, RP_RUN_ITEM), RP_BLOCKED);
        struct rp_sample sample = script_sample(3);
        if (promised) {
            script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 1, &sample, sizeof sample);
            CHECK(script_counter(&p.script, RP_COUNT_releases) == 1);
        }
        struct rp_port *port = (struct rp_port *)(void *)&p.script.port;
        script_turn(&p.script);
        rp_server_farewell(p.script.server, port, p.script.now_ns, 1);
        CHECK(p.script.port.out_count == 0, "who takes the region over goes on with it");
        rp_server_farewell(p.script.server, port, p.script.now_ns, 0);
        CHECK(p.script.port.out_count == 1);
        struct script_answer answer = script_answer(&p.script, 0);
        CHECK(answer.view.message->op == (RP_OP_PUSH | RP_ANSWER)
              && answer.view.message->id == 31);
        CHECK_STATUS(answer, RP_CLOSED);
        script_close(&p.script);
    }
    check_group("7b who waits to push is told that the server closes");
}

/* 7c. Given a push that waits, one that was told RETRY, and a RESET. Expect STALE_EPOCH for each,
 *     and no room kept for it in the new epoch. */
static void situation_stale_waits(void)
{
    for (int promised = 0; promised < 2; promised++) {
        struct pusher p;
        fresh(&p);
        script_done(send_run(&p, 1, 1, 0, 0, 0, 10, RP_RUN_ITEM), 0);
        script_done(send_run(&p, 1, 2, 0, 10, 10, 10, RP_RUN_ITEM), 0);
        CHECK_STATUS(send_run(&p, 1, 31, 0, 20, 20, 6, RP_RUN_ITEM), RP_BLOCKED);
        struct rp_sample sample = script_sample(6);
        if (promised) {
            script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 1, &sample, sizeof sample);
            CHECK(script_counter(&p.script, RP_COUNT_releases) == 1);
        }
        struct rp_reset reset = {.epoch = p.epoch[1]};
        struct script_answer answer =
            script_ask(&p.script, &p.client, RP_OP_RESET, 1, 32, &reset, sizeof reset);
        CHECK_STATUS(answer, RP_OK);
        uint64_t epoch = SCRIPT_READ(answer, struct rp_reset_done).epoch;
        CHECK_STATUS(send_run(&p, 1, 31, 0, 20, 20, 6, RP_RUN_ITEM), RP_STALE_EPOCH);
        p.epoch[1] = epoch;
        CHECK_STATUS(send_run(&p, 1, 33, 0, 0, 0, 10, RP_RUN_ITEM), RP_OK);
        CHECK_STATUS(send_run(&p, 1, 34, 0, 10, 10, 10, RP_RUN_ITEM), RP_OK);
        script_close(&p.script);
    }
    check_group("7c who is refused for good leaves the queue");
}

/* 7d. Given steps that wait for a PUSH that was lost, a limiter that has room for one of the two
 *     only, and a SAMPLE that waits for both. Expect the PUSH that is waited for to be let in, once
 *     the SAMPLE stands in the queue, and the SAMPLE to be answered. */
static void situation_missed(void)
{
    struct pusher p;
    script_tables(tables);
    tables[1].capacity = 2 * SCRIPT_CAPACITY;
    tables[1].window = 2 * SCRIPT_WINDOW;
    config = script_config(tables);
    script_open(&p.script, &config);
    p.client = script_client(1);
    script_connect(&p.script, &p.client);
    p.epoch[1] = script_writer(&p.script, &p.client, 1, 2).epoch;
    CHECK_STATUS(send_run(&p, 1, 1, 0, 0, 0, 10, RP_RUN_ITEM), RP_OK);
    struct rp_sample sample = script_sample(5);
    CHECK_STATUS(script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 2, &sample, sizeof sample),
                 RP_OK);
    CHECK_STATUS(send_run(&p, 1, 4, 0, 20, 20, 10, RP_RUN_ITEM), RP_OK);
    CHECK_STATUS(send_run(&p, 1, 3, 0, 10, 10, 10, RP_RUN_ITEM), RP_BLOCKED);
    sample.count = 10;
    CHECK_STATUS(script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 5, &sample, sizeof sample),
                 RP_BLOCKED);
    CHECK_STATUS(send_run(&p, 1, 3, 0, 10, 10, 10, RP_RUN_ITEM), RP_OK);
    CHECK(script_info(&p.script, &p.client, 1).inserted == 30);
    CHECK(script_counter(&p.script, RP_COUNT_releases) == 1, "the sample was answered");
    script_close(&p.script);
    check_group("7d steps that wait hold nobody up who is waited for");
}

/* 8. Given a kill between two turns, with a run half arrived. Expect repeats answered as before and
 *    the rest taken up. */
static void situation_kill(void)
{
    struct pusher p;
    fresh(&p);
    send_run(&p, 0, 1, 0, 0, 0, 3, 0);
    send_run(&p, 0, 3, 0, 5, 5, 2, 0);
    script_kill(&p.script);
    struct script_answer answer = send_run(&p, 0, 1, 0, 0, 0, 3, 0);
    CHECK(script_done(answer, 0).committed == 3 && script_done(answer, 0).key == SCRIPT_CAPACITY);
    answer = send_run(&p, 0, 2, 0, 3, 3, 2, 0);
    CHECK(script_done(answer, 0).committed == 2 && script_pushed(answer).done_through == 7);
    script_kill(&p.script);
    answer = send_run(&p, 0, 3, 0, 5, 5, 2, 0);
    CHECK(script_done(answer, 0).committed == 2);
    CHECK(script_info(&p.script, &p.client, 0).head == SCRIPT_CAPACITY + 7);
    script_close(&p.script);
    check_group("8 kill and attach");
}

/* 9. Given a closed session with an open episode. Expect the last row to close it. */
static void situation_cut(void)
{
    struct pusher p;
    fresh(&p);
    send_run(&p, 0, 1, 0, 0, 0, 3, 0);
    CHECK_STATUS(script_ask(&p.script, &p.client, RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
    CHECK(script_counter(&p.script, RP_COUNT_episodes_cut) == 1);
    CHECK(rp_server_sessions(p.script.server) == 0);
    script_close(&p.script);
    check_group("9 a closed session cuts its episodes");
}

enum { CYCLES = 40, OTHERS = 16, HOLES_RING = 16 * (OTHERS + 1) * SCRIPT_WINDOW };

/* Opens and reserves as far ahead as is taken. Returns the keys it used up. */
static uint64_t reserve_ahead(struct pusher *p, uint8_t number)
{
    static struct script_push far;
    struct script_client other = script_client(number);
    uint64_t head = script_info(&p->script, &p->client, 1).head;
    other.nonce += head << 32; /* another one each time: keys rise */
    script_connect(&p->script, &other);
    script_writer(&p->script, &other, 1, 1);
    for (uint64_t sequence = SCRIPT_WINDOW; sequence-- > 0;) {
        script_push_begin(&far, p->epoch[1]);
        script_push_run(&far, 0, sequence, 0, 1, RP_RUN_ITEM);
        script_put(&p->script, &other, RP_OP_PUSH, 1, 1 + sequence, far.body, far.size);
        CHECK(script_turn(&p->script) == (script_info(&p->script, &p->client, 1).head > head));
    }
    CHECK_STATUS(script_ask(&p->script, &other, RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
    return script_info(&p->script, &p->client, 1).head - head;
}

/* 10. Given a full ring, and 16 sessions that 40 times open, reserve as far ahead as is taken, and
 *     close. Expect few keys for each that comes, an eighth of the ring for all, whoever sends in
 *     order to go on, and who does not as well once the ring has come round. */
static void situation_holes(void)
{
    struct pusher p;
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    tables[1].writers_max = OTHERS + 1;
    tables[1].capacity = HOLES_RING;
    config = script_config(tables);
    config.sessions_max = OTHERS + 1;
    script_open(&p.script, &config);
    p.client = script_client(1);
    script_connect(&p.script, &p.client);
    p.epoch[1] = script_writer(&p.script, &p.client, 1, 2).epoch;
    uint64_t step = 0, used = 0, taken = 0;
    p.script.unchecked = 1; /* once in the middle and once at the end instead */
    for (; step < HOLES_RING; step += 8) {
        send_run(&p, 1, 1 + step, 0, step, step, 8, RP_RUN_ITEM);
    }
    for (int i = 0; i < CYCLES * OTHERS; i++) {
        uint64_t keys = reserve_ahead(&p, (uint8_t)(2 + i % OTHERS));
        CHECK(keys >= 1 && keys <= SCRIPT_WINDOW / 16 + 5 + 1, "%" PRIu64 " keys", keys);
        used += keys;
        taken += keys > 1;
    }
    rp_server_check(p.script.server);
    uint32_t left = script_info(&p.script, &p.client, 1).count;
    CHECK(HOLES_RING - left <= HOLES_RING / 8, "%u items left", left);
    CHECK(used - CYCLES * OTHERS == HOLES_RING - left && taken > HOLES_RING / 8 / 6);
    CHECK(script_counter(&p.script, RP_COUNT_drop_far) > 0);
    script_push_begin(&push, p.epoch[1]);
    script_push_run(&push, 0, step + 1, step + 1, 1, RP_RUN_ITEM);
    script_put(&p.script, &p.client, RP_OP_PUSH, 1, 9, push.body, push.size);
    CHECK(script_turn(&p.script) == 0, "one that leaves a hole");
    for (uint64_t end = step + HOLES_RING; step < end; step += 8) {
        CHECK_STATUS(send_run(&p, 1, 1 + step, 0, step, step, 8, RP_RUN_ITEM), RP_OK);
    }
    CHECK_STATUS(send_run(&p, 1, 1 + step, 0, step + 1, step + 1, 1, RP_RUN_ITEM), RP_OK);
    CHECK_STATUS(send_run(&p, 1, 2 + step, 0, step, step, 1, RP_RUN_ITEM), RP_OK);
    CHECK(script_info(&p.script, &p.client, 1).count == HOLES_RING);
    rp_server_check(p.script.server);
    script_close(&p.script);
    check_group("10 holes of closed writers");
}

/* 11. Given 60000 steps in a large window, with a limiter and without, and a PUSH as large as can
 *     be of creates for them, in the order of the steps and in one that jumps, sent again and again
 *     as it is. Expect that each time it makes one item at least, that all are made in a few, and
 *     that none costs more than the three passes may. */
enum { BULK_STEPS = 60000, BULK_MTU = 65504, BULK_RUN = 32 };

/* Sends it; returns how many items there are then. */
static uint32_t send_bulk(struct script *script, struct script_client *client, uint64_t id)
{
    struct rp_table_private *p = rp_server_table(script->server, 1)->private;
    uint64_t before = p->work_total;
    struct script_answer answer = script_push(script, client, 1, id, &push);
    uint64_t spent = p->work_total - before;
    CHECK_STATUS(answer, RP_OK);
    CHECK(spent < 3 * (RP_WORK_MAX + RP_WALK_MAX), "%" PRIu64 " units", spent);
    for (uint32_t i = 0; i < script_push_head(&push)->create_count; i++) {
        int status = script_created(answer, i);
        CHECK(status == RP_OK || status == RP_EXISTS || status == RP_NOT_YET);
    }
    rp_server_check(script->server);
    return script_info(script, client, 1).count;
}

static void bulk(double samples_per_insert, uint64_t stride)
{
    struct script script;
    script_tables(tables);
    tables[1].capacity = 1 << 17;
    tables[1].window = 1024;
    tables[1].plan_count = 2; /* windows: an item is made by a create alone */
    tables[1].samples_per_insert = samples_per_insert;
    tables[1].error_max = samples_per_insert > 0 ? 1e6 : 0;
    config = script_config(tables);
    config.mtu = BULK_MTU;
    script_open(&script, &config);
    struct script_client client = script_client(1);
    client.mtu = BULK_MTU;
    script_connect(&script, &client);
    uint64_t epoch = script_writer(&script, &client, 1, 1).epoch, id = 1;
    script.unchecked = 1; /* all of a table this large at every PUSH takes seconds */
    for (uint64_t step = 0; step < BULK_STEPS; step += BULK_RUN) {
        script_push_begin(&push, epoch);
        script_push_run(&push, 0, step, step, BULK_RUN, 0);
        CHECK_STATUS(script_push(&script, &client, 1, ++id, &push), RP_OK);
    }
    script.unchecked = 0;
    script_push_begin(&push, epoch);
    uint32_t creates = (BULK_MTU - RP_HEADER_BYTES - sizeof(struct rp_push)) / 24;
    for (uint64_t i = 0; i < creates; i++) {
        script_push_create(&push, 0, 1 + i * stride % (BULK_STEPS - 8), 1.0);
    }
    uint32_t items = 0, pushes = 0;
    while (items < creates) {
        uint32_t before = items;
        items = send_bulk(&script, &client, ++id);
        pushes++;
        CHECK(items > before && pushes < 16, "%u of %u after %u", items, creates, pushes);
    }
    printf("  %u creates in %u PUSHes\n", creates, pushes);
    script_close(&script);
}

static void situation_bulk(void)
{
    bulk(1.0, 1);
    bulk(0.0, 1);
    bulk(1.0, 26543);
    bulk(0.0, 26543);
    check_group("11 creates in bulk");
}

int main(void)
{
    situation_repeat();
    situation_order();
    situation_pieces();
    situation_creates();
    situation_whole();
    situation_rows();
    situation_blocked();
    situation_creates_blocked();
    situation_farewell();
    situation_stale_waits();
    situation_missed();
    situation_kill();
    situation_cut();
    situation_holes();
    situation_bulk();
    return check_done("test_server_push");
}
