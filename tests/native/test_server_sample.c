/* A batch is drawn once, kept, cut and served as often as asked for, and who waits is
 * served in order. Situations read "Given ... Expect ...". */
#include "script.h"

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script_push push;
static struct script_batch batch, again;

struct drawer {
    struct script script;
    struct script_client client;
    uint64_t epoch[2];
    uint64_t sequence;
};

static void fresh(struct drawer *d) {
    script_tables(tables);
    config = script_config(tables);
    script_open(&d->script, &config);
    d->client = script_client(1);
    script_connect(&d->script, &d->client);
    for (uint16_t i = 0; i < 2; i++) {
        d->epoch[i] = script_writer(&d->script, &d->client, i, 2).epoch;
    }
    d->sequence = 0;
}

/* Appends rows that are items: to "rows". */
static void fill(struct drawer *d, uint32_t count) {
    for (uint32_t i = 0; i < count; i += 10, d->sequence += 10) {
        script_push_begin(&push, d->epoch[1]);
        script_push_run(&push, 0, d->sequence, d->sequence, 10, RP_RUN_ITEM | RP_RUN_PRIORITY);
        CHECK_STATUS(script_push(&d->script, &d->client, 1, 100 + d->sequence, &push), RP_OK);
    }
}

static struct script_answer ask(struct drawer *d, uint16_t table, uint64_t id,
                                const struct rp_sample *request) {
    return script_ask(&d->script, &d->client, RP_OP_SAMPLE, table, id, request, sizeof *request);
}

static void draw(struct drawer *d, uint64_t id, const struct rp_sample *request,
                 struct script_batch *into) {
    memset(into, 0, sizeof *into);
    CHECK_STATUS(ask(d, 1, id, request), RP_OK);
    script_collect(&d->script, id, d->client.mtu, request->count, 16, into);
}

/* 1. Given a refusal, a batch under its id, and the same again. Expect the same bytes, drawn and
 *    counted once. */
static void situation_repeat(void) {
    struct drawer d;
    fresh(&d);
    fill(&d, 20);
    struct rp_sample request = script_sample(16);
    request.plan = 9;
    CHECK_STATUS(ask(&d, 1, 1, &request), RP_UNKNOWN_PLAN);
    request.plan = 0;
    draw(&d, 1, &request, &batch);
    CHECK(batch.datagrams_seen == batch.datagram_count && batch.datagram_count == 1);
    CHECK(batch.head.epoch == d.epoch[1] && batch.head.count == 16 && batch.head.drawable == 20);
    CHECK(batch.head.head == SCRIPT_CAPACITY + 20 && batch.head.total == 60 * RP_POWER_ONE);
    for (uint32_t i = 0; i < 16; i++) {
        uint64_t step = batch.items[i].key - SCRIPT_CAPACITY;
        CHECK(step < 20 && batch.values[i][0] == step && batch.values[i][1] == step);
        CHECK(batch.items[i].mass == (1 + step % 5) * RP_POWER_ONE && !batch.overwritten[i]);
    }
    draw(&d, 1, &request, &again);
    CHECK(memcmp(&batch, &again, sizeof batch) == 0);
    CHECK(script_counter(&d.script, RP_COUNT_samples) == 1);
    CHECK(script_counter(&d.script, RP_COUNT_samples_repeated) == 1);
    CHECK(script_counter(&d.script, RP_COUNT_items_sampled) == 16);
    CHECK(script_info(&d.script, &d.client, 1).sampled == 16);
    script_close(&d.script);
    check_group("1 drawn once, answered twice");
}

/* 2. Given a batch of many datagrams and a small budget. Expect the first train, pulls for the
 * rest in
 *    any order, and refusals of pulls that make no sense. */
