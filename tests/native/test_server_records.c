/* A batch is kept until its client says that it is done, and nothing is drawn where no place is
 * free for another. Situations read "Given ... Expect ...". */
#include "script.h"

enum { ROWS = 40, RECORDS = 4, MAIN = 0, OTHER = 1 };

#define ALL UINT64_MAX

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script script;
static struct script_client client;
static struct script_push push;

/* Two tables with items for any number of draws. */
static void fresh(uint8_t fifo) {
    script_tables(tables);
    tables[MAIN].plan_count = 1;
    tables[OTHER].fifo = fifo;
    tables[OTHER].alpha = fifo ? 0 : tables[OTHER].alpha;
    tables[OTHER].error_max = fifo ? 60 : 1000;
    config = script_config(tables);
    config.records = RECORDS;
    script_open(&script, &config);
    client = script_client(1);
    script_connect(&script, &client);
    for (uint16_t table = 0; table < 2; table++) {
        uint64_t epoch = script_writer(&script, &client, table, 1).epoch;
        for (uint64_t at = 0; at < ROWS; at += 10) {
            script_push_begin(&push, epoch);
            script_push_run(&push, 0, at, at, 10, RP_RUN_ITEM);
            CHECK_STATUS(script_push(&script, &client, table, 1 + at, &push), RP_OK);
        }
    }
}

/* Asks for one item: drawn, or by key. under_way: which of the ids before it are not done. */
static struct script_answer ask(uint16_t table, uint64_t id, int by_key, uint64_t under_way) {
    struct {
        struct rp_sample sample;
        uint64_t key;
    } body = {script_sample(1), SCRIPT_CAPACITY};
    body.sample.mode = by_key ? RP_SAMPLE_KEYS : RP_SAMPLE_INDEPENDENT;
    body.sample.under_way = under_way;
    return script_ask(&script, &client, RP_OP_SAMPLE, table, id, &body,
                      by_key ? sizeof body : sizeof body.sample);
}

static uint16_t push_rows(uint64_t first, uint16_t count) {
    script_push_begin(&push, rp_table_epoch(rp_server_table(script.server, OTHER)));
    script_push_run(&push, 0, first, first, count, RP_RUN_ITEM);
    return script_push(&script, &client, OTHER, 100 + first, &push).status;
}

static uint16_t sample_many(uint32_t count, uint64_t id, uint64_t under_way) {
    struct rp_sample request = script_sample(count);
    request.under_way = under_way;
    return script_ask(&script, &client, RP_OP_SAMPLE, OTHER, id, &request, sizeof request).status;
}

static uint64_t drawn(void) {
    return script_counter(&script, RP_COUNT_samples);
}

/* What a repeat of each id from 1 on is answered with: 'r' its batch, 'F' FORGOTTEN. None of them
 * says that another is done. */
static void check_kept(const char *expected) {
    char kept[16] = "";
    uint64_t before = drawn();
    for (uint64_t id = 1; expected[id - 1] != 0; id++) {
        uint16_t status = ask(MAIN, id, 0, ALL).status;
        kept[id - 1] = status == RP_OK ? 'r' : status == RP_FORGOTTEN ? 'F' : '?';
    }
    CHECK(strcmp(kept, expected) == 0, "%s, not %s", kept, expected);
    CHECK(drawn() == before);
}

/* 1. Given as many batches under way as there are records, at a queue, by key and at another table.
 *    Expect one more to be held back, whichever it is, as nothing but those hold it; and drawn once
 *    one of them, or several, are said to be done: those are FORGOTTEN, the others repeated. One
 *    that does not wait is over. */
