/* Goal: a first push and a first sample that hold each other up go on together, whatever else comes
 * in between, and the error stays within its bounds. Situations read "Given ... Expect ...". */
#include "limited.h"

enum { WIDTH = 20 }; /* the bounds lie so far apart */

struct pair { /* 10 items are there; a push of 15 waits for draws, a sample of 20 for items */
    struct pusher p;
    struct script_client learner;
};

static const uint64_t PUSH_ID = 2, SAMPLE_ID = 7;

static unsigned ask_sample(struct pair *pair, uint64_t id, uint32_t count, uint64_t epoch)
{
    struct rp_sample request = script_sample(count);
    request.epoch = epoch;
    return script_ask(&pair->p.script, &pair->learner, RP_OP_SAMPLE, 1, id, &request,
                      sizeof request).status;
}

static unsigned push_waiting(struct pair *pair)
{
    return run_now(&pair->p, PUSH_ID, 0, 10, 10, 15);
}

static void both_wait(struct pair *pair)
{
    limited(&pair->p, 1, 0, WIDTH);
    pair->learner = script_client(2);
    script_connect(&pair->p.script, &pair->learner);
    CHECK(run_now(&pair->p, 1, 0, 0, 0, 10) == RP_OK);
    CHECK(push_waiting(pair) == RP_BLOCKED);
    CHECK(ask_sample(pair, SAMPLE_ID, WIDTH, pair->p.epoch[1]) == RP_BLOCKED);
    CHECK(script_counter(&pair->p.script, RP_COUNT_releases) == 1, "the push is told");
}

static int64_t error_now(struct pair *pair)
{
    struct rp_table_info now = script_info(&pair->p.script, &pair->p.client, 1);
    return (int64_t)now.inserted - (int64_t)now.sampled;
}

static void put_run(struct pair *pair, uint64_t id, uint64_t step, uint16_t count)
{
    script_push_begin(&push, pair->p.epoch[1]);
    script_push_run(&push, 0, step, step, count, RP_RUN_ITEM);
    script_put(&pair->p.script, &pair->p.client, RP_OP_PUSH, 1, id, push.body, push.size);
}

static void put_push(struct pair *pair)
{
    put_run(pair, PUSH_ID, 10, 15);
}

static void put_cancel(struct pair *pair)
{
    struct rp_cancel cancel = {.request = SAMPLE_ID, .op = RP_OP_SAMPLE};
    script_put(&pair->p.script, &pair->learner, RP_OP_CANCEL, 1, 99, &cancel, sizeof cancel);
}

/* 1. Given a first push that needs draws and a first sample that needs items: both would wait for
 *    ever. Expect the push told to come again, let in, and the sample drawn in the same turn, with
 *    the error within its bounds after it; and nobody else let in before them. */
static void situation_stuck(void)
{
    struct pusher p;
    limited(&p, 1, 0, 20);
    struct script_client second = script_client(2), third = script_client(3);
    script_connect(&p.script, &second);
    script_connect(&p.script, &third);
    struct rp_sample request = script_sample(20);
    CHECK(run_now(&p, 1, 0, 0, 0, 10) == RP_OK && run_now(&p, 2, 0, 10, 10, 20) == RP_BLOCKED);
    CHECK(script_counter(&p.script, RP_COUNT_releases) == 0);
    CHECK_STATUS(script_ask(&p.script, &third, RP_OP_SAMPLE, 1, 1, &request, sizeof request),
                 RP_BLOCKED);
    CHECK(script_counter(&p.script, RP_COUNT_releases) == 1, "told to come again");
    uint64_t epoch = script_writer(&p.script, &second, 1, 1).epoch;
    script_push_begin(&push, epoch);
    script_push_run(&push, 0, 0, 0, 1, RP_RUN_ITEM);
    CHECK_STATUS(script_push(&p.script, &second, 1, 9, &push), RP_BLOCKED);
    CHECK(run_now(&p, 2, 0, 10, 10, 20) == RP_OK);
    struct rp_table_info now = script_info(&p.script, &third, 1);
    CHECK(now.inserted == 30 && now.sampled == 20);
    CHECK(run_now(&p, 3, 1, 30, 0, 9) == RP_OK && run_now(&p, 4, 1, 39, 9, 1) == RP_BLOCKED);
    script_close(&p.script);
    check_group("1 two firsts that wait for each other go on together");
}

