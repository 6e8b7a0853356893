/* A first push and a first sample that hold each other up go on together, whatever else comes
 * in between, and the error stays within its bounds. Situations read "Given ... Expect ...". */
#include "limited.h"

enum { WIDTH = 20 }; /* the bounds lie so far apart */

struct pair { /* 10 items are there; a push of 15 waits for draws, a sample of 20 for items */
    struct pusher p;
    struct script_client learner;
};

static const uint64_t PUSH_ID = 2, SAMPLE_ID = 7;

static unsigned ask_sample(struct pair *pair, uint64_t id, uint32_t count, uint64_t epoch) {
    struct rp_sample request = script_sample(count);
    request.epoch = epoch;
    return script_ask(&pair->p.script, &pair->learner, RP_OP_SAMPLE, 1, id, &request,
                      sizeof request).status;
}

static unsigned push_waiting(struct pair *pair) {
    return run_now(&pair->p, PUSH_ID, 0, 10, 10, 15);
}

static void ten_items(struct pair *pair) {
    limited(&pair->p, 1, 0, WIDTH);
    pair->learner = script_client(2);
    script_connect(&pair->p.script, &pair->learner);
    CHECK(run_now(&pair->p, 1, 0, 0, 0, 10) == RP_OK);
}

static void sample_waits(struct pair *pair) {
    ten_items(pair);
    CHECK(ask_sample(pair, SAMPLE_ID, WIDTH, pair->p.epoch[1]) == RP_BLOCKED);
}

static int64_t error_now(struct pair *pair) {
    struct rp_table_info now = script_info(&pair->p.script, &pair->p.client, 1);
    return (int64_t)now.inserted - (int64_t)now.sampled;
}

/* Was such a push answered so among what was sent last? */
static int stored(const struct pair *pair, const struct script_client *client, uint64_t id,
                  uint32_t count) {
    for (uint32_t i = 0; i < pair->p.script.port.out_count; i++) {
        struct script_answer answer = script_answer(&pair->p.script, i);
        if (answer.view.outer->connection == client->connection
            && answer.view.message->op == (RP_OP_PUSH | RP_ANSWER)
            && answer.view.message->id == id && answer.status == RP_OK) {
            return script_done(answer, 0).committed == count;
        }
    }
    return 0;
}

static uint64_t releases(const struct pair *pair) {
    return script_counter(&pair->p.script, RP_COUNT_releases);
}

static void put_run(struct pair *pair, uint64_t id, uint64_t step, uint16_t count) {
    script_push_begin(&push, pair->p.epoch[1]);
    script_push_run(&push, 0, step, step, count, RP_RUN_ITEM);
    script_put(&pair->p.script, &pair->p.client, RP_OP_PUSH, 1, id, push.body, push.size);
}

static void put_push(struct pair *pair) {
    put_run(pair, PUSH_ID, 10, 15);
}

static void put_sample(struct pair *pair, struct script_client *client, uint64_t id,
                       uint32_t count) {
    struct rp_sample request = script_sample(count);
    script_put(&pair->p.script, client, RP_OP_SAMPLE, 1, id, &request, sizeof request);
}

static void put_cancel(struct pair *pair) {
    struct rp_cancel cancel = {.request = SAMPLE_ID, .op = RP_OP_SAMPLE};
    script_put(&pair->p.script, &pair->learner, RP_OP_CANCEL, 1, 99, &cancel, sizeof cancel);
}

static unsigned push_other(struct pair *pair, struct script_client *other, uint64_t id,
                           uint64_t step, uint16_t count) {
    script_push_begin(&push, pair->p.epoch[1]);
    script_push_run(&push, 0, step, step, count, RP_RUN_ITEM);
    return script_push(&pair->p.script, other, 1, id, &push).status;
}

static void open_other(struct pair *pair, struct script_client *other, uint8_t port) {
    *other = script_client(port);
    script_connect(&pair->p.script, other);
    script_writer(&pair->p.script, other, 1, 1);
}

/* 1. Given a first push that needs draws and a first sample that needs items, in either order: both
 *    would wait for ever. Expect the push stored and the sample drawn in the turn in which the
 *    second of them comes, with the error within its bounds after it; then who stood behind. */
