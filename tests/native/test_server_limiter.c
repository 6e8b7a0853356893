/* Who pushes is held back as far as the limiter says, and no further: nobody for ever.
 * Situations read "Given ... Expect ...". */
#include "limited.h"

/* 1. Given a limiter that admits twenty items beyond what was drawn. Expect BLOCKED with the need,
 *    noted once, and the noted one stored and answered when a draw makes room. */
static void situation_blocked(void) {
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
    CHECK_STATUS(answer, RP_OK);
    CHECK(script_done(answer, 0).committed == 3);
    CHECK(script_counter(&p.script, RP_COUNT_releases) == 1);
    answer = send_run(&p, 1, 31, 0, 20, 20, 3, RP_RUN_ITEM);
    CHECK(script_done(answer, 0).committed == 3);
    CHECK(script_counter(&p.script, RP_COUNT_pushes_blocked) == 3);
    script_push_begin(&push, p.epoch[1]);
    script_push_run(&push, 0, 23, 23, 4, RP_RUN_ITEM);
    script_push_run(&push, 1, 27, 0, 1, RP_RUN_ITEM);
    CHECK_STATUS(script_push(&p.script, &p.client, 1, 40, &push), RP_BLOCKED);
    script_close(&p.script);
    check_group("1 blocked and released");
}

/* 2. Given steps that are no items yet, and room for twenty items. Expect creates alone to be
 *     counted: twenty let in by fives, and more held back until one is drawn. */
static void situation_creates_blocked(void) {
    struct pusher p;
    script_tables(tables);
    tables[1].plan_count = 2;
    open_rows(&p);
    for (uint64_t step = 0; step < 30; step += 10) {
        CHECK_STATUS(send_run(&p, 1, 1 + step, 0, step, step, 10, 0), RP_OK);
    }
    for (uint64_t time = 0; time < 6; time++) {
        script_push_begin(&push, p.epoch[1]);
        for (uint64_t i = 0; i < (time < 4 ? 5 : 1); i++) {
            script_push_create(&push, 0, 2 + 5 * (time < 4 ? time : 4) + i, 1.0);
        }
        CHECK_STATUS(script_push(&p.script, &p.client, 1, time < 4 ? 40 + time : 44, &push),
                     time == 4 ? RP_BLOCKED : RP_OK);
        CHECK(time != 4 || draw(&p, 1, 1) == RP_OK);
    }
    CHECK(script_info(&p.script, &p.client, 1).inserted == 21);
    script_close(&p.script);
    check_group("2 creates alone are held back");
}

/* 3. Given a push that waits, when the server closes. Expect CLOSED, unless the region stays for
 *    another server. */
static void situation_farewell(void) {
    struct pusher p;
    fresh(&p);
    script_done(send_run(&p, 1, 1, 0, 0, 0, 10, RP_RUN_ITEM), 0);
    script_done(send_run(&p, 1, 2, 0, 10, 10, 10, RP_RUN_ITEM), 0);
    CHECK_STATUS(send_run(&p, 1, 31, 0, 20, 20, 3, RP_RUN_ITEM), RP_BLOCKED);
    struct rp_port *port = (struct rp_port *)(void *)&p.script.port;
    script_turn(&p.script);
    rp_server_last_turn(p.script.server, port, p.script.now_ns, 1);
    CHECK(p.script.port.out_count == 0, "who takes the region over goes on with it");
    rp_server_last_turn(p.script.server, port, p.script.now_ns, 0);
    CHECK(p.script.port.out_count == 1);
    struct script_answer answer = script_answer(&p.script, 0);
    CHECK(answer.view.message->op == (RP_OP_PUSH | RP_ANSWER) && answer.view.message->id == 31);
    CHECK_STATUS(answer, RP_CLOSED);
    script_close(&p.script);
    check_group("3 who waits to push is told that the server closes");
}

/* 4. Given a push that waits, and a RESET. Expect STALE_EPOCH for it, unasked and asked again, and
 *    no place kept for it in the new epoch. */
