/* Through the server a queue gives each item once, to whoever asks first, and both sides wait for
 * each other, none for ever. Situations read "Given ... Expect ...".
 */
#include "limited.h"

enum { SIZE = 12 };

static void queue(struct pusher *p) {
    script_tables(tables);
    tables[1].alpha = 0;
    tables[1].fifo = 1;
    tables[1].error_max = SIZE;
    open_rows(p);
}

/* The keys of a batch that was answered with one datagram: `count` in a row from `first` on. */
static void check_keys(struct pusher *p, struct script_answer answer, uint64_t id, uint32_t count,
                       uint64_t first) {
    static struct script_batch batch;
    memset(&batch, 0, sizeof batch);
    CHECK_STATUS(answer, RP_OK);
    script_collect(&p->script, id, p->client.mtu, count, SCRIPT_STEP, &batch);
    CHECK(batch.datagrams_seen == batch.datagram_count && batch.head.count == count);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(batch.items[i].key == SCRIPT_CAPACITY + first + i, "item %u", i);
        CHECK(batch.values[i][0] == first + i && !batch.overwritten[i]);
        CHECK(batch.items[i].mass * batch.head.drawable == batch.head.total, "all alike");
    }
}

static struct script_answer sample(struct pusher *p, struct script_client *client, uint64_t id,
                                   uint32_t count) {
    struct rp_sample request = script_sample(count);
    return script_ask(&p->script, client, RP_OP_SAMPLE, 1, id, &request, sizeof request);
}

static uint32_t drawable(struct pusher *p) {
    return script_info(&p->script, &p->client, 1).count;
}

/* 1. Given ten items, two learners, a datagram that is asked for again, and a server that is killed
 *    in between. Expect every item in one batch, in order, and a repeat to bring the same batch. */
static void situation_once(void) {
    struct pusher p;
    queue(&p);
    struct script_client other = script_client(2);
    script_connect(&p.script, &other);
    CHECK(run_now(&p, 1, 0, 0, 0, 10) == RP_OK);
    check_keys(&p, sample(&p, &p.client, 1, 4), 1, 4, 0);
    check_keys(&p, sample(&p, &other, 1, 3), 1, 3, 4);
    script_kill(&p.script);
    check_keys(&p, sample(&p, &p.client, 1, 4), 1, 4, 0);
    CHECK(script_counter(&p.script, RP_COUNT_samples_repeated) == 1);
    CHECK(drawable(&p) == 3);
    check_keys(&p, sample(&p, &p.client, 2, 3), 2, 3, 7);
    CHECK(drawable(&p) == 0 && script_info(&p.script, &p.client, 1).sampled == 10);
    script_close(&p.script);
    check_group("1 each item once");
}

/* 2. Given a batch that asks for more than there is. Expect it to wait, told for how many, and to
 *    be drawn as soon as they are there, even by a PUSH that alone would be too large. */
static void situation_both_wait(void) {
    struct pusher p;
    queue(&p);
    CHECK(run_now(&p, 1, 0, 0, 0, 9) == RP_OK);
    struct script_answer answer = sample(&p, &p.client, 1, SIZE);
    CHECK_STATUS(answer, RP_BLOCKED);
    struct rp_blocked blocked = SCRIPT_READ(answer, struct rp_blocked);
    CHECK(blocked.need == 3 && blocked.by_size == 0 && blocked.noted == 1);
    CHECK(run_now(&p, 2, 0, 9, 9, 6) == RP_OK, "9 + 6 are too many, and the batch waits");
    CHECK(drawable(&p) == 3 && script_counter(&p.script, RP_COUNT_releases) == 1);
    check_keys(&p, sample(&p, &p.client, 1, SIZE), 1, SIZE, 0);
    CHECK_STATUS(sample(&p, &p.client, 2, 4), RP_BLOCKED);
    CHECK(run_now(&p, 3, 0, 15, 15, SIZE + 1) == RP_NEVER_FITS, "whoever waits");
    CHECK(run_now(&p, 4, 0, 15, 15, 1) == RP_OK);
    check_keys(&p, sample(&p, &p.client, 2, 4), 2, 4, 12);
    script_close(&p.script);
    check_group("2 both sides wait, and both go on");
}

/* 3. Given a full queue, and a PUSH that waits. Expect a draw to let it in, and so rows that
 *    overwrite what waits to be drawn. */