/* 2. Given the push and, in one burst, what would take its sample away: the sample withdrawn, all
 *    priorities zero, a RESET. Expect the sample drawn before it where the push came first, and
 *    the push held back where it came last. */
static void situation_withdrawn(void)
{
    for (int pushed_first = 0; pushed_first < 2; pushed_first++) {
        struct pair pair;
        both_wait(&pair);
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
    both_wait(&pair);
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
static void situation_lapsed(void)
{
    struct pair pair;
    both_wait(&pair);
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

/* 4. Given a push that was told to come, and whose sample is withdrawn before it does. Expect it
 *    held back with a place of its own, and told again once draws have made room. */
static void situation_void(void)
{
    struct pair pair;
    both_wait(&pair);
    put_cancel(&pair);
    script_turn(&pair.p.script);
    CHECK(push_waiting(&pair) == RP_BLOCKED);
    CHECK(pair.p.script.server->waiting[RP_WAIT_PUSH][1].promised == 0);
    for (uint32_t drawn = 1; drawn <= 5; drawn++) { /* 10 + 15 - 5 = 20 */
        CHECK(script_counter(&pair.p.script, RP_COUNT_releases) == 1);
        CHECK(ask_sample(&pair, 20 + drawn, 1, 0) == RP_OK);
    }
    CHECK(script_counter(&pair.p.script, RP_COUNT_releases) == 2, "told again");
    CHECK(push_waiting(&pair) == RP_OK && error_now(&pair) == WIDTH);
    script_close(&pair.p.script);
    check_group("4 a promise that is void is given again");
}

/* 5. Given two pushes, each too large until something is drawn, and one sample. Expect one of them
 *    told and let in, the other held back, whichever comes first. */
static void situation_two_pushes(void)
{
    for (int early = 0; early < 2; early++) {
        struct pair pair;
        both_wait(&pair);
        struct script_client other = script_client(3);
        script_connect(&pair.p.script, &other);
        uint64_t epoch = script_writer(&pair.p.script, &other, 1, 1).epoch;
        CHECK(early || push_waiting(&pair) == RP_OK);
        script_push_begin(&push, epoch);
        script_push_run(&push, 0, 0, 0, 16, RP_RUN_ITEM);
        CHECK_STATUS(script_push(&pair.p.script, &other, 1, 5, &push), RP_BLOCKED);
        CHECK(!early || push_waiting(&pair) == RP_OK);
        CHECK(error_now(&pair) == 5, "%" PRId64, error_now(&pair));
        CHECK(script_counter(&pair.p.script, RP_COUNT_releases) == 2, "the push, the sample");
        script_close(&pair.p.script);
    }
    check_group("5 one sample, one push");
}

/* 6. Given a sample that waits under an epoch that is no more, and was not told for want of room.
 *    Expect nothing let in for its sake. */
static void situation_stale(void)
{
    struct pair pair;
    both_wait(&pair);
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
 *    same, and sent when it is asked for. */
static void situation_no_room(void)
{
    struct pair pair;
    both_wait(&pair);
    pair.p.script.port.room_left = 1;
    CHECK(push_waiting(&pair) == RP_OK && pair.p.script.port.out_count == 1);
    pair.p.script.port.room_left = UINT32_MAX;
    CHECK(error_now(&pair) == 5);
    CHECK(ask_sample(&pair, SAMPLE_ID, WIDTH, 0) == RP_OK);
    CHECK(script_counter(&pair.p.script, RP_COUNT_samples) == 1);
    script_close(&pair.p.script);
    check_group("7 drawn without room");
}

/* 8. Given what was promised to a push, and another push of its session, which comes for it. Expect
 *    it let in. Given a place, and another push of its session, for which there is room. Expect it
 *    let in there, and the one that has the place to stand last. */
static void situation_session(void)
{
    struct pair pair;
    both_wait(&pair);
    CHECK(run_now(&pair.p, 3, 1, 10, 0, 12) == RP_OK, "let in for the sake of the sample");
    CHECK(error_now(&pair) == 2);
    script_push_begin(&push, pair.p.epoch[1]);
    script_push_run(&push, 0, 22, 10, 15, RP_RUN_ITEM);
    CHECK(push_now(&pair.p, PUSH_ID) == RP_OK && error_now(&pair) == 17);
    for (uint64_t id = 4; id < 6; id++) { /* the one that takes the place has it */
        script_push_begin(&push, pair.p.epoch[1]);
        script_push_run(&push, 0, 37, 25, (uint16_t)(id == 4 ? 10 : 5), RP_RUN_ITEM);
        struct script_answer answer =
            script_push(&pair.p.script, &pair.p.client, 1, 9 - id, &push);
        CHECK_STATUS(answer, RP_BLOCKED);
        CHECK(SCRIPT_READ(answer, struct rp_blocked).noted == (id == 4));
    }
    CHECK(ask_sample(&pair, 30, 2, 0) == RP_OK);
    CHECK(run_now(&pair.p, 4, 0, 37, 25, 5) == RP_OK, "in its session's turn");
    CHECK(pair.p.script.server->waiting[RP_WAIT_PUSH][1].count == 1, "the other stands last");
    CHECK(ask_sample(&pair, 31, 10, 0) == RP_OK);
    CHECK(script_counter(&pair.p.script, RP_COUNT_releases) == 3, "and is told");
    script_close(&pair.p.script);
    check_group("8 place and promise are the session's");
}

/* 9. Given a push that overtook so many others that it would be dropped. Expect it dropped where
 *    it is let on; where one of its session waits, held back, and nobody's turn used. */
static void situation_far(void)
{
    struct pusher p;
    limited(&p, 1, 0, WIDTH);
    CHECK(run_now(&p, 1, 0, 0, 0, 15) == RP_OK);
    CHECK(run_now(&p, 3, 1, 200, 0, 2) == UINT16_MAX);
    CHECK(script_counter(&p.script, RP_COUNT_drop_far) == 1);
    CHECK(run_now(&p, 2, 0, 15, 15, 10) == RP_BLOCKED);
    CHECK(run_now(&p, 3, 1, 200, 0, 2) == RP_BLOCKED);
    CHECK(draw(&p, 1, 5) == RP_OK && script_counter(&p.script, RP_COUNT_releases) == 1);
    CHECK(run_now(&p, 3, 1, 200, 0, 2) == RP_BLOCKED, "the promise is for what is stored");
    CHECK(run_now(&p, 2, 0, 15, 15, 10) == RP_OK);
    script_close(&p.script);
    check_group("9 what would be dropped uses no turn");
}

static unsigned push_other(struct pair *pair, struct script_client *other, uint64_t epoch,
                           uint64_t step, uint16_t count)
{
    script_push_begin(&push, epoch);
    script_push_run(&push, 0, step, step, count, RP_RUN_ITEM);
    return script_push(&pair->p.script, other, 1, 30 + step, &push).status;
}

/* 10. Given a push that was promised room and does not come in time, again and again. Expect others
 *     let on after a short time, after twice that, and four times; then nothing kept free for it;
 *     and then room kept again. */
static void situation_missed(void)
{
    struct pair pair;
    struct script_client other = script_client(3);
    both_wait(&pair);
    script_connect(&pair.p.script, &other);
    uint64_t epoch = script_writer(&pair.p.script, &other, 1, 1).epoch, step = 0;
    script_later(&pair.p.script, RP_PROMISE_MS - 1);
    CHECK(push_other(&pair, &other, epoch, 0, 12) == RP_BLOCKED);
    script_later(&pair.p.script, 1);
    CHECK(push_other(&pair, &other, epoch, 0, 12) == RP_OK && error_now(&pair) == 2);
    CHECK(ask_sample(&pair, 19, 2, 0) == RP_OK);
    CHECK(push_other(&pair, &other, epoch, 12, 10) == RP_OK && error_now(&pair) == 10);
    step = 22;
    for (uint32_t missed = 1; missed <= RP_MISSES_MAX; missed++, step += 5) { /* 10 are there, */
        CHECK(push_waiting(&pair) == RP_BLOCKED);
        CHECK(ask_sample(&pair, 20 + missed, 5, 0) == RP_OK); /* 15 wait for five draws */
        CHECK(script_counter(&pair.p.script, RP_COUNT_releases) == 2 + missed);
        if (missed < RP_MISSES_MAX) {
            script_later(&pair.p.script, ((uint64_t)RP_PROMISE_MS << missed) - 1);
            CHECK(push_other(&pair, &other, epoch, step, 5) == RP_BLOCKED, "%u", missed);
            script_later(&pair.p.script, 1);
        }
        CHECK(push_other(&pair, &other, epoch, step, 5) == RP_OK, "%u", missed);
    }
    CHECK(push_waiting(&pair) == RP_BLOCKED && ask_sample(&pair, 30, 5, 0) == RP_OK);
    CHECK(push_waiting(&pair) == RP_OK && error_now(&pair) == WIDTH);
    CHECK(run_now(&pair.p, 40, 1, 25, 0, 5) == RP_BLOCKED && ask_sample(&pair, 31, 5, 0) == RP_OK);
    CHECK(push_other(&pair, &other, epoch, step, 1) == RP_BLOCKED, "kept free again");
    script_close(&pair.p.script);
    check_group("10 who misses what was promised holds nobody up");
}

/* 11. Given one that comes late once, and then in time, soon. Expect less and less time kept for
 *     it; and one that withdraws what it was promised counted as late. */
static void situation_late(void)
{
    struct pair pair;
    both_wait(&pair);
    struct rp_note *note = rp_wait_note(pair.p.script.server, RP_WAIT_PUSH, 0, 1);
    struct rp_cancel cancel = {.request = PUSH_ID, .op = RP_OP_PUSH};
    CHECK(note->waiting && note->promised && note->missed == 0);
    script_ask(&pair.p.script, &pair.p.client, RP_OP_CANCEL, 1, 98, &cancel, sizeof cancel);
    CHECK(!note->waiting && note->missed == 1);
    CHECK(push_waiting(&pair) == RP_OK, "a sample still waits for it");
    CHECK(run_now(&pair.p, 50, 1, 25, 0, 16) == RP_BLOCKED && ask_sample(&pair, 30, 1, 0) == RP_OK);
    CHECK(note->promised && note->missed == 1);
    script_later(&pair.p.script, RP_PROMISE_MS - 1);
    CHECK(run_now(&pair.p, 50, 1, 25, 0, 16) == RP_OK && note->missed == 0);
    script_close(&pair.p.script);
    check_group("11 who comes late once");
}

/* 12. Given a place that lapses though nothing was promised, one whose session missed so much that
 *     it is told without room, and the session's end. Expect no miss counted; one less; none. */
static void situation_counted(void)
{
    struct pair pair;
    limited(&pair.p, 1, 0, WIDTH);
    struct rp_note *note = rp_wait_note(pair.p.script.server, RP_WAIT_PUSH, 0, 1);
    CHECK(run_now(&pair.p, 1, 0, 0, 0, 20) == RP_OK);
    CHECK(run_now(&pair.p, 2, 0, 20, 20, 5) == RP_BLOCKED && note->waiting);
    for (uint32_t i = 0; i < 8; i++) {
        script_later(&pair.p.script, RP_NOTE_MS / 7);
        script_turn(&pair.p.script);
    }
    CHECK(!note->waiting && note->missed == 0);
    CHECK(run_now(&pair.p, 2, 0, 20, 20, 5) == RP_BLOCKED);
    note->missed = RP_MISSES_MAX;
    pair.learner = script_client(2);
    script_connect(&pair.p.script, &pair.learner);
    CHECK(ask_sample(&pair, 1, 5, 0) == RP_OK);
    CHECK(script_counter(&pair.p.script, RP_COUNT_releases) == 1);
    CHECK(!note->waiting && note->missed == RP_MISSES_MAX - 1);
    CHECK_STATUS(script_ask(&pair.p.script, &pair.p.client, RP_OP_CLOSE, 0, 3, NULL, 0), RP_OK);
    CHECK(note->missed == 0);
    script_close(&pair.p.script);
    check_group("12 what counts as missed");
}

int main(void)
{
    situation_stuck();
    situation_withdrawn();
    situation_lapsed();
    situation_void();
    situation_two_pushes();
    situation_stale();
    situation_no_room();
    situation_session();
    situation_far();
    situation_missed();
    situation_late();
    situation_counted();
    return check_done("test_server_pairs");
}