static void situation_pull(void) {
    struct drawer d;
    fresh(&d);
    d.client.mtu = 512;
    d.client.nonce++;
    script_connect(&d.script, &d.client);
    d.epoch[1] = script_writer(&d.script, &d.client, 1, 2).epoch;
    fill(&d, 20);
    struct rp_sample request = script_sample(20);
    request.budget = 1;
    draw(&d, 1, &request, &batch);
    CHECK(batch.datagrams_seen == 1 && batch.datagram_count == 3, "%u", batch.datagram_count);
    for (uint32_t first = 3; first-- > 1;) {
        struct rp_pull pull = {.batch = 1, .first = first, .count = 1};
        struct script_answer answer =
            script_ask(&d.script, &d.client, RP_OP_PULL, 0, 50 + first, &pull, sizeof pull);
        CHECK(answer.view.message->id == 1 && answer.view.message->table == 1);
        CHECK(d.script.port.out_count == 1);
        script_collect(&d.script, 1, 512, 20, 16, &batch);
    }
    CHECK(batch.datagrams_seen == 3);
    for (uint32_t i = 0; i < 20; i++) {
        CHECK(batch.values[i][0] == batch.items[i].key - SCRIPT_CAPACITY);
    }
    static const struct {
        struct rp_pull pull;
        int status;
    } bad[] = {
        {{1, 3, 1}, RP_BAD_ARGUMENT},          {{1, 0xFFFFFFFF, 32}, RP_BAD_ARGUMENT},
        {{1, 0, 0}, RP_BAD_ARGUMENT},          {{1, 0, 33}, RP_BAD_ARGUMENT},
        {{1, 0, 0xFFFFFFFF}, RP_BAD_ARGUMENT}, {{2, 0, 1}, RP_FORGOTTEN},
        {{0, 0, 1}, RP_FORGOTTEN},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct script_answer answer = script_ask(&d.script, &d.client, RP_OP_PULL, 0, 60 + i,
                                                 &bad[i].pull, sizeof bad[i].pull);
        CHECK(answer.status == bad[i].status, "case %zu: %s", i, rp_status_name(answer.status));
        CHECK(answer.view.message->op == (RP_OP_PULL | RP_ANSWER));
    }
    CHECK(script_counter(&d.script, RP_COUNT_pulls) == 2);
    script_close(&d.script);
    check_group("2 trains and pulls");
}

/* 3. Given batches one by one. Expect each FORGOTTEN once a newer one was asked for, in SAMPLE and
 *    PULL, and never drawn again. */
static void situation_forgotten(void) {
    struct drawer d;
    fresh(&d);
    fill(&d, 20);
    struct rp_sample request = script_sample(1);
    for (uint64_t id = 1; id <= 5; id++) {
        draw(&d, id, &request, &batch);
    }
    CHECK_STATUS(ask(&d, 1, 1, &request), RP_FORGOTTEN);
    struct rp_pull pull = {.batch = 1, .first = 0, .count = 1};
    CHECK_STATUS(script_ask(&d.script, &d.client, RP_OP_PULL, 0, 1, &pull, sizeof pull),
                 RP_FORGOTTEN);
    draw(&d, 5, &request, &batch);
    CHECK(script_counter(&d.script, RP_COUNT_samples) == 5);
    request.under_way = UINT64_MAX;
    draw(&d, 80, &request, &batch);
    CHECK_STATUS(ask(&d, 1, 16, &request), RP_FORGOTTEN);
    draw(&d, 17, &request, &batch);
    CHECK(script_counter(&d.script, RP_COUNT_samples) == 7);
    CHECK(script_counter(&d.script, RP_COUNT_samples_forgotten) == 3);
    script_close(&d.script);
    check_group("3 forgotten records");
}

/* 4. Given a batch whose items are overwritten before they are served again. Expect their bits
 * set and
 *    their bytes zero, and after a reset all of them. */