static void situation_full(void) {
    struct pusher p;
    queue(&p);
    struct script_client other = script_client(2);
    script_connect(&p.script, &other);
    uint64_t epoch = script_writer(&p.script, &other, 1, 1).epoch;
    CHECK(run_now(&p, 1, 0, 0, 0, 6) == RP_OK && run_now(&p, 2, 0, 6, 6, 6) == RP_OK);
    CHECK(run_now(&p, 3, 0, 12, 12, 3) == RP_BLOCKED);
    check_keys(&p, sample(&p, &p.client, 1, 2), 1, 2, 0);
    CHECK(drawable(&p) == 10, "two make no room for three");
    CHECK_STATUS(sample(&p, &p.client, 2, 1), RP_OK);
    CHECK(drawable(&p) == SIZE);
    CHECK(run_now(&p, 4, 0, 15, 15, 3) == RP_BLOCKED);
    CHECK(p.script.server->waiting[RP_WAIT_PUSH][1].count == 1);
    for (uint64_t row = 0; row < 503; row += row < 496 ? 16 : 1) { /* rows that are no items */
        CHECK(p.script.server->waiting[RP_WAIT_PUSH][1].count == 1, "row %u", (unsigned)row);
        script_push_begin(&push, epoch);
        script_push_run(&push, 0, row, row, row < 496 ? 16 : 1, 0);
        CHECK_STATUS(script_push(&p.script, &other, 1, 1 + row, &push), RP_OK);
    }
    CHECK(p.script.server->waiting[RP_WAIT_PUSH][1].count == 0, "three items were overwritten");
    CHECK(drawable(&p) == SIZE - 3, "and so were three more, by the rows that came in");
    script_close(&p.script);
    check_group("3 who waits to push goes on where items were drawn, or overwritten");
}

/* 4. Given what a queue does not do. Expect it refused at once, whatever lies in the queue, and
 *    keys to be looked up as ever. */
static void situation_refused(void) {
    struct pusher p;
    queue(&p);
    for (int filled = 0; filled < 2; filled++) {
        struct rp_sample odd = script_sample(2);
        odd.mode = RP_SAMPLE_STRATIFIED;
        CHECK_STATUS(script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 1, &odd, sizeof odd),
                     RP_BAD_ARGUMENT);
        odd.mode = RP_SAMPLE_INDEPENDENT;
        odd.uniform = 1;
        CHECK_STATUS(script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 1, &odd, sizeof odd),
                     RP_BAD_ARGUMENT);
        CHECK(draw(&p, 1, SIZE + 1) == RP_NEVER_FITS);
        CHECK(filled || run_now(&p, 1, 0, 0, 0, 4) == RP_OK);
    }
    CHECK(draw(&p, 2, 4) == RP_OK);
    struct {
        struct rp_sample request;
        uint64_t keys[2];
    } look = {script_sample(2), {SCRIPT_CAPACITY + 3, SCRIPT_CAPACITY + 1}};
    look.request.mode = RP_SAMPLE_KEYS;
    look.request.uniform = 1;
    static struct script_batch batch;
    CHECK_STATUS(script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 3, &look, sizeof look), RP_OK);
    script_collect(&p.script, 3, p.client.mtu, 2, SCRIPT_STEP, &batch);
    CHECK(batch.values[0][0] == 3 && batch.values[1][0] == 1 && batch.items[0].mass == 0);
    script_close(&p.script);
    check_group("4 what a queue does not do is refused at once");
}

/* 5. Given a region of a queue. Expect another order to be refused in a sentence, and another size
 *    taken over: a full queue then waits until it is below that, and forgets no draw. */
