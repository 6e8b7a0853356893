/* Goal: who pushes is held back as far as the limiter says, and no further: nobody for ever.
 * Situations read "Given ... Expect ...". */
#include "pusher.h"

/* 1. Given a limiter that admits twenty items beyond what was drawn. Expect BLOCKED with the need,
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
    check_group("1 blocked and released");
}

/* 2. Given steps that are no items yet, and room for twenty items. Expect creates alone to be
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
    check_group("2 creates alone are held back");
}

/* 3. Given a push that waits, and one that was told RETRY, when the server closes. Expect CLOSED
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
    check_group("3 who waits to push is told that the server closes");
}

/* 4. Given a push that waits, one that was told RETRY, and a RESET. Expect STALE_EPOCH for each,
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
    check_group("4 who is refused for good leaves the queue");
}

static void limited(struct pusher *p, uint64_t min_size, double low, double high)
{
    script_tables(tables);
    tables[1].capacity = 1 << 14;
    tables[1].window = 256;
    tables[1].min_size = min_size;
    tables[1].error_min = low;
    tables[1].error_max = high;
    config = script_config(tables);
    script_open(&p->script, &config);
    p->client = script_client(1);
    script_connect(&p->script, &p->client);
    p->epoch[1] = script_writer(&p->script, &p->client, 1, 2).epoch;
}

static unsigned draw(struct pusher *p, uint64_t id, uint32_t count)
{
    struct rp_sample sample = script_sample(count);
    return script_ask(&p->script, &p->client, RP_OP_SAMPLE, 1, id, &sample, sizeof sample).status;
}

/* 5. Given a PUSH that was lost, others behind it, and a limiter with room for few; with a SAMPLE
 *     that waits and without one, below the minimum and above it. Expect those behind to be let in
 *     as far as there is room for the lost one too, and that one at any time, without an error
 *     beyond error_max. */
static void situation_missed(void)
{
    struct pusher p;
    for (int sampled = 0; sampled < 2; sampled++) {
        limited(&p, 10, 0, 20);
        CHECK_STATUS(send_run(&p, 1, 1, 0, 0, 0, 10, RP_RUN_ITEM), RP_OK);
        CHECK(draw(&p, 2, 10) == RP_OK);
        CHECK(!sampled || draw(&p, 3, 10) == RP_BLOCKED);
        CHECK_STATUS(send_run(&p, 1, 5, 0, 20, 20, 10, RP_RUN_ITEM), RP_OK);
        CHECK_STATUS(send_run(&p, 1, 6, 0, 30, 30, 10, RP_RUN_ITEM), RP_BLOCKED);
        CHECK_STATUS(send_run(&p, 1, 4, 0, 10, 10, 10, RP_RUN_ITEM), RP_OK);
        CHECK(script_info(&p.script, &p.client, 1).inserted == 30);
        CHECK(script_counter(&p.script, RP_COUNT_releases) == 2 * (uint64_t)sampled,
              "the sample, and the push behind");
        script_close(&p.script);
        limited(&p, 20, 18, 22); /* nothing is drawn before 20: who asks does not wait */
        CHECK_STATUS(send_run(&p, 1, 2, 0, 4, 4, 10, RP_RUN_ITEM), RP_OK);
        CHECK_STATUS(send_run(&p, 1, 3, 0, 14, 14, 8, RP_RUN_ITEM), RP_OK);
        CHECK_STATUS(send_run(&p, 1, 4, 0, 22, 22, 1, RP_RUN_ITEM), RP_BLOCKED);
        CHECK(!sampled || draw(&p, 2, 2) == RP_BLOCKED);
        CHECK_STATUS(send_run(&p, 1, 1, 0, 0, 0, 4, RP_RUN_ITEM), RP_OK);
        CHECK(script_info(&p.script, &p.client, 1).inserted == 22);
        script_close(&p.script);
    }
    check_group("5 a lost push has its room");
}