static void situation_full(void) {
    for (uint64_t done = 1; done < 1 << RECORDS; done++) {
        char expected[RECORDS + 2] = "rrrrr";
        fresh(1);
        for (uint64_t id = 1; id <= RECORDS; id++) {
            CHECK_STATUS(ask(id % 2, id, id == 2, ALL), RP_OK);
            expected[id - 1] = done >> (RECORDS - id) & 1 ? 'F' : 'r';
        }
        for (uint16_t kind = 0; kind < 3; kind++) {
            struct script_answer answer = ask(kind % 2, 5, kind == 2, ALL);
            CHECK_STATUS(answer, RP_BLOCKED);
            struct rp_blocked hold = SCRIPT_READ(answer, struct rp_blocked);
            CHECK(hold.noted == RP_NO_RECORD && hold.need == 1 && hold.by_size == 0);
        }
        struct rp_sample now = script_sample(1);
        now.now = 1;
        now.under_way = ALL;
        struct script_answer over = script_ask(&script, &client, RP_OP_SAMPLE, OTHER, 6, &now,
                                               sizeof now);
        CHECK_STATUS(over, RP_BLOCKED);
        struct rp_blocked hold = SCRIPT_READ(over, struct rp_blocked);
        CHECK(hold.noted == RP_GIVEN_UP && hold.need == 0 && hold.by_size == 0);
        CHECK(sample_many(1, 6, ALL) == RP_FORGOTTEN, "its id is used up");
        struct {
            struct rp_sample sample;
            uint64_t key;
        } read = {now, SCRIPT_CAPACITY};
        read.sample.mode = RP_SAMPLE_KEYS; /* which `now` says nothing of */
        over = script_ask(&script, &client, RP_OP_SAMPLE, OTHER, 7, &read, sizeof read);
        CHECK(SCRIPT_READ(over, struct rp_blocked).noted == RP_NO_RECORD);
        CHECK(script_info(&script, &client, OTHER).sampled == 2);
        CHECK(script.server->waiting[RP_WAIT_SAMPLE][OTHER].count == 0);
        CHECK_STATUS(ask(OTHER, 5, 0, ~done), RP_OK);
        check_kept(expected);
        script_close(&script);
    }
    check_group("1 nothing is drawn without a place for its record");
}

/* 2. Given batches under way, and SAMPLEs whose ids are far above. Expect those done that lie up to
 *    64 below, and nothing said of what lies further below. */
static void situation_far(void) {
    for (uint64_t above = 62; above <= 66; above++) {
        fresh(0);
        CHECK_STATUS(ask(MAIN, 1, 0, ALL), RP_OK);
        CHECK_STATUS(ask(MAIN, 1 + above, 0, 0), RP_OK);
        check_kept(above <= 64 ? "F" : "r");
        script_close(&script);
    }
    check_group("2 a SAMPLE tells of the 64 ids before its own");
}

/* 3. Given three batches under way and a CANCEL of one, under the name of either table. Expect that
 *    one gone, and a place free. Given the ids of the others in the way of a fifth, each in turn
 *    CANCELled as the answer names it. Expect the least one named each time. */
static void situation_cancel(void) {
    for (uint64_t id = 1; id <= 3; id++) {
        char expected[] = "rrr";
        struct rp_cancel cancel = {.request = id, .op = RP_OP_SAMPLE};
        fresh(0);
        for (uint64_t each = 1; each <= 3; each++) {
            CHECK_STATUS(ask(MAIN, each, 0, ALL), RP_OK);
        }
        CHECK_STATUS(script_ask(&script, &client, RP_OP_CANCEL, id % 2, 9, &cancel,
                                sizeof cancel), RP_OK);
        expected[id - 1] = 'F';
        check_kept(expected);
        CHECK_STATUS(ask(MAIN, 4, 0, ALL), RP_OK);
        CHECK_STATUS(ask(MAIN, 5, 0, ALL), RP_OK);
        for (uint64_t each = 1; each <= 5; each++) {
            if (each == id) {
                continue;
            }
            struct script_answer answer = ask(MAIN, 5 + each, 0, ALL);
            CHECK_STATUS(answer, RP_BLOCKED);
            cancel.request = SCRIPT_READ(answer, struct rp_blocked).need;
            CHECK(cancel.request == each, "%" PRIu64, cancel.request);
            CHECK_STATUS(script_ask(&script, &client, RP_OP_CANCEL, MAIN, 9, &cancel,
                                    sizeof cancel), RP_OK);
            CHECK_STATUS(ask(MAIN, 5 + each, 0, ALL), RP_OK);
        }
        script_close(&script);
    }
    check_group("3 a CANCEL gives up a record");
}

/* 4. Given a draw that waits at a queue while others take all places, and its items. Expect it not
 *    to be drawn, and to be told so; the next session to be served; and it to be drawn once it asks
 *    again and says that the others are done. */