static void situation_stuck(void) {
    for (int pushed_first = 0; pushed_first < 2; pushed_first++) {
        struct pair pair;
        struct script_client other;
        if (pushed_first) {
            ten_items(&pair);
            open_other(&pair, &other, 3);
            CHECK(push_waiting(&pair) == RP_BLOCKED);
            CHECK(push_other(&pair, &other, 9, 0, 1) == RP_BLOCKED, "ten are there, behind");
            CHECK(releases(&pair) == 0);
            put_sample(&pair, &pair.learner, SAMPLE_ID, WIDTH);
            put_sample(&pair, &other, 3, 6); /* for which there is enough, then */
            script_turn(&pair.p.script);
            CHECK(stored(&pair, &pair.p.client, PUSH_ID, 15) && stored(&pair, &other, 9, 1));
            CHECK(releases(&pair) == 4 && error_now(&pair) == 0);
        } else {
            sample_waits(&pair);
            CHECK(push_waiting(&pair) == RP_OK && error_now(&pair) == 5);
            CHECK(releases(&pair) == 1, "the sample");
        }
        CHECK(script_counter(&pair.p.script, RP_COUNT_samples) == 1 + (uint64_t)pushed_first);
        script_close(&pair.p.script);
    }
    check_group("1 two firsts that wait for each other go on together");
}

/* 2. Given the push and, in one burst, what would take its sample away: the sample withdrawn, a
 *    RESET. Expect the sample drawn before it where the push came first, and the push held back
 *    where it came last. */
static void situation_withdrawn(void) {
    for (int pushed_first = 0; pushed_first < 2; pushed_first++) {
        struct pair pair;
        sample_waits(&pair);
        if (pushed_first) {
            put_push(&pair);
        }
        put_cancel(&pair);
        if (!pushed_first) {
            put_push(&pair);
        }
        script_turn(&pair.p.script);
        CHECK(error_now(&pair) == (pushed_first ? 5 : 10), "%" PRId64, error_now(&pair));
        CHECK(script_counter(&pair.p.script, RP_COUNT_samples) == (uint64_t)pushed_first);
        CHECK(run_now(&pair.p, 3, 1, 25, 0, 16) == RP_BLOCKED);
        script_close(&pair.p.script);
    }
    struct pair pair;
    sample_waits(&pair);
    put_push(&pair);
    struct rp_reset reset = {.epoch = pair.p.epoch[1]};
    script_put(&pair.p.script, &pair.p.client, RP_OP_RESET, 1, 98, &reset, sizeof reset);
    script_turn(&pair.p.script);
    CHECK(script_counter(&pair.p.script, RP_COUNT_samples) == 1);
    CHECK(error_now(&pair) == 0 && run_now(&pair.p, 4, 0, 0, 0, 1) == RP_STALE_EPOCH);
    script_close(&pair.p.script);
    check_group("2 a sample that is withdrawn in the same burst");
}

/* 3. Given a sample whose learner is silent for longer than a place is kept, and no turn since that
 *    found it so. Expect the push held back: nobody would draw what it brings. */
static void situation_lapsed(void) {
    struct pair pair;
    sample_waits(&pair);
    for (uint32_t i = 0; i < 6; i++) { /* no longer a time than a server that stood still */
        script_later(&pair.p.script, 499);
        script_put(&pair.p.script, &pair.p.client, RP_OP_PING, 0, 1000 + i, NULL, 0);
        script_turn(&pair.p.script);
    }
    CHECK(pair.p.script.server->waiting[RP_WAIT_SAMPLE][1].count == 1, "not found out yet");
    script_later(&pair.p.script, 30);
    CHECK(push_waiting(&pair) == RP_BLOCKED && error_now(&pair) == 10);
    CHECK(script_counter(&pair.p.script, RP_COUNT_waits_lapsed) >= 1);
    script_close(&pair.p.script);
    check_group("3 a sample that has lapsed");
}

/* 4. Given a push that waits, and in one burst a sample that it would be let in for and the
 *    sample's withdrawal. Expect it to wait on, in its place, until draws have made room. */