static void situation_overwritten(void) {
    struct drawer d;
    fresh(&d);
    fill(&d, 20);
    struct rp_sample request = script_sample(8);
    draw(&d, 1, &request, &batch);
    struct script_push other;
    struct rp_writer_granted granted = script_writer(&d.script, &d.client, 1, 2);
    CHECK(granted.next_sequence == 20, "%" PRIu64, granted.next_sequence);
    for (uint64_t i = 0; i + 10 <= SCRIPT_CAPACITY - 10; i += 10) {
        script_push_begin(&other, d.epoch[1]);
        script_push_run(&other, 1, 20 + i, i, 10, 0);
        CHECK(script_done(script_push(&d.script, &d.client, 1, 500 + i, &other),
                          0).committed == 10);
    }
    uint64_t alive_from = script_info(&d.script, &d.client, 1).head - SCRIPT_CAPACITY;
    draw(&d, 1, &request, &again);
    uint32_t dead = 0;
    for (uint32_t i = 0; i < 8; i++) {
        CHECK(again.overwritten[i] == (again.items[i].key < alive_from), "item %u", i);
        CHECK(again.items[i].key == batch.items[i].key);
        CHECK(again.values[i][0] == (again.overwritten[i] ? 0 : batch.values[i][0]));
        dead += again.overwritten[i];
    }
    CHECK(script_counter(&d.script, RP_COUNT_items_served_overwritten) == dead && dead > 0);
    struct rp_reset reset = {.epoch = d.epoch[1]};
    script_ask(&d.script, &d.client, RP_OP_RESET, 1, 1, &reset, sizeof reset);
    granted = script_writer(&d.script, &d.client, 1, 2);
    CHECK(granted.epoch != d.epoch[1]);
    d.epoch[1] = granted.epoch;
    d.sequence = granted.next_sequence;
    fill(&d, 20); /* new rows, under the old keys perhaps */
    draw(&d, 1, &request, &again);
    for (uint32_t i = 0; i < 8; i++) {
        CHECK(again.overwritten[i] && again.values[i][0] == 0);
    }
    script_close(&d.script);
    check_group("4 overwritten items");
}

/* 5. Given an empty table and two sessions that ask. Expect BLOCKED by size, both noted, a third
 *    request of one not noted, and on release both served, first come first served. */
static void situation_waiting(void) {
    struct drawer d;
    fresh(&d);
    struct script_client other = script_client(2);
    script_connect(&d.script, &other);
    struct rp_sample request = script_sample(6);
    request.under_way = UINT64_MAX;
    struct script_answer answer = ask(&d, 1, 1, &request);
    CHECK_STATUS(answer, RP_BLOCKED);
    struct rp_blocked blocked = SCRIPT_READ(answer, struct rp_blocked);
    CHECK(blocked.by_size == 1 && blocked.noted == 1 && blocked.need >= 1);
    request.count = 2;
    answer = ask(&d, 1, 2, &request);
    CHECK(SCRIPT_READ(answer, struct rp_blocked).noted == 0);
    request.count = 3;
    answer = script_ask(&d.script, &other, RP_OP_SAMPLE, 1, 1, &request, sizeof request);
    CHECK(SCRIPT_READ(answer, struct rp_blocked).noted == 1);
    request.count = 6;
    answer = ask(&d, 1, 1, &request);
    CHECK(SCRIPT_READ(answer, struct rp_blocked).noted == 1);

    script_push_begin(&push, d.epoch[1]);
    script_push_run(&push, 0, 0, 0, 5, RP_RUN_ITEM);
    CHECK_STATUS(script_push(&d.script, &d.client, 1, 9, &push), RP_OK);
    CHECK(d.script.port.out_count == 1, "six are not there yet, and nobody overtakes");
    request.count = 1;
    answer = script_ask(&d.script, &other, RP_OP_SAMPLE, 1, 2, &request, sizeof request);
    CHECK_STATUS(answer, RP_BLOCKED);
    CHECK(SCRIPT_READ(answer, struct rp_blocked).noted == 0);
    script_push_begin(&push, d.epoch[1]);
    script_push_run(&push, 0, 5, 5, 5, RP_RUN_ITEM);
    CHECK_STATUS(script_push(&d.script, &d.client, 1, 10, &push), RP_OK);
    CHECK(d.script.port.out_count == 3, "%u", d.script.port.out_count);
    answer = script_answer(&d.script, 1);
    CHECK(answer.view.outer->connection == d.client.connection && answer.view.message->id == 1);
    CHECK_STATUS(answer, RP_OK);
    answer = script_answer(&d.script, 2);
    CHECK(answer.view.outer->connection == other.connection && answer.view.message->id == 1);
    CHECK(script_counter(&d.script, RP_COUNT_releases) == 2);
    CHECK(script_info(&d.script, &d.client, 1).sampled == 9);
    request.count = 6;
    CHECK_STATUS(ask(&d, 1, 1, &request), RP_OK);
    CHECK(script_info(&d.script, &d.client, 1).sampled == 9);
    request.count = 40;
    CHECK_STATUS(ask(&d, 1, 3, &request), RP_NEVER_FITS);
    script_close(&d.script);
    check_group("5 waiting, first come first served");
}

