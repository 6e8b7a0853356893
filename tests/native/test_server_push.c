/* Pushes store each step exactly once, whatever the network does to their datagrams, and
 * all of a datagram or nothing of it. Situations read "Given ... Expect ...". */
#include "pusher.h"

/* 1. Given a whole run, then the same again. Expect keys in a row, the same keys, nothing new. */
static void situation_repeat(void) {
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
static void situation_order(void) {
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
static void situation_pieces(void) {
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
static void situation_creates(void) {
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
static void situation_whole(void) {
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
static void situation_rows(void) {
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

/* 7. Given a kill between two turns, with a run half arrived. Expect repeats answered as before and
 *    the rest taken up. */
static void situation_kill(void) {
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
    check_group("7 kill and attach");
}

/* 8. Given a closed session with an open episode. Expect the last row to close it. */
static void situation_cut(void) {
    struct pusher p;
    fresh(&p);
    send_run(&p, 0, 1, 0, 0, 0, 3, 0);
    CHECK_STATUS(script_ask(&p.script, &p.client, RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
    CHECK(script_counter(&p.script, RP_COUNT_episodes_cut) == 1);
    CHECK(rp_server_sessions(p.script.server) == 0);
    script_close(&p.script);
    check_group("8 a closed session cuts its episodes");
}

enum { CYCLES = 40, OTHERS = 16, HOLES_RING = 16 * (OTHERS + 1) * SCRIPT_WINDOW };

/* Opens and reserves as far ahead as is taken. Returns the keys it used up. */
static uint64_t reserve_ahead(struct pusher *p, uint8_t number) {
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

/* 9. Given a full ring, and 16 sessions that 40 times open, reserve as far ahead as is taken, and
 *     close. Expect few keys for each that comes, an eighth of the ring for all, whoever sends in
 *     order to go on, and who does not as well once the ring has come round. */
static void situation_holes(void) {
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
    check_group("9 holes of closed writers");
}

/* 10. Given 60000 steps in a large window, with a limiter and without, and a PUSH as large as can
 *     be of creates for them, in the order of the steps and in one that jumps, sent again and again
 *     as it is. Expect that each time it makes one item at least, that all are made in a few, and
 *     that none costs more than the three passes may. */
enum { BULK_STEPS = 60000, BULK_MTU = 65504, BULK_RUN = 32 };

/* Sends it; returns how many items there are then. */
static uint32_t send_bulk(struct script *script, struct script_client *client, uint64_t id) {
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

static void bulk(double samples_per_insert, uint64_t stride) {
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

static void situation_bulk(void) {
    bulk(1.0, 1);
    bulk(0.0, 1);
    bulk(1.0, 26543);
    bulk(0.0, 26543);
    check_group("10 creates in bulk");
}

int main(void) {
    situation_repeat();
    situation_order();
    situation_pieces();
    situation_creates();
    situation_whole();
    situation_rows();
    situation_kill();
    situation_cut();
    situation_holes();
    situation_bulk();
    return check_done("test_server_push");
}