static void situation_void(void) {
    struct pair pair;
    ten_items(&pair);
    CHECK(push_waiting(&pair) == RP_BLOCKED);
    put_sample(&pair, &pair.learner, SAMPLE_ID, WIDTH);
    put_cancel(&pair);
    script_turn(&pair.p.script);
    rp_wait_note(pair.p.script.server, RP_WAIT_PUSH, 1, 0)->items = WIDTH; /* of another table */
    for (uint32_t drawn = 1; drawn <= 5; drawn++) { /* 10 + 15 - 5 = 20 */
        CHECK(releases(&pair) == 0 && error_now(&pair) == 11 - drawn);
        CHECK(ask_sample(&pair, 20 + drawn, 1, 0) == RP_OK);
    }
    CHECK(releases(&pair) == 1 && stored(&pair, &pair.p.client, PUSH_ID, 15));
    CHECK(error_now(&pair) == WIDTH);
    script_close(&pair.p.script);
    check_group("4 a sample that came and went");
}

/* 5. Given two pushes, each too large until something is drawn, and one sample, which comes before
 *    them or behind. Expect the first of them stored, the other held back. */
static void situation_two_pushes(void) {
    for (int sampled_first = 0; sampled_first < 2; sampled_first++) {
        struct pair pair;
        struct script_client other;
        ten_items(&pair);
        open_other(&pair, &other, 3);
        CHECK(!sampled_first || ask_sample(&pair, SAMPLE_ID, WIDTH, 0) == RP_BLOCKED);
        CHECK(push_waiting(&pair) == (sampled_first ? RP_OK : RP_BLOCKED));
        CHECK(push_other(&pair, &other, 5, 0, 16) == RP_BLOCKED);
        CHECK(sampled_first || ask_sample(&pair, SAMPLE_ID, WIDTH, 0) == RP_BLOCKED);
        CHECK(error_now(&pair) == 5, "%" PRId64, error_now(&pair));
        CHECK(script_counter(&pair.p.script, RP_COUNT_samples) == 1);
        script_close(&pair.p.script);
    }
    check_group("5 one sample, one push");
}

/* 6. Given a sample that waits under an epoch that is no more, and was not told for want of room.
 *    Expect nothing let in for its sake. */
static void situation_stale(void) {
    struct pair pair;
    sample_waits(&pair);
    struct rp_reset reset = {.epoch = pair.p.epoch[1]};
    pair.p.script.port.room_left = 1;
    struct script_answer answer =
        script_ask(&pair.p.script, &pair.p.client, RP_OP_RESET, 1, 98, &reset, sizeof reset);
    CHECK_STATUS(answer, RP_OK);
    pair.p.epoch[1] = SCRIPT_READ(answer, struct rp_reset_done).epoch;
    pair.p.script.port.room_left = UINT32_MAX;
    put_run(&pair, 50, 0, 10);
    put_run(&pair, PUSH_ID, 10, 15);
    script_turn(&pair.p.script);
    CHECK(error_now(&pair) == 10, "%" PRId64, error_now(&pair));
    script_close(&pair.p.script);
    check_group("6 a sample of another epoch");
}

/* 7. Given no room to send anything but the answer to the push. Expect its sample drawn all the
 *    same, and sent when it is asked for. Given a push that waits, and room for BLOCKED to the
 *    sample alone. Expect both to go on in the next turn, which is said to have work. Given room
 *    for both answers, and not for the batch. Expect it drawn. */
static void situation_no_room(void) {
    struct pair pair;
    sample_waits(&pair);
    pair.p.script.port.room_left = 1;
    CHECK(push_waiting(&pair) == RP_OK && pair.p.script.port.out_count == 1);
    pair.p.script.port.room_left = UINT32_MAX;
    CHECK(error_now(&pair) == 5);
    CHECK(ask_sample(&pair, SAMPLE_ID, WIDTH, 0) == RP_OK);
    CHECK(script_counter(&pair.p.script, RP_COUNT_samples) == 1);
    script_close(&pair.p.script);
    ten_items(&pair);
    CHECK(push_waiting(&pair) == RP_BLOCKED);
    pair.p.script.port.room_left = 1;
    CHECK(ask_sample(&pair, SAMPLE_ID, WIDTH, 0) == RP_BLOCKED && releases(&pair) == 0);
    CHECK(pair.p.script.server->left_over == 1);
    pair.p.script.port.room_left = UINT32_MAX;
    script_turn(&pair.p.script);
    CHECK(stored(&pair, &pair.p.client, PUSH_ID, 15) && error_now(&pair) == 5);
    script_close(&pair.p.script);
    ten_items(&pair);
    CHECK(push_waiting(&pair) == RP_BLOCKED);
    pair.p.script.port.room_left = 2;
    CHECK(ask_sample(&pair, SAMPLE_ID, WIDTH, 0) == RP_BLOCKED && releases(&pair) == 2);
    CHECK(pair.p.script.port.out_count == 2 && stored(&pair, &pair.p.client, PUSH_ID, 15));
    pair.p.script.port.room_left = UINT32_MAX;
    CHECK(error_now(&pair) == 5);
    script_close(&pair.p.script);
    check_group("7 drawn without room");
}