static void situation_taken_over(void) {
    struct pusher p;
    char error[256];
    queue(&p);
    CHECK(run_now(&p, 1, 0, 0, 0, 10) == RP_OK && draw(&p, 1, 2) == RP_OK);
    tables[1].fifo = 0;
    CHECK(rp_server_compare(p.script.region, p.script.bytes, &config, error) == -RP_BAD_REGION);
    CHECK(strcmp(error, "the region was made with fifo 1 of table rows, this configuration says 0: "
                        "give the region's value, or name another region") == 0, "%s", error);
    tables[1].fifo = 1;
    tables[1].error_max = 4;
    script_kill(&p.script);
    struct script_client writer = script_client(3); /* who wrote before was told less would fit */
    script_connect(&p.script, &writer);
    uint64_t epoch = script_writer(&p.script, &writer, 1, 1).epoch;
    script_push_begin(&push, epoch);
    script_push_run(&push, 0, 0, 0, 1, RP_RUN_ITEM);
    CHECK_STATUS(script_push(&p.script, &writer, 1, 1, &push), RP_BLOCKED);
    CHECK_STATUS(sample(&p, &writer, 1, 5), RP_NEVER_FITS);
    CHECK(script_info(&p.script, &writer, 1).sampled == 2);
    check_keys(&p, sample(&p, &writer, 2, 4), 2, 4, 2);
    CHECK(script_info(&p.script, &writer, 1).count == 4, "as full as it may be");
    check_keys(&p, sample(&p, &writer, 3, 2), 3, 2, 6);
    CHECK(script_info(&p.script, &writer, 1).count == 3, "2 and the one that waited");
    script_close(&p.script);
    check_group("5 a region keeps its order, and takes another size");
}

/* 6. Given a queue with three items, and a SAMPLE of four that does not wait; one that waits, and
 *    does not wait any more when it asks again. Expect both to be held back without a place, and
 *    nothing to be drawn as the fourth item comes. */
static void situation_now(void) {
    struct pusher p;
    struct rp_blocked hold;
    struct rp_sample request = script_sample(4);
    queue(&p);
    CHECK(run_now(&p, 1, 0, 0, 0, 3) == RP_OK);
    for (uint64_t id = 1; id <= 2; id++) {
        for (uint8_t now = id == 1; now <= 1; now++) {
            request.now = now;
            struct script_answer answer = script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, id,
                                                     &request, sizeof request);
            CHECK_STATUS(answer, RP_BLOCKED);
            memcpy(&hold, answer.rest, sizeof hold);
            CHECK(hold.noted == (now ? RP_GIVEN_UP : RP_PLACE) && hold.need == 1);
        }
    }
    CHECK(run_now(&p, 2, 0, 3, 3, 1) == RP_OK);
    CHECK(drawable(&p) == 4);
    request.now = 0; /* a copy that comes late */
    CHECK_STATUS(script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 1, &request, sizeof request),
                 RP_FORGOTTEN);
    request.now = 2;
    CHECK_STATUS(script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 3, &request, sizeof request),
                 RP_BAD_ARGUMENT);
    check_keys(&p, sample(&p, &p.client, 3, 4), 3, 4, 0);
    script_close(&p.script);
    check_group("6 who does not wait takes no place");
}

/* 7. Given a queue of 12 with 8 items, a PUSH of 5 that waits, and a SAMPLE of 10 that does not.
 *    Expect both to go on: neither could alone, and who polls is never there to be met. */
static void situation_polled(void) {
    struct pusher p;
    struct rp_sample request = script_sample(10);
    queue(&p);
    CHECK(run_now(&p, 1, 0, 0, 0, 8) == RP_OK && run_now(&p, 2, 0, 8, 8, 5) == RP_BLOCKED);
    request.now = 1;
    script_put(&p.script, &p.client, RP_OP_SAMPLE, 1, 1, &request, sizeof request);
    CHECK(script_turn(&p.script) >= 2, "both are answered");
    CHECK(script_info(&p.script, &p.client, 1).sampled == 10 && drawable(&p) == 3);
    CHECK(p.script.server->waiting[RP_WAIT_PUSH][1].count == 0);
    CHECK(p.script.server->waiting[RP_WAIT_SAMPLE][1].count == 0);
    script_close(&p.script);
    check_group("7 who polls meets who waits");
}

/* 8. Given the same in a turn in which other answers have taken all packets but one, and a poll
 *    that is let on before one that is not. Expect each answered, or dropped for want of a
 *    packet. */
