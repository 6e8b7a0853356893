/* The table as its neighbours see it: what a config may be, what it costs, the edges of
 * episodes, parts of items, what survives a reset and an attach. Random walks are in
 * test_writer.c.
 */
#include "table_fixture.h"

static struct model model;

static const struct rp_column row_columns[] = {{0, 48, 0}};
static const struct rp_pick row_picks[] = {{0, 0}};
static const struct rp_plan row_plans[] = {{"row", row_picks, 1}};

static struct rp_table_config plain_config(uint32_t capacity) {
    return (struct rp_table_config){.name = "plain",
                                    .capacity = capacity,
                                    .step_bytes = 48,
                                    .columns = row_columns,
                                    .column_count = 1,
                                    .plans = row_plans,
                                    .plan_count = 1,
                                    .alpha = 0.6,
                                    .writers_max = 1,
                                    .streams_max = 4,
                                    .window = 64,
                                    .pieces_max = 1};
}

/* Given one wrong number after another, expect a sentence that says which, and what would do. */
static void check_configs(void) {
    static const struct rp_column overlapping[] = {{0, 16, 0}, {8, 16, 0}};
    static const struct rp_column outside[] = {{40, 16, 0}};
    static const struct rp_pick no_column[] = {{1, 0}};
    static const struct rp_pick too_far[] = {{0, 1025}};
    static const struct rp_plan wrong_plans[] = {
        {"a", no_column, 1}, {"b", too_far, 1}, {"", row_picks, 1}, {"d", row_picks, 0}};
    struct rp_table_config c[24];
    const char *said[24];
    int n = 0;
    for (int i = 0; i < 24; i++) {
        c[i] = plain_config(1024);
    }
    c[n].capacity = 1023;
    said[n++] = "smallest legal one is 1024";
    c[n].capacity = 0;
    said[n++] = "smallest legal";
    c[n].name[0] = 0;
    said[n++] = "a name has";
    c[n].step_bytes = 44;
    said[n++] = "multiple of 8";
    c[n].alpha = -1;
    said[n++] = "alpha";
    c[n].alpha = 0.0 / 0.0;
    said[n++] = "alpha";
    c[n].columns = overlapping;
    c[n].column_count = 2;
    said[n++] = "overlap";
    c[n].columns = outside;
    said[n++] = "covers bytes 40 to 56";
    c[n].column_count = 0;
    said[n++] = "0 columns";
    c[n].plan_count = 0;
    said[n++] = "0 plans";
    c[n].plans = &wrong_plans[0];
    said[n++] = "names column 1 of 1";
    c[n].plans = &wrong_plans[1];
    said[n++] = "reaches 1025";
    c[n].plans = &wrong_plans[2];
    said[n++] = "a name has";
    c[n].plans = &wrong_plans[3];
    said[n++] = "0 picks";
    c[n].writers_max = 0;
    said[n++] = "0 writers";
    c[n].streams_max = 4097;
    said[n++] = "4097 streams";
    c[n].window = 0;
    said[n++] = "a window of 0";
    c[n].pieces_max = RP_PIECES_MAX + 1;
    said[n++] = "16385 pieces";
    c[n].spec_bytes = 65537;
    said[n++] = "a spec of 65537";
    c[n].min_size = 1000;
    said[n++] = "minimum size of 1000";
    c[n].samples_per_insert = -1;
    said[n++] = "samples per insert";
    c[n].samples_per_insert = 4;
    c[n].error_max = 7;
    said[n++] = "below 2 * max";
    for (int i = 0; i < n; i++) {
        char error[256] = "";
        struct rp_table_sizes sizes;
        CHECK(rp_table_sizes(&c[i], &sizes, error) < 0 && strstr(error, said[i]),
              "case %d: \"%s\"", i,
              error);
    }
    check_group("an impossible config is refused by a sentence");
}

/* Given a reach that decides the smallest ring: the rows before and after an anchor, itself, and
 * what may be reserved. Expect that many taken, and one fewer refused. */