/* 6. Given keys in place of a draw. Expect their items, dead ones overwritten, nothing charged. */
static void situation_keys(void) {
    struct drawer d;
    fresh(&d);
    fill(&d, 20);
    struct {
        struct rp_sample request;
        uint64_t keys[3];
    } body = {script_sample(3), {SCRIPT_CAPACITY + 7, 5, SCRIPT_CAPACITY + 19}};
    body.request.mode = RP_SAMPLE_KEYS;
    struct script_answer answer =
        script_ask(&d.script, &d.client, RP_OP_SAMPLE, 1, 1, &body, sizeof body);
    CHECK_STATUS(answer, RP_OK);
    memset(&batch, 0, sizeof batch);
    script_collect(&d.script, 1, 1400, 3, 16, &batch);
    CHECK(batch.values[0][0] == 7 && batch.values[2][0] == 19);
    CHECK(!batch.overwritten[0] && batch.overwritten[1] && !batch.overwritten[2]);
    CHECK(batch.items[1].mass == 0 && batch.values[1][0] == 0);
    CHECK(script_info(&d.script, &d.client, 1).sampled == 0);
    script_close(&d.script);
    check_group("6 batches by keys");
}

/* 7. Given requests that cannot be served. Expect each its status, and no id used up. */
static void situation_refused(void) {
    struct drawer d;
    fresh(&d);
    fill(&d, 20);
    static const struct {
        struct rp_sample request;
        uint16_t table;
        int status;
    } bad[] = {
        {{.count = 65}, 1, RP_BATCH_TOO_LARGE},
        {{.count = 0xFFFFFFFF}, 1, RP_BATCH_TOO_LARGE},
        {{.count = 0}, 1, RP_BAD_ARGUMENT},
        {{.count = 1, .plan = 1}, 1, RP_UNKNOWN_PLAN},
        {{.count = 1, .mode = 3}, 1, RP_BAD_ARGUMENT},
        {{.count = 1, .mode = 1, .uniform = 1}, 1, RP_BAD_ARGUMENT},
        {{.count = 1, .epoch = 1}, 1, RP_STALE_EPOCH},
        {{.count = 1, .now = 2}, 1, RP_BAD_ARGUMENT},
        {{.count = 1, .fields = RP_ITEM_ROWS}, 1, RP_BAD_ARGUMENT},
        {{.count = 1, .fields = 0x8000}, 1, RP_BAD_ARGUMENT},
        {{.count = 1}, 2, RP_UNKNOWN_TABLE},
        {{.count = 5, .mode = 2}, 1, RP_BAD_SIZE},
        {{.count = 0xFFFFFFFF, .mode = 2}, 1, RP_BAD_SIZE},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct script_answer answer = ask(&d, bad[i].table, 1, &bad[i].request);
        CHECK(answer.status == bad[i].status, "case %zu: %s", i, rp_status_name(answer.status));
    }
    struct rp_sample request = script_sample(1);
    CHECK_STATUS(ask(&d, 1, 1, &request), RP_OK);
    script_close(&d.script);
    check_group("7 refusals");
}

/* 8. Given a killed server. Expect the record served again, byte for byte, seen ids still seen, the
 *    generator going on, and a waiting request noted anew by its repeat. */