static void situation_waiter(void) {
    struct script_client next = script_client(2);
    struct rp_sample all = script_sample(ROWS);
    fresh(1);
    script_connect(&script, &next);
    CHECK_STATUS(script_ask(&script, &next, RP_OP_SAMPLE, OTHER, 1, &all, sizeof all), RP_OK);
    CHECK_STATUS(ask(OTHER, 1, 0, 0), RP_BLOCKED);
    all.count = 1;
    CHECK_STATUS(script_ask(&script, &next, RP_OP_SAMPLE, OTHER, 2, &all, sizeof all), RP_BLOCKED);
    for (uint64_t id = 2; id <= 5; id++) {
        CHECK_STATUS(ask(MAIN, id, 0, ALL), RP_OK);
    }
    push_rows(ROWS, 1);
    uint16_t told = 0, served = 0;
    for (uint32_t i = 0; i < script.port.out_count; i++) {
        struct script_answer answer = script_answer(&script, i);
        int sample = answer.view.message->op == (RP_OP_SAMPLE | RP_ANSWER);
        told = sample && answer.view.message->id == 1 ? answer.status : told;
        served = sample && answer.view.message->id == 2 ? answer.status : served;
    }
    CHECK(told == RP_BLOCKED && served == RP_OK, "%u and %u", told, served);
    CHECK(script.server->waiting[RP_WAIT_SAMPLE][OTHER].count == 0);
    CHECK(push_rows(ROWS + 1, 1) == RP_OK);
    CHECK_STATUS(ask(OTHER, 1, 0, 0), RP_BLOCKED);
    CHECK_STATUS(ask(MAIN, 6, 0, 1 << 4), RP_OK); /* id 1 is under way, the others are done */
    CHECK_STATUS(ask(OTHER, 1, 0, 0), RP_OK);
    script_close(&script);
    check_group("4 who waits and finds no place holds up nobody");
}

/* 5. Given a queue of 60 with 55 items, a session whose draw of 58 waits first, and which then has
 *    all its records taken; a push of ten, and another session that asks for what is there. Expect
 *    the push held back, since nothing would be drawn behind it, and the other session served: the
 *    first one is waited for no more. Once it has room and asks again, both go on. */
static void situation_not_paired(void) {
    struct rp_cancel cancel = {.request = 3, .op = RP_OP_SAMPLE};
    for (int asks = 0; asks < 2; asks++) {
        struct script_client next = script_client(2);
        struct rp_sample some = script_sample(20);
        fresh(1);
        script_connect(&script, &next);
        CHECK(push_rows(ROWS, 10) == RP_OK && push_rows(ROWS + 10, 5) == RP_OK);
        CHECK(sample_many(58, 1, 0) == RP_BLOCKED);
        for (uint64_t id = 2; id <= 5; id++) {
            CHECK_STATUS(ask(MAIN, id, 0, ALL), RP_OK);
        }
        if (asks) {
            CHECK_STATUS(script_ask(&script, &next, RP_OP_SAMPLE, OTHER, 1, &some, sizeof some),
                         RP_OK);
        } else {
            CHECK(push_rows(ROWS + 15, 10) == RP_BLOCKED);
        }
        CHECK(script.server->waiting[RP_WAIT_SAMPLE][OTHER].count == 0);
        CHECK(script_info(&script, &client, OTHER).sampled == (asks ? 20 : 0));
        CHECK_STATUS(script_ask(&script, &client, RP_OP_CANCEL, MAIN, 9, &cancel, sizeof cancel),
                     RP_OK);
        CHECK(asks || (sample_many(58, 1, 0) == RP_BLOCKED && push_rows(ROWS + 15, 10) == RP_OK));
        CHECK(script_info(&script, &client, OTHER).sampled == (asks ? 20 : 58));
        script_close(&script);
    }
    check_group("5 a push is let on for who can be drawn for");
}

/* 6. Given a server that is killed with batches under way. Expect the next one to have each on
 *    record that is not done, and places for as many more as there were. */
static void situation_killed(void) {
    char error[256];
    uint8_t entropy[32];
    fresh(1);
    for (uint64_t id = 1; id <= 3; id++) {
        CHECK_STATUS(ask(OTHER, id, 0, 3), RP_OK);
    }
    script_entropy(entropy, 9);
    CHECK(rp_server_attach(&script.server, script.region, script.bytes, &config, entropy,
                           script.now_ns, error) == 0, "%s", error);
    check_kept("rrr");
    CHECK_STATUS(ask(OTHER, 4, 0, ALL), RP_OK);
    CHECK_STATUS(ask(OTHER, 5, 0, ALL), RP_BLOCKED);
    script_close(&script);
    check_group("6 records outlast their server");
}

/* 7. Given all places taken, and a draw that the limiter holds back, or that waits already. Expect
 *    it told that it lacks a record, without a place in the queue; then a push that is larger than
 *    what the table lets in before a draw to go on. */