static void situation_polled_in_a_crowd(void) {
    for (uint64_t pings = 0; pings < 8; pings++) {
        struct pusher p;
        struct rp_sample request = script_sample(7);
        request.now = 1;
        queue(&p);
        CHECK(run_now(&p, 1, 0, 0, 0, 8) == RP_OK && run_now(&p, 2, 0, 8, 8, 5) == RP_BLOCKED);
        for (uint64_t i = 0; i < pings; i++) {
            script_put(&p.script, &p.client, RP_OP_PING, 0, 50 + i, NULL, 0);
        }
        script_put(&p.script, &p.client, RP_OP_SAMPLE, 1, 1, &request, sizeof request);
        request.count = SIZE;
        script_put(&p.script, &p.client, RP_OP_SAMPLE, 1, 2, &request, sizeof request);
        CHECK(script_turn(&p.script) >= pings + 2);
        rp_server_check(p.script.server);
        CHECK(script_info(&p.script, &p.client, 1).sampled == 7);
        CHECK(p.script.server->waiting[RP_WAIT_SAMPLE][1].count == 0);
        script_close(&p.script);
    }
    check_group("8 who polls takes no packet that another has");
}

/* 9. Given a SAMPLE that waits, a PUSH that waits, and a poll of the same session with an older id.
 *    Expect the poll to leave the other's place alone. */
static void situation_older_poll(void) {
    struct pusher p;
    struct rp_sample request = script_sample(SIZE);
    queue(&p);
    CHECK(run_now(&p, 1, 0, 0, 0, 3) == RP_OK);
    request.under_way = 1;
    request.count = 4;
    CHECK_STATUS(script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 2, &request, sizeof request),
                 RP_BLOCKED);
    request.count = SIZE;
    request.now = 1;
    CHECK_STATUS(script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 1, &request, sizeof request),
                 RP_BLOCKED);
    CHECK(p.script.server->waiting[RP_WAIT_SAMPLE][1].count == 1);
    CHECK(run_now(&p, 2, 0, 3, 3, 1) == RP_OK);
    CHECK(script_info(&p.script, &p.client, 1).sampled == 4);
    script_close(&p.script);
    check_group("9 an older poll takes no place");
}

/* 10. Given a poll that was given up, and its repeat once its items are there. Expect the repeat
 *     FORGOTTEN, which says that nothing was drawn for it or will be. */
static void situation_repeated_poll(void) {
    struct pusher p;
    struct rp_sample request = script_sample(SIZE);
    request.now = 1;
    queue(&p);
    CHECK(run_now(&p, 1, 0, 0, 0, 8) == RP_OK);
    struct script_answer answer = script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 1, &request,
                                             sizeof request);
    CHECK_STATUS(answer, RP_BLOCKED);
    struct rp_blocked hold = SCRIPT_READ(answer, struct rp_blocked);
    CHECK(hold.noted == RP_GIVEN_UP && hold.need == 4);
    CHECK(run_now(&p, 2, 0, 8, 8, 4) == RP_OK);
    CHECK_STATUS(script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 1, &request, sizeof request),
                 RP_FORGOTTEN);
    CHECK(drawable(&p) == SIZE);
    script_close(&p.script);
    check_group("10 a poll that was given up is over");
}

/* 11. Given a PUSH that waits, and in one turn a draw that waits for it and a newer poll of the
 *     same session. Expect the poll to be answered, and the draw let on at the turn's end. */
static void situation_newer_poll(void) {
    struct pusher p;
    struct rp_sample request = script_sample(10);
    queue(&p);
    CHECK(run_now(&p, 1, 0, 0, 0, 8) == RP_OK && run_now(&p, 2, 0, 8, 8, 5) == RP_BLOCKED);
    script_put(&p.script, &p.client, RP_OP_SAMPLE, 1, 1, &request, sizeof request);
    request.count = SIZE;
    request.now = 1;
    request.under_way = 1;
    script_put(&p.script, &p.client, RP_OP_SAMPLE, 1, 2, &request, sizeof request);
    CHECK(script_turn(&p.script) >= 4, "the draw twice, the PUSH, the poll");
    CHECK(script_info(&p.script, &p.client, 1).sampled == 10);
    CHECK(p.script.server->waiting[RP_WAIT_SAMPLE][1].count == 0);
    CHECK_STATUS(script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 2, &request, sizeof request),
                 RP_FORGOTTEN); /* it was given up */
    script_close(&p.script);
    check_group("11 a newer poll is answered beside a draw that waits");
}

int main(void) {
    situation_once();
    situation_both_wait();
    situation_full();
    situation_refused();
    situation_taken_over();
    situation_now();
    situation_polled();
    situation_polled_in_a_crowd();
    situation_older_poll();
    situation_repeated_poll();
    situation_newer_poll();
    return check_done("test_server_fifo");
}