static void check_smallest(void) {
    static const struct rp_pick far[] = {{0, -40}, {0, 30}};
    static const struct rp_plan plans[] = {{"far", far, 2}};
    struct rp_table_config config = plain_config(40 + 30 + 1 + 2);
    struct rp_table_sizes sizes;
    char error[256] = "";
    config.plans = plans;
    config.window = 2;
    CHECK(rp_table_sizes(&config, &sizes, error) == 0, "%s", error);
    config.capacity--;
    CHECK(rp_table_sizes(&config, &sizes, error) < 0, "a ring that holds no whole window");
    CHECK(strstr(error, "capacity of 72 steps; the smallest legal one is 73"), "%s", error);
    check_group("a ring holds one whole window at least");
}

/* Bookkeeping of a plain table: all that a step costs besides its bytes, the tree (leaf and nodes)
 * and what a writer's PUSH is copied to while it waits. */
static void check_cost(void) {
    char error[256];
    struct rp_table_config config = plain_config(1 << 20);
    config.writers_max = 16;
    config.window = 1024;
    struct rp_table_sizes sizes;
    CHECK(rp_table_sizes(&config, &sizes, error) == 0);
    size_t bytes = table_memory_bytes(&sizes);
    size_t tree = rp_tree_leaf_count(config.capacity) * 8 + rp_tree_bytes(config.capacity);
    size_t held = (size_t)config.writers_max * RP_HELD_BYTES;
    double each = (double)(bytes - tree - held - (size_t)config.capacity * config.step_bytes)
                  / config.capacity;
    printf("  bookkeeping: %.2f bytes a step, tree %.2f (1 M steps of 48 bytes, 16 writers, window "
           "1024)\n",
           each, (double)tree / config.capacity);
    CHECK(each <= 33);
}

/* One writer, one stream: steps in order, whole. */
static void push(struct fixture *t, uint64_t step, uint32_t count, uint16_t flags) {
    struct run_body body = {.run = {.sequence = step,
                                    .step = step,
                                    .count = (uint16_t)count,
                                    .piece_count = 1,
                                    .flags = flags}};
    struct rp_run_done done;
    fill_run(&model, 0, &body, 0);
    CHECK(rp_writer_check(&t->table, 0, &body.run, (const uint8_t *)body.words) == 0);
    rp_writer_run(&t->table, 0, &body.run, (const uint8_t *)body.words, &done);
    CHECK(done.committed == count);
    model_run(&model, 0, &body.run, 0);
}

static void expect_same(struct fixture *t, const char *when, int length) {
    rp_table_settle(&t->table);
    rp_table_check(&t->table);
    const char *difference = model_differs(&model, &t->table);
    CHECK(!difference, "%s, episode of %d: %s", when, length, difference);
}

/* Given episodes of every length 1 .. n + k, cut into items at every anchor, expect behind, ahead,
 * padding and the repeated last row of each item as the plan says: first with the closing row, then
 * cut by closing the writer. */