/* 6. Given a gap too large for the limiter, runs in falling order, runs that are no
 *     items. Expect what leaves the gap to wait, not to be refused, and each sequence to count
 *     once. */
static void situation_gaps(void)
{
    struct pusher p;
    limited(&p, 1, 0, 20);
    CHECK_STATUS(send_run(&p, 1, 1, 0, 0, 0, 1, RP_RUN_ITEM), RP_OK);
    CHECK_STATUS(send_run(&p, 1, 3, 0, 16, 16, 10, RP_RUN_ITEM), RP_BLOCKED);
    CHECK_STATUS(send_run(&p, 1, 4, 0, 1, 1, 21, RP_RUN_ITEM), RP_NEVER_FITS);
    script_push_begin(&push, p.epoch[1]);
    script_push_run(&push, 0, 10, 10, 10, RP_RUN_ITEM);
    script_push_run(&push, 0, 1, 1, 9, RP_RUN_ITEM);
    CHECK_STATUS(script_push(&p.script, &p.client, 1, 2, &push), RP_OK);
    CHECK(script_info(&p.script, &p.client, 1).inserted == 20);
    CHECK_STATUS(send_run(&p, 1, 5, 0, 21, 21, 1, 0), RP_BLOCKED);
    CHECK_STATUS(send_run(&p, 1, 6, 0, 20, 20, 1, 0), RP_OK);
    CHECK_STATUS(send_run(&p, 1, 7, 0, 21, 21, 5, 0), RP_OK);
    CHECK(script_info(&p.script, &p.client, 1).inserted == 20, "those are no items");
    script_close(&p.script);
    check_group("6 each sequence counts once");
}

/* 7. Given a writer that is heard no more, with all the room taken by what it sent and what was
 *    lost of it. Expect another to wait for 3 s and no longer, and who comes back to ask for
 *    all of it. */
static void situation_silent(void)
{
    struct pusher p;
    limited(&p, 1, 0, 20);
    struct script_client other = script_client(2);
    script_connect(&p.script, &other);
    uint64_t epoch = script_writer(&p.script, &other, 1, 1).epoch;
    CHECK_STATUS(send_run(&p, 1, 1, 0, 1, 1, 19, RP_RUN_ITEM), RP_OK);
    struct rp_table *table = rp_server_table(p.script.server, 1);
    uint64_t begin = p.script.now_ns;
    unsigned status = RP_BLOCKED;
    while (status == RP_BLOCKED && p.script.now_ns - begin < 10000000000ull) {
        script_push_begin(&push, epoch);
        script_push_run(&push, 0, 0, 0, 6, RP_RUN_ITEM);
        status = script_push(&p.script, &other, 1, 9, &push).status;
        p.script.now_ns += 100000000;
        script_turn(&p.script);
    }
    uint64_t waited = p.script.now_ns - begin;
    CHECK(status == RP_OK && waited > 3000000000ull && waited < 3500000000ull, "%u after %" PRIu64,
          status, waited);
    CHECK(table->private->counted == 0 && table->private->reserved[0] == 20);
    CHECK_STATUS(send_run(&p, 1, 2, 0, 0, 0, 1, RP_RUN_ITEM), RP_BLOCKED);
    CHECK(draw(&p, 3, 6) == RP_OK);
    CHECK_STATUS(send_run(&p, 1, 2, 0, 0, 0, 1, RP_RUN_ITEM), RP_OK);
    CHECK(script_info(&p.script, &p.client, 1).inserted == 26 && table->private->counted == 0);
    rp_table_check(table);
    script_close(&p.script);
    check_group("7 who is silent holds nobody up");
}

int main(void)
{
    situation_blocked();
    situation_creates_blocked();
    situation_farewell();
    situation_stale_waits();
    situation_missed();
    situation_gaps();
    situation_silent();
    return check_done("test_server_limiter");
}