static void situation_stale_waits(void) {
    struct pusher p;
    fresh(&p);
    script_done(send_run(&p, 1, 1, 0, 0, 0, 10, RP_RUN_ITEM), 0);
    script_done(send_run(&p, 1, 2, 0, 10, 10, 10, RP_RUN_ITEM), 0);
    CHECK_STATUS(send_run(&p, 1, 31, 0, 20, 20, 5, RP_RUN_ITEM), RP_BLOCKED);
    struct rp_reset reset = {.epoch = p.epoch[1]};
    struct script_answer answer =
        script_ask(&p.script, &p.client, RP_OP_RESET, 1, 32, &reset, sizeof reset);
    CHECK_STATUS(answer, RP_OK);
    uint64_t epoch = SCRIPT_READ(answer, struct rp_reset_done).epoch;
    answer = script_answer(&p.script, p.script.port.out_count - 1);
    CHECK(answer.view.message->op == (RP_OP_PUSH | RP_ANSWER) && answer.view.message->id == 31);
    CHECK_STATUS(answer, RP_STALE_EPOCH);
    CHECK(p.script.server->waiting[RP_WAIT_PUSH][1].count == 0);
    CHECK(script_counter(&p.script, RP_COUNT_refused_epoch) == 1);
    CHECK_STATUS(send_run(&p, 1, 31, 0, 20, 20, 5, RP_RUN_ITEM), RP_STALE_EPOCH);
    p.epoch[1] = epoch;
    CHECK_STATUS(send_run(&p, 1, 33, 0, 0, 0, 10, RP_RUN_ITEM), RP_OK);
    CHECK_STATUS(send_run(&p, 1, 34, 0, 10, 10, 10, RP_RUN_ITEM), RP_OK);
    script_close(&p.script);
    check_group("4 who is refused for good leaves the queue");
}

/* 5. Given a PUSH that was lost, and others behind it; with a SAMPLE that waits and without one,
 *     below the minimum and above it. Expect those behind to be held back, those of another
 *     stream to be taken, and all of them once the lost one is there, as far as there is room. */
static void situation_missed(void) {
    struct pusher p;
    for (int sampled = 0; sampled < 2; sampled++) {
        limited(&p, 10, 0, 20);
        CHECK(run_now(&p, 1, 0, 0, 0, 10) == RP_OK);
        CHECK(draw(&p, 2, 10) == RP_OK);
        CHECK(!sampled || draw(&p, 3, 10) == RP_BLOCKED);
        CHECK(run_now(&p, 5, 0, 15, 15, 5) == RP_BLOCKED);
        CHECK(run_now(&p, 6, 0, 20, 20, 5) == RP_BLOCKED);
        CHECK(run_now(&p, 7, 1, 20, 0, 5) == RP_OK, "what waits for none");
        CHECK(run_now(&p, 4, 0, 10, 10, 5) == RP_OK);
        CHECK(script_counter(&p.script, RP_COUNT_releases) == (uint64_t)sampled);
        CHECK(run_now(&p, 5, 0, 15, 15, 5) == RP_OK && run_now(&p, 6, 0, 25, 20, 5) == RP_OK);
        CHECK(script_info(&p.script, &p.client, 1).inserted == 30);
        rp_table_check(rp_server_table(p.script.server, 1));
        script_close(&p.script);
        limited(&p, 20, 18, 22); /* nothing is drawn before 20 */
        CHECK(run_now(&p, 2, 0, 4, 4, 10) == RP_BLOCKED);
        CHECK(!sampled || draw(&p, 2, 2) == RP_BLOCKED);
        CHECK(run_now(&p, 1, 0, 0, 0, 4) == RP_OK && run_now(&p, 2, 0, 4, 4, 10) == RP_OK);
        CHECK(run_now(&p, 3, 0, 14, 14, 8) == RP_OK);
        CHECK(script_info(&p.script, &p.client, 1).inserted == 22);
        script_close(&p.script);
    }
    check_group("5 what overtook others comes again");
}

/* 6. Given a PUSH that is held back and another behind it. Expect the second told so, without a
 *     place of its own, and both let in, one after the other, when there is room; NEVER_FITS
 *     beyond all room. */