static void check_edges(int cut) {
    static const struct rp_column columns[] = {{0, 8, 0}, {8, 8, 1}};
    static const struct rp_pick picks[] = {{0, -3}, {0, -2}, {0, -1}, {0, 0},  {0, 1}, {0, 2},
                                           {0, 3},  {1, -3}, {1, -2}, {1, -1}, {1, 0}, {1, 3}};
    static const struct rp_plan plans[] = {{"edges", picks, 12}};
    struct rp_table_config config = {.name = "edges",
                                     .capacity = 64,
                                     .step_bytes = 16,
                                     .columns = columns,
                                     .column_count = 2,
                                     .plans = plans,
                                     .plan_count = 1,
                                     .alpha = 1,
                                     .writers_max = 1,
                                     .streams_max = 1,
                                     .window = 4,
                                     .pieces_max = 1};
    for (int length = 1; length <= 8; length++) {
        struct fixture t;
        uint64_t step = 0;
        fixture_open(&t, &config, 1);
        model_open(&model, &config, 1);
        model_writer_open(&model, 0, 9, 1);
        CHECK(rp_writer_open(&t.table, 9, 1) == 0);
        for (int episode = 0; episode < 30; episode++) {
            for (int row = 0; row <= length; row++, step++) {
                push(&t, step, 1, row == length && !(cut && episode == 29) ? RP_RUN_END : 0);
                for (uint64_t back = 0; back <= 8 && back <= step; back++) {
                    struct rp_create create = {.step = step - back, .priority = 1 + (double)back};
                    int expected = model_create(&model, 0, &create, 1);
                    CHECK(rp_writer_create(&t.table, 0, &create) == expected);
                }
                expect_same(&t, "open", length);
            }
            CHECK(model.inserted >= (uint64_t)(length * episode),
                  "every row but the closing one became an item");
        }
        if (cut) {
            rp_writer_close(&t.table, 0);
            model_close(&model, 0);
            CHECK(t.counters[RP_COUNT_episodes_cut] == 1);
            expect_same(&t, "cut", length);
        }
        fixture_close(&t);
    }
    check_group(cut ? "edges of episodes that were cut" : "edges of episodes of every length");
}

/* Given an item larger than a datagram, expect any part of it to be the same bytes as the whole. */
static void check_parts(void) {
    static const struct rp_column columns[] = {{0, 8, 0}, {8, 5, 1}, {16, 16, 0}};
    static const struct rp_pick picks[] = {{0, -3}, {0, 0}, {0, 2}, {1, -2},
                                           {1, 0},  {2, 0}, {2, 1}, {2, 2}};
    static const struct rp_plan plans[] = {{"parts", picks, 8}, {"row", picks + 1, 1}};
    struct rp_table_config config = {.name = "parts",
                                     .capacity = 64,
                                     .step_bytes = 32,
                                     .columns = columns,
                                     .column_count = 3,
                                     .plans = plans,
                                     .plan_count = 2,
                                     .alpha = 1,
                                     .writers_max = 1,
                                     .streams_max = 1,
                                     .window = 4,
                                     .pieces_max = 1};
    struct fixture t;
    fixture_open(&t, &config, 1);
    model_open(&model, &config, 1);
    model_writer_open(&model, 0, 9, 1);
    rp_writer_open(&t.table, 9, 1);
    for (uint64_t step = 0; step < 12; step++) {
        push(&t, step, 1, step % 6 == 5 ? RP_RUN_END : 0);
        struct rp_create create = {.step = step >= 2 ? step - 2 : 0, .priority = 1};
        rp_writer_create(&t.table, 0, &create);
        model_create(&model, 0, &create, 1);
    }
    for (uint32_t plan = 0; plan < 2; plan++) {
        uint32_t size = rp_table_item_bytes(&t.table, plan);
        for (uint64_t key = 64; key < 76; key++) {
            uint8_t whole[128];
            uint8_t part[128];
            struct rp_sample request = {.count = 1, .mode = RP_SAMPLE_KEYS};
            struct rp_batch head;
            struct rp_batch_item item;
            CHECK(rp_table_lookup(&t.table, &request, &key, &head, &item) == RP_OK);
            int alive = rp_table_gather(&t.table, plan, &item, 0, size, whole);
            for (uint32_t first = 0; first <= size; first++) {
                for (uint32_t bytes = 0; first + bytes <= size; bytes++) {
                    memset(part, 0xAA, sizeof part);
                    CHECK(rp_table_gather(&t.table, plan, &item, first, bytes, part) == alive);
                    CHECK(memcmp(part, whole + first, bytes) == 0 && part[bytes] == 0xAA);
                }
            }
        }
    }
    fixture_close(&t);
    check_group("every part of an item");
}