static void situation_not_waited_for(void) {
    for (int waits = 0; waits < 2; waits++) {
        struct script_client next = script_client(2);
        struct rp_sample some = script_sample(20);
        fresh(1);
        script_connect(&script, &next);
        CHECK(push_rows(ROWS, 10) == RP_OK && push_rows(ROWS + 10, 5) == RP_OK);
        CHECK(!waits || sample_many(58, 1, 0) == RP_BLOCKED);
        CHECK(script.server->waiting[RP_WAIT_SAMPLE][OTHER].count == (uint32_t)waits);
        for (uint64_t id = 2; id <= 5; id++) {
            CHECK_STATUS(ask(MAIN, id, 0, ALL), RP_OK);
        }
        CHECK(push_rows(ROWS + 15, 10) == RP_BLOCKED);
        CHECK(sample_many(58, 1, 0) == RP_BLOCKED);
        CHECK(script.server->waiting[RP_WAIT_SAMPLE][OTHER].count == 0);
        CHECK_STATUS(script_ask(&script, &next, RP_OP_SAMPLE, OTHER, 1, &some, sizeof some), RP_OK);
        CHECK(script_info(&script, &client, OTHER).inserted == ROWS + 25, "the push went on");
        script_close(&script);
    }
    check_group("7 who lacks a record is waited for by nobody");
}

/* 8. Given a draw that waits at a queue, one that was not sent yet, and a newer SAMPLE that says
 *    that both are done. Expect the first to wait no more, and neither drawn as items come. */
static void situation_done_undrawn(void) {
    fresh(1);
    CHECK(sample_many(50, 1, 0) == RP_BLOCKED);
    CHECK(script.server->waiting[RP_WAIT_SAMPLE][OTHER].count == 1);
    CHECK_STATUS(ask(MAIN, 4, 0, 1), RP_OK); /* id 3 is under way, 1 and 2 are done */
    CHECK(script.server->waiting[RP_WAIT_SAMPLE][OTHER].count == 0);
    CHECK(script_counter(&script, RP_COUNT_waits_withdrawn) == 1);
    CHECK(push_rows(ROWS, 10) == RP_OK);
    CHECK(sample_many(50, 1, ALL) == RP_FORGOTTEN && sample_many(50, 2, ALL) == RP_FORGOTTEN);
    CHECK(script_info(&script, &client, OTHER).sampled == 0);
    CHECK(sample_many(50, 3, ALL) == RP_OK && sample_many(1, 6, 4) == RP_BLOCKED);
    CHECK_STATUS(ask(MAIN, 7, 0, 0), RP_OK);
    CHECK_STATUS(ask(MAIN, 5, 0, ALL), RP_FORGOTTEN); /* 6 said nothing of it, 7 did */
    script_close(&script);
    check_group("8 what is done is not drawn");
}

/* 9. Given batches under way and a SAMPLE that is refused for its body. Expect nothing said by it,
 *    and by one that is refused for its epoch, or dropped, what it says. */
static void situation_refused(void) {
    fresh(0);
    CHECK_STATUS(ask(MAIN, 1, 0, ALL), RP_OK);
    struct rp_sample request = script_sample(1);
    request.now = 2;
    CHECK_STATUS(script_ask(&script, &client, RP_OP_SAMPLE, MAIN, 2, &request, sizeof request),
                 RP_BAD_ARGUMENT);
    check_kept("r");
    request.now = 0;
    request.epoch = 1;
    CHECK_STATUS(script_ask(&script, &client, RP_OP_SAMPLE, MAIN, 2, &request, sizeof request),
                 RP_STALE_EPOCH);
    check_kept("F");
    for (uint64_t id = 2; id <= RECORDS + 3; id++) { /* more than a turn draws for a session */
        struct rp_sample most = script_sample(config.batch_max);
        script_put(&script, &client, RP_OP_SAMPLE, MAIN, id, &most, sizeof most);
    }
    script_turn(&script);
    CHECK(script_counter(&script, RP_COUNT_drop_share) == 1);
    check_kept("FFFFFF"); /* the newest of these says so, and was dropped */
    script_close(&script);
    check_group("9 what makes no sense says nothing");
}

int main(void) {
    situation_full();
    situation_far();
    situation_cancel();
    situation_waiter();
    situation_not_paired();
    situation_killed();
    situation_not_waited_for();
    situation_done_undrawn();
    situation_refused();
    return check_done("test_server_records");
}