static void situation_behind(void) {
    struct pusher p;
    limited(&p, 1, 0, 20);
    for (uint64_t i = 0; i < 20; i += 5) {
        CHECK(run_now(&p, 1 + i, 0, i, i, 5) == RP_OK);
    }
    CHECK(run_now(&p, 30, 0, 20, 20, 3) == RP_BLOCKED);
    script_push_begin(&push, p.epoch[1]);
    script_push_run(&push, 0, 23, 23, 2, RP_RUN_ITEM);
    struct script_answer answer = script_push(&p.script, &p.client, 1, 31, &push);
    CHECK_STATUS(answer, RP_BLOCKED);
    struct rp_blocked told = SCRIPT_READ(answer, struct rp_blocked);
    CHECK(told.noted == 0 && told.by_size == 0 && told.need == 0, "it waits for its own writer's");
    CHECK(draw(&p, 2, 5) == RP_OK);
    CHECK(script_counter(&p.script, RP_COUNT_releases) == 1);
    CHECK(run_now(&p, 31, 0, 23, 23, 2) == RP_OK);
    CHECK(run_now(&p, 32, 0, 26, 26, 1) == RP_BLOCKED, "25 is missing");
    CHECK(run_now(&p, 33, 0, 25, 25, 21) == RP_NEVER_FITS);
    CHECK(script_counter(&p.script, RP_COUNT_refused_never_fits) == 1);
    CHECK(script_counter(&p.script, RP_COUNT_pushes_blocked) == 1);
    CHECK(script_counter(&p.script, RP_COUNT_pushes_early) == 2);
    CHECK(script_counter(&p.script, RP_COUNT_waits_lapsed) == 0, "it has no place");
    CHECK(run_now(&p, 34, 0, 25, 25, 1) == RP_BLOCKED);
    CHECK(p.script.server->waiting[RP_WAIT_PUSH][1].count == 1);
    CHECK(run_now(&p, 34, 0, 26, 26, 1) == RP_BLOCKED, "25 is missing now");
    CHECK(p.script.server->waiting[RP_WAIT_PUSH][1].count == 0, "and its place given up");
    script_close(&p.script);
    check_group("6 who stands behind one that is held back");
}

static unsigned pieces_now(struct pusher *p, uint64_t id, const uint64_t (*pieces)[2]) {
    script_push_begin(&push, p->epoch[1]);
    for (; (*pieces)[1] < 3; pieces++) {
        uint64_t step = (*pieces)[0], word = step;
        struct rp_run run = {.sequence = step, .step = step, .stream = 0, .count = 1,
                             .piece = (uint16_t)(*pieces)[1], .piece_count = 2,
                             .flags = RP_RUN_ITEM, .size = 8};
        script_push_bytes(&push, run, &word);
    }
    return push_now(p, id);
}

/* 7. Given steps in two pieces. Expect the piece that makes one whole to be counted, it alone:
 *     first pieces hold nobody up; one that is here already frees nothing; a step that
 *     would be whole before its turn comes again; pieces of two steps in turn are let in. */
static void situation_pieces(void) {
    static const uint64_t first[][2] = {{0, 0}, {1, 0}, {2, 0}, {0, 9}};
    static const uint64_t again[][2] = {{0, 0}, {1, 0}, {1, 0}, {2, 0}, {0, 9}};
    static const uint64_t early[][2] = {{1, 1}, {0, 9}}, last[][2] = {{0, 1}, {0, 9}};
    static const uint64_t turns[][2] = {{2, 1}, {3, 0}, {4, 0}, {3, 1}, {4, 1}, {0, 9}};
    static const uint64_t both[][2] = {{5, 0}, {5, 1}, {6, 1}, {6, 0}, {0, 9}};
    struct pusher p;
    limited(&p, 1, 0, 24);
    CHECK(pieces_now(&p, 1, first) == RP_OK);
    uint64_t sequence = 10;
    for (uint64_t step = 0; step < 24; step += 6, sequence += 6) {
        script_push_begin(&push, p.epoch[1]);
        script_push_run(&push, 1, sequence, step, 6, RP_RUN_ITEM);
        CHECK(push_now(&p, 10 + step) == RP_OK, "first pieces hold nobody up");
    }
    CHECK(pieces_now(&p, 40, again) == RP_OK, "a repeat is never held back");
    CHECK(pieces_now(&p, 41, last) == RP_BLOCKED && pieces_now(&p, 42, early) == RP_BLOCKED);
    CHECK(draw(&p, 2, 5) == RP_OK);
    CHECK(pieces_now(&p, 41, last) == RP_OK && pieces_now(&p, 42, early) == RP_OK);
    CHECK(pieces_now(&p, 43, turns) == RP_BLOCKED, "counted as four");
    CHECK(draw(&p, 3, 1) == RP_OK && pieces_now(&p, 43, turns) == RP_OK, "2, 3 and 4");
    CHECK(script_info(&p.script, &p.client, 1).inserted == 29);
    CHECK(pieces_now(&p, 44, both) == RP_BLOCKED && draw(&p, 4, 2) == RP_OK);
    CHECK(pieces_now(&p, 44, both) == RP_OK);
    CHECK(script_info(&p.script, &p.client, 1).inserted == 31);
    CHECK(draw(&p, 5, 14) == RP_OK);
    static const uint64_t far[][2] = {{8, 0}, {8, 1}, {0, 9}};
    CHECK(pieces_now(&p, 45, far) == RP_BLOCKED, "7 is missing");
    rp_table_check(rp_server_table(p.script.server, 1));
    script_close(&p.script);
    check_group("7 steps in pieces count when they are whole");
}