/* Given draws, updates and lookups that cannot be, expect their status and nothing changed. */
static void check_statuses(void) {
    struct rp_table_config config = plain_config(1024);
    struct fixture t;
    struct rp_batch head;
    struct rp_batch_item items[4];
    struct rp_sample request = {.count = 4};
    fixture_open(&t, &config, 1);
    CHECK(rp_table_draw(&t.table, &request, &head, items) == -RP_NOTHING_DRAWABLE);
    request.plan = 1;
    CHECK(rp_table_draw(&t.table, &request, &head, items) == -RP_UNKNOWN_PLAN);
    CHECK(rp_table_lookup(&t.table, &request, 0, &head, items) == -RP_UNKNOWN_PLAN);
    request = (struct rp_sample){.count = 4, .mode = RP_SAMPLE_STRATIFIED, .uniform = 1};
    CHECK(rp_table_draw(&t.table, &request, &head, items) == -RP_BAD_ARGUMENT);
    request = (struct rp_sample){.count = 0};
    CHECK(rp_table_draw(&t.table, &request, &head, items) == -RP_BAD_ARGUMENT);
    request = (struct rp_sample){.count = 1, .mode = RP_SAMPLE_KEYS};
    CHECK(rp_table_draw(&t.table, &request, &head, items) == -RP_BAD_ARGUMENT);
    request.mode = RP_SAMPLE_INDEPENDENT;
    CHECK(rp_table_lookup(&t.table, &request, 0, &head, items) == -RP_BAD_ARGUMENT);
    CHECK(t.intent.count == 0);
    fixture_close(&t);
    check_group("what cannot be drawn or looked up");
}

/* Given an update of a key whose slot holds a newer step, expect stale, the newer item's mass and
 * the largest mass so far untouched; given one of a key never issued, unknown. */
static void check_recycled(void) {
    struct rp_table_config config = plain_config(1024);
    struct fixture t;
    struct rp_updated result;
    struct rp_batch head;
    struct rp_batch_item item;
    struct rp_sample request = {.count = 1, .mode = RP_SAMPLE_KEYS};
    uint64_t key = 2048; /* generation 2 of slot 0 */
    fixture_open(&t, &config, 1);
    model_open(&model, &config, 1);
    model_writer_open(&model, 0, 9, 4);
    rp_writer_open(&t.table, 9, 4);
    for (uint64_t step = 0; step < 1040; step += 20) {
        push(&t, step, 20, RP_RUN_ITEM);
    }
    struct rp_update_entry entries[] = {{1024, 1e6}, {3, 1e6}, {5000, 1e6}};
    rp_table_update(&t.table, entries, 3, &result);
    rp_intent_commit(&t.intent);
    rp_table_settle(&t.table);
    CHECK(result.applied == 0 && result.stale == 1 && result.unknown == 2,
          "an update hit a recycled slot");
    CHECK(rp_table_lookup(&t.table, &request, &key, &head, &item) == RP_OK);
    CHECK(item.mass == RP_POWER_ONE, "an update hit a recycled slot");
    push(&t, 1040, 1, RP_RUN_ITEM);
    key = 1024 + 1040;
    CHECK(rp_table_lookup(&t.table, &request, &key, &head, &item) == RP_OK);
    CHECK(item.mass == RP_POWER_ONE, "a stale update raised the largest mass so far");
    fixture_close(&t);
    check_group("an update of a recycled slot is stale");
}

/* Given tables made one after another, each with a lap of its own. Expect keys from there on, which
 * an attach and the whole check take, slots as ever, and an update by another table's keys applied
 * to none. */