static void situation_kill(void) {
    struct drawer d, e;
    struct rp_sample request = script_sample(8);
    fresh(&d);
    fill(&d, 20);
    draw(&d, 1, &request, &batch);
    script_kill(&d.script);
    draw(&d, 1, &request, &again);
    CHECK(memcmp(&batch, &again, sizeof batch) == 0);
    request.count = 4;
    draw(&d, 2, &request, &batch);
    fresh(&e);
    fill(&e, 20);
    request.count = 8;
    draw(&e, 1, &request, &again);
    request.count = 4;
    draw(&e, 2, &request, &again);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(batch.items[i].key == again.items[i].key, "the same draws with and without a kill");
    }
    struct rp_sample waiting = script_sample(9);
    CHECK_STATUS(ask(&d, 1, 3, &waiting), RP_BLOCKED);
    script_kill(&d.script);
    struct script_answer answer = ask(&d, 1, 3, &waiting);
    CHECK_STATUS(answer, RP_BLOCKED);
    CHECK(SCRIPT_READ(answer, struct rp_blocked).noted == 1);
    script_close(&d.script);
    script_close(&e.script);
    check_group("8 kill and attach");
}

/* 9. Given a table with items that are all of priority zero. Expect NOTHING_DRAWABLE, also for a
 *    request that waited for the limiter; and with one new item a batch. */
static void situation_nothing(void) {
    struct drawer d;
    fresh(&d);
    fill(&d, 10);
    struct {
        struct rp_update update;
        struct rp_update_entry entries[10];
    } body = {.update = {.epoch = d.epoch[1], .count = 10}};
    for (uint64_t i = 0; i < 10; i++) {
        body.entries[i].key = SCRIPT_CAPACITY + i;
    }
    struct script_answer answer =
        script_ask(&d.script, &d.client, RP_OP_UPDATE, 1, 1, &body, sizeof body);
    CHECK(SCRIPT_READ(answer, struct rp_updated).applied == 10);
    struct rp_sample request = script_sample(1);
    answer = ask(&d, 1, 1, &request);
    CHECK_STATUS(answer, RP_NOTHING_DRAWABLE);
    CHECK(script_counter(&d.script, RP_COUNT_samples_empty) == 1);
    request.count = 11;
    CHECK_STATUS(ask(&d, 1, 1, &request), RP_BLOCKED);
    body.update.count = 1;
    body.entries[0] = (struct rp_update_entry){SCRIPT_CAPACITY + 10, 0};
    script_push_begin(&push, d.epoch[1]);
    struct rp_run *run = script_push_run(&push, 0, 10, 10, 1, RP_RUN_ITEM | RP_RUN_PRIORITY);
    *(double *)(void *)(run + 1) = 0;
    CHECK_STATUS(script_push(&d.script, &d.client, 1, 9, &push), RP_OK);
    CHECK(d.script.port.out_count == 2);
    CHECK_STATUS(script_answer(&d.script, 1), RP_NOTHING_DRAWABLE);
    script_push_begin(&push, d.epoch[1]);
    script_push_run(&push, 0, 11, 11, 5, RP_RUN_ITEM);
    CHECK_STATUS(script_push(&d.script, &d.client, 1, 10, &push), RP_OK);
    draw(&d, 2, &request, &batch);
    CHECK(batch.head.drawable == 5);
    script_close(&d.script);
    check_group("9 nothing drawable");
}

/* 10. Given too little transmit room. Expect a pull answered wholly or not at all, and counted; a
 *     first train cut short where the room ends, its rest to be pulled. */
static void situation_room(void) {
    struct drawer d;
    fresh(&d);
    d.client.mtu = 512;
    d.client.nonce++;
    script_connect(&d.script, &d.client);
    d.epoch[1] = script_writer(&d.script, &d.client, 1, 2).epoch;
    fill(&d, 20);
    struct rp_sample request = script_sample(20);
    d.script.port.room_left = 2;
    draw(&d, 1, &request, &batch);
    CHECK(batch.datagrams_seen == 2 && batch.datagram_count == 3);
    struct rp_pull pull = {.batch = 1, .first = 0, .count = 3};
    d.script.port.room_left = 2;
    script_put(&d.script, &d.client, RP_OP_PULL, 0, 2, &pull, sizeof pull);
    CHECK(script_turn(&d.script) == 0);
    CHECK(script_counter(&d.script, RP_COUNT_drop_no_room) == 1);
    d.script.port.room_left = UINT32_MAX;
    script_ask(&d.script, &d.client, RP_OP_PULL, 0, 3, &pull, sizeof pull);
    CHECK(d.script.port.out_count == 3 && script_counter(&d.script, RP_COUNT_pulls) == 1);
    script_close(&d.script);
    check_group("10 transmit room");
}