/* ---- any order ---- */

enum { STREAMS = 2, MESSAGES = 60, IN_FLIGHT = 7, STEPS = 3 };

struct sender { /* messages of STEPS steps each, streams in turn; some steps in two pieces */
    struct script_client client;
    uint64_t epoch;
    uint8_t stored[MESSAGES];
};

static void send_message(struct pusher *p, struct sender *s, uint32_t m) {
    uint16_t stream = m % STREAMS;
    uint64_t sequence = (uint64_t)m * STEPS, step = (uint64_t)(m / STREAMS) * STEPS;
    uint64_t word = step;
    script_push_begin(&push, s->epoch);
    if (m % 5 != 3) {
        script_push_run(&push, stream, sequence, step, STEPS, RP_RUN_ITEM);
    }
    for (uint32_t i = 0; m % 5 == 3 && i < 2 * STEPS; i++) { /* in pieces, some in falling order */
        uint32_t at = i / 2;
        struct rp_run run = {.sequence = sequence + at, .step = step + at, .stream = stream,
                             .count = 1, .piece = (uint16_t)(m % 2 ? 1 - i % 2 : i % 2),
                             .piece_count = 2, .flags = RP_RUN_ITEM, .size = 8};
        script_push_bytes(&push, run, &word);
    }
    script_put(&p->script, &s->client, RP_OP_PUSH, 1, 1 + m, push.body, push.size);
    script_turn(&p->script);
    for (uint32_t i = 0; i < p->script.port.out_count; i++) {
        struct script_answer answer = script_answer(&p->script, i);
        if (answer.view.message->op != (RP_OP_PUSH | RP_ANSWER)
            || answer.view.outer->connection != s->client.connection
            || answer.view.message->id != 1 + m || answer.status != RP_OK) {
            continue;
        }
        int whole = 1;
        for (uint32_t run = 0; run < script_pushed(answer).run_count; run++) {
            struct rp_run_done done = script_done(answer, run);
            CHECK(done.lost == 0);
            whole &= done.committed > 0;
        }
        s->stored[m] |= (uint8_t)whole;
    }
}

/* 8. Given two writers whose datagrams are lost, doubled and reordered, and one who draws batches
 *     of any size that fits. Expect the error never beyond its bounds, and everything stored. */
static void situation_any_order(void) {
    struct pusher p;
    struct sender s[2] = {0};
    struct rp_random random;
    uint64_t seed = check_seed(20261122), draws = 1;
    rp_random_seed(&random, seed);
    limited(&p, 4, -3, 25); /* groups of up to 7, batches of up to 21 */
    struct script_client learner = script_client(9);
    script_connect(&p.script, &learner);
    s[0].client = p.client;
    s[1].client = script_client(5);
    script_connect(&p.script, &s[1].client);
    for (int i = 0; i < 2; i++) {
        s[i].epoch = script_writer(&p.script, &s[i].client, 1, STREAMS).epoch;
    }
    p.client = learner;
    uint32_t oldest[2] = {0, 0}, tries = 0;
    for (; (oldest[0] < MESSAGES || oldest[1] < MESSAGES) && tries < 20000; tries++) {
        uint32_t who = (uint32_t)rp_random_below(&random, 3);
        if (who == 2) {
            draws += draw(&p, draws, 1 + (uint32_t)rp_random_below(&random, 21)) == RP_OK;
        } else if (oldest[who] < MESSAGES) {
            uint32_t m = oldest[who] + (uint32_t)rp_random_below(&random, IN_FLIGHT);
            send_message(&p, &s[who], m < MESSAGES ? m : oldest[who]);
            while (oldest[who] < MESSAGES && s[who].stored[oldest[who]]) {
                oldest[who]++;
            }
        }
        struct rp_table_info now = script_info(&p.script, &p.client, 1);
        int64_t error = (int64_t)now.inserted - (int64_t)now.sampled;
        CHECK(error <= 25 && (error >= -3 || now.sampled == 0), "%" PRId64, error);
        script_later(&p.script, 3); /* a place that is not asked for lapses */
    }
    CHECK(tries < 20000, "%u and %u of %u", oldest[0], oldest[1], MESSAGES);
    CHECK(script_info(&p.script, &p.client, 1).inserted == 2 * MESSAGES * STEPS);
    rp_table_check(rp_server_table(p.script.server, 1));
    script_close(&p.script);
    check_group("8 any order");
}

