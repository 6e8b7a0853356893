/* The table from outside: a run goes in, a batch comes out. */
#include <string.h>

#include "check.h"
#include "table.h"

int main(void) {
    static const struct rp_column columns[] = {{0, 8, 0}, {8, 16, 0}};
    static const struct rp_pick picks[] = {{0, 0}, {1, 0}};
    static const struct rp_plan plans[] = {{"row", picks, 2}};
    struct rp_table_config config = {.name = "t", .capacity = 64, .step_bytes = 24, .columns = columns,
        .column_count = 2, .plans = plans, .plan_count = 1, .alpha = 0.5, .writers_max = 1, .streams_max = 1,
        .window = 4, .pieces_max = 1};
    char error[256] = "";
    static uint64_t counters[RP_COUNTER_COUNT];
    size_t bytes = rp_table_bytes(&config, error);
    CHECK(bytes > 0, "%s", error);
    size_t log = (sizeof(struct rp_intent_log) + 63) / 64 * 64;
    uint8_t *region = aligned_alloc(64, log + bytes);
    memset(region, 0, log + bytes);
    struct rp_intent intent;
    struct rp_table table;
    rp_intent_open(&intent, region, log + bytes, (void *)region);
    CHECK(rp_table_create(&table, region + log, &config, 0, 1, 7, &intent, counters, error) == 0, "%s", error);
    int w = rp_writer_open(&table, 99, 1);
    CHECK(w == 0);
    struct { double p[4]; uint64_t rows[4][3]; } body;
    for (uint64_t r = 0; r < 100; r += 4) {
        struct rp_run run = {r, r, 0, RP_RUN_ITEM | RP_RUN_PRIORITY, 4, 0, 1, 0, sizeof body};
        struct rp_run_done done;
        for (uint64_t i = 0; i < 4; i++) {
            body.p[i] = 1.0 + (double)i;
            for (int c = 0; c < 3; c++) {
                body.rows[i][c] = (r + i) * 3 + (uint64_t)c;
            }
        }
        CHECK(rp_writer_check(&table, w, &run, (void *)&body) == 0);
        rp_writer_run(&table, w, &run, (void *)&body, &done);
        CHECK(done.committed == 4 && done.lost == 0 && done.key == 64 + r);
        rp_table_check(&table);
    }
    struct rp_sample request = {.count = 16};
    struct rp_batch head;
    struct rp_batch_item items[16];
    CHECK(rp_table_draw(&table, &request, &head, items) == RP_OK);
    rp_intent_commit(&intent);
    rp_table_settle(&table);
    for (int i = 0; i < 16; i++) {
        uint64_t row[3];
        CHECK(rp_table_gather(&table, 0, &items[i], 0, 24, (void *)row) == 1);
        CHECK(row[0] == (items[i].key - 64) * 3 && row[2] == row[0] + 2);
    }
    struct rp_update_entry entries[2] = {{items[0].key, 9.0}, {64, 1.0}};
    struct rp_updated updated;
    rp_table_update(&table, entries, 2, &updated);
    rp_intent_commit(&intent);
    rp_table_settle(&table);
    CHECK(updated.applied == 1 && updated.stale == 1);
    rp_table_check(&table);
    check_group("a run goes in, a batch comes out");
    free(region);
    return check_done("test_table");
}
