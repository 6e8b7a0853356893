/* Priorities are updated each once and in order, whatever is repeated, late or wrong.
 * Situations read "Given ... Expect ...". */
#include "script.h"

#include <math.h>

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script script;
static struct script_client client;
static uint64_t epoch;
static struct {
    struct rp_update update;
    struct rp_update_entry entries[16];
} body;

/* Ten items of priority 1 in "rows", keys SCRIPT_CAPACITY onwards. */
static void fresh(void) {
    static struct script_push push;
    script_tables(tables);
    config = script_config(tables);
    script_open(&script, &config);
    client = script_client(1);
    script_connect(&script, &client);
    epoch = script_writer(&script, &client, 1, 1).epoch;
    script_push_begin(&push, epoch);
    script_push_run(&push, 0, 0, 0, 10, RP_RUN_ITEM);
    CHECK_STATUS(script_push(&script, &client, 1, 1, &push), RP_OK);
    body.update = (struct rp_update){.epoch = epoch};
}

static void add(uint64_t key, double priority) {
    body.entries[body.update.count++] = (struct rp_update_entry){key, priority};
}

static struct script_answer send(uint64_t id) {
    uint32_t size = (uint32_t)sizeof body.update + body.update.count * 16u;
    return script_ask(&script, &client, RP_OP_UPDATE, 1, id, &body, size);
}

static void expect(struct script_answer answer, uint16_t status, uint32_t applied, uint32_t stale,
                   uint32_t unknown) {
    CHECK_STATUS(answer, status);
    struct rp_updated seen = SCRIPT_READ(answer, struct rp_updated);
    CHECK(seen.applied == applied && seen.stale == stale && seen.unknown == unknown,
          "%u %u %u", seen.applied, seen.stale, seen.unknown);
}

static uint64_t total(void) {
    return script_info(&script, &client, 1).total;
}

/* 1. Given an update, its repeat, and one that skips an id. Expect it applied once, the same
 *    answer, EARLY; and a late repeat of an old one does not undo a newer one. */
static void situation_order(void) {
    fresh();
    add(SCRIPT_CAPACITY, 3.0);
    add(SCRIPT_CAPACITY + 1, 0.0);
    add(1, 1.0);
    add(SCRIPT_CAPACITY + 10, 1.0);
    expect(send(1), RP_OK, 2, 0, 2);
    CHECK(total() == 11 * RP_POWER_ONE);
    expect(send(1), RP_OK, 2, 0, 2);
    CHECK_STATUS(send(3), RP_EARLY);
    body.update.count = 0;
    add(SCRIPT_CAPACITY, 5.0);
    expect(send(2), RP_OK, 1, 0, 0);
    expect(send(1), RP_OK, 2, 0, 2);
    CHECK(total() == 13 * RP_POWER_ONE);
    CHECK(script_counter(&script, RP_COUNT_updates) == 2);
    CHECK(script_counter(&script, RP_COUNT_updates_repeated) == 2);
    CHECK(script_counter(&script, RP_COUNT_updates_early) == 1);
    CHECK(script_counter(&script, RP_COUNT_priorities_applied) == 3);
    CHECK(script_counter(&script, RP_COUNT_priorities_unknown) == 2);
    script_close(&script);
    check_group("1 each once, in order");
}

/* 2. Given more updates than are remembered. Expect the oldest FORGOTTEN, the others repeated. */
static void situation_forgotten(void) {
    fresh();
    add(SCRIPT_CAPACITY, 1.0);
    for (uint64_t id = 1; id <= 65; id++) {
        expect(send(id), RP_OK, 1, 0, 0);
    }
    CHECK_STATUS(send(1), RP_FORGOTTEN);
    expect(send(2), RP_OK, 1, 0, 0);
    CHECK(script_counter(&script, RP_COUNT_updates_forgotten) == 1);
    script_close(&script);
    check_group("2 forgotten updates");
}

/* 3. Given a bad priority, a stale epoch, an unknown table. Expect each its status, nothing
 *    applied, and the id used up: the next update goes on. */