static uint32_t places(const struct pair *pair) {
    return pair->p.script.server->waiting[RP_WAIT_PUSH][1].count;
}

/* 8. Given a push that waits, and another one of its session, for which there is room. Expect that
 *    one behind it, with no place of its own, for however long it alone asks; the place kept by
 *    that; and it stored when it asks after the first one was. */
static void situation_session(void) {
    struct pair pair;
    ten_items(&pair);
    CHECK(push_waiting(&pair) == RP_BLOCKED);
    for (uint32_t half = 0; half < 8; half++) {
        script_push_begin(&push, pair.p.epoch[1]);
        script_push_run(&push, 1, 25, 0, 5, RP_RUN_ITEM);
        struct script_answer answer = script_push(&pair.p.script, &pair.p.client, 1, 3, &push);
        CHECK_STATUS(answer, RP_BLOCKED);
        CHECK(SCRIPT_READ(answer, struct rp_blocked).noted == 0 && places(&pair) == 1);
        script_later(&pair.p.script, 499);
    }
    CHECK(ask_sample(&pair, 30, 5, 0) == RP_OK && stored(&pair, &pair.p.client, PUSH_ID, 15));
    CHECK(places(&pair) == 0 && run_now(&pair.p, 3, 1, 25, 0, 5) == RP_BLOCKED);
    CHECK(ask_sample(&pair, 31, 5, 0) == RP_OK && stored(&pair, &pair.p.client, 3, 5));
    CHECK(script_counter(&pair.p.script, RP_COUNT_waits_lapsed) == 0);
    script_close(&pair.p.script);
    check_group("8 a session's pushes go in order");
}

/* 9. Given a push that overtook so many others that it would be dropped. Expect it dropped where
 *    it is let on; else held back without a place, alone and where one of its session waits. */
static void situation_far(void) {
    struct pair pair;
    limited(&pair.p, 1, 0, WIDTH);
    CHECK(run_now(&pair.p, 1, 0, 0, 0, 15) == RP_OK);
    CHECK(run_now(&pair.p, 3, 1, 200, 0, 2) == UINT16_MAX);
    CHECK(script_counter(&pair.p.script, RP_COUNT_drop_far) == 1);
    script_push_begin(&push, pair.p.epoch[1]);
    script_push_run(&push, 1, 200, 0, 10, RP_RUN_ITEM);
    struct script_answer answer = script_push(&pair.p.script, &pair.p.client, 1, 4, &push);
    CHECK_STATUS(answer, RP_BLOCKED);
    CHECK(SCRIPT_READ(answer, struct rp_blocked).noted == 0 && places(&pair) == 0);
    CHECK(run_now(&pair.p, 2, 0, 15, 15, 10) == RP_BLOCKED && places(&pair) == 1);
    CHECK(run_now(&pair.p, 3, 1, 200, 0, 2) == RP_BLOCKED && places(&pair) == 1);
    CHECK(draw(&pair.p, 1, 5) == RP_OK && stored(&pair, &pair.p.client, 2, 10));
    script_close(&pair.p.script);
    check_group("9 what would be dropped uses no turn");
}

/* 10. Given two sessions' pushes that wait. Expect each stored as it was sent, in the order in
 *     which they came; and one that lapsed since, or whose session has ended, not stored at all. */