/* What the k-th PUSH of a kind contradicts itself by; at most two of its items are counted. */
static void contradict(int kind, uint64_t k) {
    uint64_t word = 0;
    struct rp_run piece = {.sequence = k, .step = k, .count = 1, .piece_count = 2,
                           .flags = RP_RUN_ITEM, .size = 8};
    if (kind == 0) { /* a sequence said for two streams, */
        script_push_run(&push, 1, 4 * k, 2 * k, 2, 0);
        script_push_run(&push, 0, 4 * k, 2 * k, 2, 0);
        script_push_run(&push, 0, 4 * k + 2, 2 * k, 2, RP_RUN_ITEM);
    } else if (kind == 1) { /* a piece whose flags disagree, */
        script_push_bytes(&push, piece, &word);
        piece.piece = 1;
        piece.flags = 0;
        script_push_bytes(&push, piece, &word);
        piece.flags = RP_RUN_ITEM;
        script_push_bytes(&push, piece, &word);
    } else if (kind == 2) { /* a run that begins at a sequence that is done and jumps ahead, */
        script_push_run(&push, 0, k ? 3 * k - 1 : 0, 2 * k + (k ? 30 : 0), k ? 2 : 1, 0);
        script_push_run(&push, 0, 3 * k + 1, 2 * k + 1, 2, RP_RUN_ITEM);
    } else if (kind == 3) { /* two items that are counted, and two that are not, */
        script_push_run(&push, 1, 4 * k, 2 * k, 2, RP_RUN_ITEM);
        script_push_run(&push, 0, 4 * k, 2 * k, 2, 0);
        script_push_run(&push, 0, 4 * k + 2, 2 * k, 2, RP_RUN_ITEM);
    } else { /* three that are not counted, and one that is and is not made. */
        script_push_run(&push, 1, 6 * k, 3 * k, 3, 0);
        script_push_run(&push, 0, 6 * k, 3 * k, 3, 0);
        script_push_run(&push, 0, 6 * k + 3, 3 * k, 3, RP_RUN_ITEM);
        script_push_run(&push, 0, 6 * k + 2, 3 * k + 3, 1, RP_RUN_ITEM);
    }
}

/* 9. Given PUSHes that contradict themselves. Expect no item that was not let in. */
static void situation_contradictions(void) {
    static const uint64_t counted[5] = {2, 2, 2, 2, 1}; /* of each, at most */
    for (int kind = 0; kind < 5; kind++) {
        struct pusher p;
        limited(&p, 1, 0, 20);
        for (uint64_t k = 0; k < 60; k++) {
            script_push_begin(&push, p.epoch[1]);
            contradict(kind, k);
            push_now(&p, 1 + k);
            uint64_t inserted = script_info(&p.script, &p.client, 1).inserted;
            CHECK(inserted <= 20 && inserted <= counted[kind] * (k + 1), "kind %d, %" PRIu64, kind,
                  inserted);
        }
        rp_table_check(rp_server_table(p.script.server, 1));
        script_close(&p.script);
    }
    check_group("9 no more than was let in");
}

/* 10. Given an error at its bound, and a ring in which steps that are no items have taken the place
 *     of all items. Expect more to be let in: nobody could draw what they would wait for. */