static void situation_refused(void) {
    static const double bad[] = {-1.0, INFINITY, NAN, -INFINITY};
    fresh();
    uint64_t before = total();
    for (uint64_t i = 0; i < 4; i++) {
        body.update.count = 0;
        add(SCRIPT_CAPACITY + 1, 7.0);
        add(SCRIPT_CAPACITY, bad[i]);
        expect(send(1 + i), RP_BAD_PRIORITY, 0, 0, 0);
        expect(send(1 + i), RP_BAD_PRIORITY, 0, 0, 0);
    }
    body.entries[1].priority = 1.0;
    body.update.epoch++;
    expect(send(5), RP_STALE_EPOCH, 0, 2, 0);
    body.update.epoch--;
    struct script_answer answer = script_ask(&script, &client, RP_OP_UPDATE, 9, 6, &body, 48);
    expect(answer, RP_UNKNOWN_TABLE, 0, 0, 0);
    CHECK(total() == before);
    expect(send(7), RP_OK, 2, 0, 0);
    CHECK(script_counter(&script, RP_COUNT_refused_priority) == 4);
    CHECK(script_counter(&script, RP_COUNT_refused_epoch) == 1);
    script_close(&script);
    check_group("3 refused, and the ids go on");
}

/* 4. Given a kill between update and repeat. Expect the recorded answer, nothing applied again. */
static void situation_kill(void) {
    fresh();
    add(SCRIPT_CAPACITY, 3.0);
    expect(send(1), RP_OK, 1, 0, 0);
    script_kill(&script);
    CHECK(total() == 12 * RP_POWER_ONE);
    expect(send(1), RP_OK, 1, 0, 0);
    CHECK(script_counter(&script, RP_COUNT_priorities_applied) == 0);
    body.entries[0].priority = 2.0;
    expect(send(2), RP_OK, 1, 0, 0);
    CHECK(total() == 11 * RP_POWER_ONE);
    script_close(&script);
    check_group("4 kill and attach");
}

/* 5. Given items overwritten since. Expect their updates stale. */
static void situation_stale(void) {
    static struct script_push push;
    fresh();
    for (uint64_t i = 10; i < SCRIPT_CAPACITY + 5; i += 5) {
        script_push_begin(&push, epoch);
        script_push_run(&push, 0, i, i, 5, 0);
        CHECK_STATUS(script_push(&script, &client, 1, 1 + i, &push), RP_OK);
    }
    add(SCRIPT_CAPACITY, 3.0);
    add(SCRIPT_CAPACITY + 9, 3.0);
    add(SCRIPT_CAPACITY + 12, 3.0);
    struct rp_updated seen = SCRIPT_READ(send(1), struct rp_updated);
    CHECK(seen.stale == 1 && seen.applied == 1 && seen.unknown == 1, "%u %u %u", seen.applied,
          seen.stale, seen.unknown);
    CHECK(script_counter(&script, RP_COUNT_priorities_stale) == 1);
    CHECK(script_counter(&script, RP_COUNT_priorities_unknown) == 1);
    script_close(&script);
    check_group("5 stale is normal life");
}

/* 6. Given an update, and one under its id with another body. Expect the answer of the first, and
 *    nothing set. */
static void situation_other_body(void) {
    fresh();
    add(SCRIPT_CAPACITY + 1, 4);
    add(SCRIPT_CAPACITY + 2, 4);
    expect(send(1), RP_OK, 2, 0, 0);
    uint64_t before = total();
    body.update.count = 0;
    add(SCRIPT_CAPACITY + 3, 9);
    expect(send(1), RP_OK, 2, 0, 0);
    CHECK(total() == before && script_counter(&script, RP_COUNT_updates) == 1);
    script_close(&script);
    check_group("6 another body under an id that was used");
}

int main(void) {
    situation_order();
    situation_forgotten();
    situation_refused();
    situation_kill();
    situation_stale();
    situation_other_body();
    return check_done("test_server_update");
}