static void situation_copies(void) {
    for (int gone = 0; gone < 3; gone++) {
        struct pair pair;
        struct script_client other;
        ten_items(&pair);
        open_other(&pair, &other, 3);
        CHECK(push_waiting(&pair) == RP_BLOCKED);
        CHECK(push_other(&pair, &other, 9, 0, 12) == RP_BLOCKED);
        for (uint32_t i = 0; gone == 1 && i < 8; i++) { /* the first is not asked for */
            script_later(&pair.p.script, RP_NOTE_MS / 7);
            CHECK(push_other(&pair, &other, 9, 0, 12) == RP_BLOCKED);
        }
        if (gone == 2) {
            CHECK_STATUS(script_ask(&pair.p.script, &pair.p.client, RP_OP_CLOSE, 0, 8, NULL, 0),
                         RP_OK);
            script_connect(&pair.p.script, &pair.p.client);
        }
        CHECK(ask_sample(&pair, 20, 5, 0) == RP_OK);
        CHECK(stored(&pair, &pair.p.client, PUSH_ID, 15) == (gone == 0));
        CHECK(stored(&pair, &other, 9, 12) == (gone != 0));
        CHECK(gone || ask_sample(&pair, 21, 12, 0) == RP_OK);
        CHECK(stored(&pair, &other, 9, 12));
        CHECK(error_now(&pair) == (gone ? 17 : 20), "%d: %" PRId64, gone, error_now(&pair));
        script_close(&pair.p.script);
    }
    check_group("10 each as it was sent");
}

/* 11. Given a push that waits with creates of steps that may come, and of others so far ahead that
 *     they do not count, until the stream goes on. Expect it to wait for room for all: its copy
 *     looked at once, nothing said of that, and its place kept for no longer by it. */
static void situation_makes_more(void) {
    struct pair pair;
    uint64_t sequence = 0;
    script_tables(tables);
    tables[1].window = 4;
    open_rows(&pair.p);
    pair.learner = script_client(2);
    script_connect(&pair.p.script, &pair.learner);
    for (; sequence < 20; sequence += 2) { /* 20 items, and room for none */
        CHECK(run_now(&pair.p, 1 + sequence, 0, sequence, sequence, 2) == RP_OK);
    }
    script_push_begin(&push, pair.p.epoch[1]);
    for (uint64_t step = 0; step < 24; step += 4) {
        script_push_create(&push, 1, step, 1.0);
    }
    CHECK(push_now(&pair.p, 100) == RP_BLOCKED);
    const struct rp_note *note = rp_wait_note(pair.p.script.server, RP_WAIT_PUSH, 0, 1);
    CHECK(note->items == 4, "16 and 20 are four windows ahead");
    for (uint64_t step = 0; step < 12; step += 4, sequence += 4) {
        CHECK_STATUS(send_run(&pair.p, 1, 200 + step, 1, sequence, step, 4, 0), RP_OK);
    }
    uint64_t lapse_ns = note->lapse_ns;
    script_later(&pair.p.script, 100);
    put_sample(&pair, &pair.learner, 1, 4); /* room for four */
    script_turn(&pair.p.script);
    CHECK(pair.p.script.port.out_count == 1 && pair.p.script.server->left_over == 0);
    CHECK(note->waiting && note->items == 6 && note->lapse_ns == lapse_ns);
    CHECK(places(&pair) == 1 && error_now(&pair) == 16);
    CHECK(ask_sample(&pair, 2, 2, 0) == RP_OK && places(&pair) == 0 && releases(&pair) == 1);
    script_close(&pair.p.script);
    check_group("11 a push that makes more by now");
}

/* 12. Given 80 pushes that wait, and a draw that makes room for all. Expect 64 let on in that turn,
 *     which says that there is work, and the others in the next one. */