static void situation_nothing_drawable(void) {
    struct pusher p;
    limited(&p, 1, 0, 20);
    tables[1].window = 16;
    tables[1].capacity = 512;
    script_close(&p.script);
    script_open(&p.script, &config);
    script_connect(&p.script, (p.client = script_client(1), &p.client));
    p.epoch[1] = script_writer(&p.script, &p.client, 1, 2).epoch;
    uint64_t step = 0;
    for (; step < 20; step += 10) {
        CHECK(run_now(&p, 1 + step, 0, step, step, 10) == RP_OK);
    }
    CHECK(run_now(&p, 90, 0, step, step, 1) == RP_BLOCKED && draw(&p, 1, 1) == RP_OK);
    CHECK(run_now(&p, 90, 0, step, step, 1) == RP_OK);
    for (step++; step < 600; step++) {
        script_push_begin(&push, p.epoch[1]);
        script_push_run(&push, 0, step, step, 1, 0);
        CHECK(push_now(&p, 100 + step) == RP_OK, "what is no item is not held back");
    }
    CHECK(draw(&p, 2, 1) == RP_NOTHING_DRAWABLE);
    CHECK(run_now(&p, 900, 0, step, step, 1) == RP_OK);
    CHECK(draw(&p, 3, 1) == RP_OK && run_now(&p, 901, 0, step + 1, step + 1, 5) == RP_BLOCKED);
    script_close(&p.script);
    check_group("10 where nothing can be drawn");
}

/* 11. Given a message that was lost, one behind it that is held back, and the ring overwritten
 *     meanwhile, so that the lost one's places are gone. Expect the one behind to be told that it
 *     lost its places too, as soon as all sequences before it are done. */
static void situation_overwritten(void) {
    struct pusher p;
    limited(&p, 1, -1000, 1000);
    CHECK(run_now(&p, 2, 1, 4, 0, 4) == RP_OK, "its sequences reserve those of the first");
    CHECK(run_now(&p, 3, 0, 8, 4, 4) == RP_BLOCKED);
    struct script_client other = script_client(2);
    script_connect(&p.script, &other);
    uint64_t epoch = script_writer(&p.script, &other, 1, 1).epoch;
    for (uint64_t step = 0; step < tables[1].capacity; step += 64) {
        script_push_begin(&push, epoch);
        script_push_run(&push, 0, step, step, 64, 0);
        CHECK_STATUS(script_push(&p.script, &other, 1, 1 + step, &push), RP_OK);
    }
    script_push_begin(&push, p.epoch[1]);
    script_push_run(&push, 0, 0, 0, 4, RP_RUN_ITEM);
    CHECK(script_done(script_push(&p.script, &p.client, 1, 1, &push), 0).lost == 4);
    script_push_begin(&push, p.epoch[1]);
    script_push_run(&push, 0, 8, 4, 4, RP_RUN_ITEM);
    CHECK(script_done(script_push(&p.script, &p.client, 1, 3, &push), 0).lost == 4);
    CHECK(run_now(&p, 4, 0, 12, 0, 8) == RP_OK);
    CHECK(script_info(&p.script, &p.client, 1).inserted == 12);
    rp_table_check(rp_server_table(p.script.server, 1));
    script_close(&p.script);
    check_group("11 behind one whose places are gone");
}

/* 12. Given room for six items, and a PUSH of steps that are none, of five that are, and of creates
 *     of one or two of the former. Expect all to be counted together. Given a run of which a part
 *     is here. Expect the rest of it stored. */
static void situation_all_kinds(void) {
    struct pusher p;
    limited(&p, 1, 0, 20);
    CHECK(run_now(&p, 1, 0, 0, 0, 14) == RP_OK);
    script_push_begin(&push, p.epoch[1]);
    script_push_run(&push, 1, 14, 0, 3, 0);
    CHECK(push_now(&p, 2) == RP_OK);
    for (uint64_t creates = 2; creates > 0; creates--) {
        script_push_begin(&push, p.epoch[1]);
        script_push_run(&push, 1, 17, 3, 2, 0);
        script_push_run(&push, 0, 19, 14, 5, RP_RUN_ITEM);
        for (uint64_t step = 0; step < creates; step++) {
            script_push_create(&push, 1, step, 1.0);
        }
        CHECK(push_now(&p, 3) == (creates == 2 ? RP_BLOCKED : RP_OK));
    }
    CHECK(script_info(&p.script, &p.client, 1).inserted == 20);
    CHECK(draw(&p, 1, 3) == RP_OK);
    CHECK(run_now(&p, 5, 0, 20, 15, 7) == RP_OK, "four of them are here");
    CHECK(script_info(&p.script, &p.client, 1).inserted == 23);
    CHECK(script_counter(&p.script, RP_COUNT_steps_lost_place) == 0);
    script_close(&p.script);
    check_group("12 items of all kinds are counted together");
}