/* 11. Given two that wait, and the first closes its session. Expect the second served alone, and
 *     its repeat answered from the record. */
static void situation_waiter_leaves(void) {
    struct drawer d;
    fresh(&d);
    struct script_client other = script_client(2), third = script_client(3);
    script_connect(&d.script, &other);
    script_connect(&d.script, &third);
    struct rp_sample request = script_sample(5);
    script_ask(&d.script, &other, RP_OP_SAMPLE, 1, 1, &request, sizeof request);
    struct script_answer answer =
        script_ask(&d.script, &third, RP_OP_SAMPLE, 1, 1, &request, sizeof request);
    CHECK(SCRIPT_READ(answer, struct rp_blocked).noted == 1);
    CHECK_STATUS(script_ask(&d.script, &other, RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
    fill(&d, 10);
    CHECK(d.script.port.out_count == 2);
    answer = script_answer(&d.script, 1);
    CHECK(answer.view.outer->connection == third.connection);
    script_ask(&d.script, &third, RP_OP_SAMPLE, 1, 1, &request, sizeof request);
    CHECK(script_counter(&d.script, RP_COUNT_samples) == 1);
    CHECK(script_counter(&d.script, RP_COUNT_samples_repeated) == 1);
    CHECK(script_info(&d.script, &d.client, 1).sampled == 5);
    script_close(&d.script);
    check_group("11 a waiter leaves");
}

/* 12. Given a minimum size of 400 items in a ring of 512 steps whose every second row only closes
 *     an episode: 256 items are there at most. Expect a draw once 400 were created, for good;
 *     after a reset the minimum is to be reached anew. */
static void situation_min_size(void) {
    struct drawer d;
    fresh(&d);
    script_close(&d.script);
    tables[0].plan_count = 1;
    tables[0].min_size = 400;
    config = script_config(tables);
    script_open(&d.script, &config);
    script_connect(&d.script, &d.client);
    d.epoch[0] = script_writer(&d.script, &d.client, 0, 2).epoch;
    struct rp_sample request = script_sample(1);
    for (uint64_t item = 0; item < 400; item++) {
        struct script_answer answer = ask(&d, 0, 1, &request);
        CHECK_STATUS(answer, RP_BLOCKED);
        CHECK(SCRIPT_READ(answer, struct rp_blocked).need == 400 - item);
        script_push_begin(&push, d.epoch[0]);
        script_push_run(&push, 0, 2 * item, 2 * item, 1, RP_RUN_ITEM);
        script_push_run(&push, 0, 2 * item + 1, 2 * item + 1, 1, RP_RUN_END);
        CHECK_STATUS(script_push(&d.script, &d.client, 0, item + 1, &push), RP_OK);
    }
    CHECK(script_info(&d.script, &d.client, 0).count == SCRIPT_CAPACITY / 2);
    CHECK_STATUS(ask(&d, 0, 1, &request), RP_OK);
    CHECK_STATUS(ask(&d, 0, 2, &request), RP_OK);
    script_kill(&d.script);
    CHECK_STATUS(ask(&d, 0, 3, &request), RP_OK);
    struct rp_reset reset = {.epoch = d.epoch[0]};
    CHECK_STATUS(script_ask(&d.script, &d.client, RP_OP_RESET, 0, 1, &reset, sizeof reset), RP_OK);
    CHECK_STATUS(ask(&d, 0, 4, &request), RP_BLOCKED);
    script_close(&d.script);
    check_group("12 a minimum size that was reached stays reached");
}

/* 13. Given sessions that can take one datagram at a time, two, and many. Expect a first train of
 *     what each can take, the budget it asks for at most, and of a pull of all no more either. */
static void situation_receive_budget(void) {
    struct drawer d;
    fresh(&d);
    fill(&d, 20);
    for (uint8_t budget = 1; budget <= 3; budget++) {
        struct script_client small = script_client((uint8_t)(10 + budget));
        struct rp_sample request = script_sample(20);
        small.mtu = 512;
        small.receive_budget = budget;
        script_connect(&d.script, &small);
        script_info(&d.script, &small, 1);
        request.mode = RP_SAMPLE_INDEPENDENT;
        struct script_answer answer =
            script_ask(&d.script, &small, RP_OP_SAMPLE, 1, 1, &request, sizeof request);
        if (budget > 1) { /* the limiter lets twenty be drawn */
            CHECK_STATUS(answer, RP_BLOCKED);
            struct {
                struct rp_sample request;
                uint64_t keys[20];
            } body = {.request = request};
            body.request.mode = RP_SAMPLE_KEYS;
            for (uint32_t i = 0; i < 20; i++) {
                body.keys[i] = SCRIPT_CAPACITY + i;
            }
            answer = script_ask(&d.script, &small, RP_OP_SAMPLE, 1, 2, &body, sizeof body);
        }
        CHECK_STATUS(answer, RP_OK);
        CHECK(d.script.port.out_count == budget, "%u datagrams", d.script.port.out_count);
        struct rp_pull pull = {.batch = budget > 1 ? 2 : 1, .count = 32};
        answer = script_ask(&d.script, &small, RP_OP_PULL, 0, 1, &pull, sizeof pull);
        CHECK_STATUS(answer, RP_OK);
        CHECK(d.script.port.out_count == budget, "%u pulled", d.script.port.out_count);
        CHECK_STATUS(script_ask(&d.script, &small, RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
    }
    script_close(&d.script);
    check_group("13 no train is longer than who asks can take");
}

/* 14. Given a batch, and a request under its id for another one. Expect the same items. And CANCEL
 *     of an id far above what came, and of one below it: both are used up, and what is too far
 *     below to be told from what was done. */
static void situation_other_body(void) {
    static struct script_batch first, second;
    struct drawer d;
    struct rp_sample request = script_sample(4), other = script_sample(4);
    struct rp_cancel cancel = {.request = 1000, .op = RP_OP_SAMPLE};
    fresh(&d);
    fill(&d, 20);
    request.under_way = other.under_way = UINT64_MAX;
    draw(&d, 100, &request, &first);
    other.mode = RP_SAMPLE_STRATIFIED;
    draw(&d, 100, &other, &second);
    CHECK(memcmp(&first, &second, sizeof first) == 0);
    CHECK(script_info(&d.script, &d.client, 1).sampled == 4);
    CHECK_STATUS(script_ask(&d.script, &d.client, RP_OP_CANCEL, 1, 9, &cancel, sizeof cancel),
                 RP_OK);
    CHECK_STATUS(ask(&d, 1, 1000, &request), RP_FORGOTTEN);
    CHECK_STATUS(ask(&d, 1, 1000 - 64, &request), RP_FORGOTTEN);
    draw(&d, 1000 - 63, &request, &second); /* near enough to be told that it is new */
    cancel.request = 1000 - 62;
    CHECK_STATUS(script_ask(&d.script, &d.client, RP_OP_CANCEL, 1, 9, &cancel, sizeof cancel),
                 RP_OK);
    CHECK_STATUS(ask(&d, 1, 1000 - 62, &request), RP_FORGOTTEN);
    draw(&d, 1001, &request, &second);
    script_close(&d.script);
    check_group("14 another body; CANCEL of what is far");
}

int main(void) {
    situation_repeat();
    situation_pull();
    situation_forgotten();
    situation_overwritten();
    situation_waiting();
    situation_keys();
    situation_refused();
    situation_kill();
    situation_nothing();
    situation_room();
    situation_waiter_leaves();
    situation_min_size();
    situation_receive_budget();
    situation_other_body();
    return check_done("test_server_sample");
}