static void situation_crowd(void) {
    enum { CROWD = 80 };
    static struct script_client clients[CROWD];
    struct pair pair;
    script_tables(tables);
    tables[1].capacity = 1 << 14;
    tables[1].window = 4;
    tables[1].writers_max = CROWD + 1;
    tables[1].error_min = 0;
    tables[1].error_max = CROWD;
    config = script_config(tables);
    config.sessions_max = CROWD + 1;
    config.receive_budget = 4 * CROWD;
    script_open(&pair.p.script, &config);
    pair.learner = script_client(CROWD);
    script_connect(&pair.p.script, &pair.learner);
    for (uint32_t i = 0; i < CROWD; i++) {
        clients[i] = script_client((uint8_t)i);
        clients[i].nonce = 5000 + i;
        script_connect(&pair.p.script, &clients[i]);
        pair.p.epoch[1] = script_writer(&pair.p.script, &clients[i], 1, 1).epoch;
        CHECK(push_other(&pair, &clients[i], 1, 0, 1) == RP_OK);
    }
    for (uint32_t i = 0; i < CROWD; i++) {
        CHECK(push_other(&pair, &clients[i], 2, 1, 1) == RP_BLOCKED);
    }
    put_sample(&pair, &pair.learner, 1, CROWD / 2);
    put_sample(&pair, &pair.learner, 2, CROWD / 2);
    script_turn(&pair.p.script);
    CHECK(releases(&pair) == RP_RELEASES_MAX && places(&pair) == CROWD - RP_RELEASES_MAX);
    CHECK(pair.p.script.server->left_over == 1);
    script_turn(&pair.p.script);
    CHECK(releases(&pair) == CROWD && pair.p.script.server->left_over == 0);
    rp_server_check(pair.p.script.server);
    script_close(&pair.p.script);
    check_group("12 a crowd is let on in parts");
}

/* 13. Given more samples that wait at one table than a turn lets on, one that waits at the table
 *     behind it, and items for all of them. Expect that one in one of the next two turns, however
 *     many are left at the first. */
static void situation_tables(void) {
    enum { PUSHES = 5, STEPS = 50, CROWD = PUSHES * STEPS };
    static struct script_client clients[CROWD];
    struct rp_sample request = script_sample(1);
    struct pair pair;
    struct script *script = &pair.p.script;
    script_tables(tables);
    tables[0] = tables[1];
    memcpy(tables[0].name, "main", 5);
    for (uint32_t i = 0; i < 2; i++) {
        tables[i].capacity = 1 << 14;
        tables[i].window = CROWD;
        tables[i].error_max = 4 * CROWD;
    }
    config = script_config(tables);
    config.sessions_max = CROWD + 2;
    config.receive_budget = 4 * CROWD;
    script_open(script, &config);
    pair.p.client = script_client(CROWD);
    pair.learner = script_client(CROWD + 1);
    script_connect(script, &pair.p.client);
    script_connect(script, &pair.learner);
    const uint64_t epochs[2] = {script_writer(script, &pair.p.client, 0, 1).epoch,
                                script_writer(script, &pair.p.client, 1, 1).epoch};
    CHECK(ask_sample(&pair, 1, 1, 0) == RP_BLOCKED);
    for (uint32_t i = 0; i < CROWD; i++) {
        clients[i] = script_client((uint8_t)i);
        clients[i].nonce = 5000 + i;
        script_connect(script, &clients[i]);
        CHECK_STATUS(script_ask(script, &clients[i], RP_OP_SAMPLE, 0, 1, &request, sizeof request),
                     RP_BLOCKED);
    }
    for (uint32_t i = 0; i <= PUSHES; i++) { /* the last one to the second table */
        uint64_t step = i % PUSHES * STEPS;
        script_push_begin(&push, epochs[i / PUSHES]);
        script_push_run(&push, 0, step, step, STEPS, RP_RUN_ITEM);
        script_put(script, &pair.p.client, RP_OP_PUSH, (uint16_t)(i / PUSHES), 1 + i, push.body,
                   push.size);
    }
    script_turn(script);
    CHECK(releases(&pair) == RP_RELEASES_MAX && script->server->left_over == 1);
    CHECK(script->server->waiting[RP_WAIT_SAMPLE][1].count == 1);
    script_turn(script);
    script_turn(script);
    CHECK(script->server->left_over == 1 && releases(&pair) == 3 * RP_RELEASES_MAX);
    CHECK(script->server->waiting[RP_WAIT_SAMPLE][1].count == 0, "it waits for the whole crowd");
    rp_server_check(script->server);
    script_close(script);
    check_group("13 a crowd at one table holds up no other");
}

int main(void) {
    situation_stuck();
    situation_withdrawn();
    situation_lapsed();
    situation_void();
    situation_two_pushes();
    situation_stale();
    situation_no_room();
    situation_session();
    situation_far();
    situation_copies();
    situation_makes_more();
    situation_crowd();
    situation_tables();
    return check_done("test_server_pairs");
}