/* 13. Given a step that waits for another one, and servers that take the region over: without a
 *     limiter, with one, with one that lets more in, and one that lets less in, by its bounds and
 *     by its rate. Expect the sessions of the table's writers ended, with what waits, where less
 *     may come at once than they were told, no other session, and none twice. */
static void situation_adopted(void) {
    static const double high[] = {20, 20, 24, 23, 23, 23};
    static const double rate[] = {0, 1, 1, 1, 0.5, 1}; /* 0: no limiter */
    struct pusher p;
    struct script_client learner = script_client(2);
    limited(&p, 1, 0, 20);
    script_close(&p.script);
    tables[1].samples_per_insert = 0;
    open_rows(&p);
    script_connect(&p.script, &learner);
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t ended = i % 2;
        tables[1].samples_per_insert = rate[i];
        tables[1].error_max = high[i];
        script_kill(&p.script);
        CHECK(script_counter(&p.script, RP_COUNT_sessions_expired) == ended, "server %u", i);
        CHECK(script_info(&p.script, &learner, 1).inserted == i / 2, "server %u", i);
        if (ended) {
            CHECK(run_now(&p, 1, 0, 0, 0, 1) == RP_UNKNOWN_SESSION);
            p.client.nonce++;
            script_connect(&p.script, &p.client);
            p.epoch[1] = script_writer(&p.script, &p.client, 1, 2).epoch;
            CHECK(run_now(&p, 1, 0, 0, 0, 1) == RP_OK);
        } else if (i == 0) {
            CHECK(run_now(&p, 2, 0, 1, 1, 1) == RP_OK);
        }
    }
    CHECK(script_info(&p.script, &learner, 1).inserted == 3);
    script_close(&p.script);
    check_group("13 a limiter that lets less in ends the sessions that were told of more");
}

/* 14. Given a push that waits, and comes again with fewer items. Expect it told as soon as there is
 *     room for those. */
static void situation_less(void) {
    struct pusher p;
    limited(&p, 1, 0, 20);
    CHECK(run_now(&p, 1, 0, 0, 0, 20) == RP_OK && run_now(&p, 2, 0, 20, 20, 10) == RP_BLOCKED);
    CHECK(run_now(&p, 2, 0, 20, 20, 4) == RP_BLOCKED && draw(&p, 1, 3) == RP_OK);
    CHECK(script_counter(&p.script, RP_COUNT_releases) == 0);
    CHECK(draw(&p, 2, 1) == RP_OK && script_counter(&p.script, RP_COUNT_releases) == 1);
    CHECK(run_now(&p, 2, 0, 20, 20, 4) == RP_OK);
    script_close(&p.script);
    check_group("14 a push that makes less by now");
}

/* 15. Given a server that is killed between the store of a step that was let in and its commit.
 *     Expect it there. */
static void situation_killed(void) {
    struct pusher p;
    limited(&p, 1, 0, 20);
    CHECK(run_now(&p, 2, 1, 1, 0, 4) == RP_OK);
    const struct rp_table_private *at = rp_server_table(p.script.server, 1)->private;
    struct rp_entry *missing = rp_entry_at(at, 0, 0);
    uint32_t slot = rp_slot_of(at, rp_key_of(missing->key));
    rp_crc32c_rows(&at->sums[slot], at->steps + (size_t)slot * at->step_bytes, at->step_bytes, 1);
    missing->facts = rp_entry_facts(0, RP_RUN_ITEM, 1, 1);
    memset(missing->pieces, 0, 8u * at->bitmap_words);
    missing->pieces[0] = at->bitmap_words > 0;
    missing->key = rp_key_word(RP_ENTRY_COMPLETE, rp_key_of(missing->key));
    script_kill(&p.script);
    CHECK(script_info(&p.script, &p.client, 1).inserted == 5, "%" PRIu64,
          script_info(&p.script, &p.client, 1).inserted);
    script_close(&p.script);
    check_group("15 killed as a step was stored");
}

int main(void) {
    situation_blocked();
    situation_creates_blocked();
    situation_farewell();
    situation_stale_waits();
    situation_missed();
    situation_behind();
    situation_pieces();
    situation_any_order();
    situation_contradictions();
    situation_nothing_drawable();
    situation_overwritten();
    situation_all_kinds();
    situation_adopted();
    situation_less();
    situation_killed();
    return check_done("test_server_limiter");
}