static void check_laps(void) {
    struct rp_table_config config = plain_config(1024);
    static const uint32_t laps[] = {1, 2, 1000000, UINT32_MAX};
    uint64_t before = 1024;
    for (int i = 0; i < 4; i++) {
        struct fixture t;
        struct rp_updated result;
        struct rp_table_info info;
        fixture_lap = laps[i];
        fixture_open(&t, &config, 1);
        model_open(&model, &config, 1);
        model_writer_open(&model, 0, 9, 4);
        rp_table_info(&t.table, &info);
        CHECK(info.head == 1024 * (1 + (uint64_t)laps[i]), "%llu", (unsigned long long)info.head);
        rp_writer_open(&t.table, 9, 4);
        for (uint64_t step = 0; step < 40; step += 20) {
            push(&t, step, 20, RP_RUN_ITEM);
        }
        struct rp_update_entry entries[] = {{before, 1e6}, {info.head, 2.0}};
        rp_table_update(&t.table, entries, 2, &result);
        rp_intent_commit(&t.intent);
        CHECK(result.applied == 1 && result.stale == 1, "keys of a table before");
        rp_table_settle(&t.table);
        rp_table_check(&t.table);
        fixture_attach(&t);
        rp_table_check(&t.table);
        before = info.head;
        rp_table_info(&t.table, &info);
        CHECK(info.head == before + 40);
        fixture_close(&t);
    }
    config = plain_config(1u << 24); /* as many steps as leave few laps */
    struct rp_table_info info;
    struct fixture t;
    fixture_open(&t, &config, 1);
    rp_table_info(&t.table, &info);
    CHECK(info.head % config.capacity == 0 && info.head <= UINT64_C(1) << 51);
    fixture_close(&t);
    fixture_lap = 0;
    check_group("keys begin at a lap of their own");
}

/* Given a table with a spec, expect its facts told as configured, and a damaged header refused at
 * attach. */
static void check_facts(void) {
    struct rp_table_config config = plain_config(1024);
    struct fixture t;
    char error[256] = "";
    uint32_t bytes;
    uint32_t crc;
    struct rp_table_info info;
    static const struct rp_pick pair_picks[] = {{0, 0}, {0, 1}};
    const struct rp_plan plans[] = {row_plans[0], {"pair", pair_picks, 2}};
    config.plans = plans;
    config.plan_count = 2;
    config.spec = "123456789";
    config.spec_bytes = 9;
    fixture_open(&t, &config, 1);
    const void *spec = rp_table_spec(&t.table, &bytes, &crc);
    CHECK(bytes == 9 && crc == 0xe3069283 && memcmp(spec, "123456789", 9) == 0);
    memset(&info, 0xA5, sizeof info);
    rp_table_info(&t.table, &info);
    CHECK(info.plan_count == 2 && info.item_bytes[1] == 96 && info.item_bytes[2] == 0);
    CHECK(info.reach_behind == 0 && info.reach_ahead == 1, "the second plan's");
    CHECK(memcmp(info.name, config.name, RP_NAME_BYTES) == 0 && info.capacity == 1024
          && info.number == 3);
    CHECK(info.item_bytes[0] == 48 && info.head == 1024 && info.epoch == 1 && info.min_size == 1);
    CHECK(rp_table_epoch(&t.table) == 1 && rp_table_capacity(&t.table) == 1024
          && rp_table_plan_count(&t.table) == 2);
    rp_table_reset(&t.table, 55);
    CHECK(rp_table_epoch(&t.table) == 55);
    fixture_attach(&t);
    CHECK(rp_table_epoch(&t.table) == 55);
    for (size_t at = 0; at < 32; at += 8) { /* magic, size, checksums */
        t.region[t.offset + at] ^= 1;
        struct rp_table_memory memory = fixture_memory(&t);
        CHECK(rp_table_attach(&t.table, &memory, 3, 5, &t.intent, t.counters, error)
              == -RP_BAD_REGION);
        CHECK(strstr(error, "table 3"));
        t.region[t.offset + at] ^= 1;
    }
    fixture_close(&t);
    check_group("facts, reset, attach");
}

int main(void) {
    check_configs();
    check_smallest();
    check_cost();
    check_edges(0);
    check_edges(1);
    check_parts();
    check_statuses();
    check_recycled();
    check_laps();
    check_facts();
    return check_done("test_table");
}
