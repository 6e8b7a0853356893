/* Given items of three rows in a queue, in bursts as long as the writer's window, with gaps in
 * between, of which few are drawn. Expect each to be drawn, to wait, or to be counted once as lost
 * undrawn, also where one message overwrites its oldest row and its own.
 */
#include "table/store.h"
#include "table_fixture.h"

enum { WINDOW = 12, BEHIND = 2, CAPACITY = 16 * WINDOW + 40 };

static struct fixture fixture;
static struct rp_random chance;
static uint64_t drawn;

static uint64_t roll(uint64_t bound) {
    return rp_random_below(&chance, bound);
}

/* Rows behind the writer's last, now and then a few sequences further on. */
static void push_rows(void) {
    struct run_body body = {0};
    struct rp_run_done done;
    uint32_t count = 1 + (uint32_t)roll(WINDOW - 4);
    body.run = (struct rp_run){.sequence = rp_writer_at(fixture.table.private, 0)->next_sequence
                                           + (roll(4) == 0 ? roll(4) : 0),
                               .step = rp_stream_at(fixture.table.private, 0, 0)->next_step,
                               .count = (uint16_t)count,
                               .piece_count = 1,
                               .size = 16 * count};
    if (rp_writer_check(&fixture.table, 0, &body.run, (const uint8_t *)body.words) == 0) {
        rp_writer_ask(&fixture.table);
        rp_writer_ask_run(&fixture.table, 0, &body.run);
        rp_writer_run(&fixture.table, 0, &body.run, (const uint8_t *)body.words, &done);
        rp_table_settle(&fixture.table);
    }
}

/* Items at some of the newest steps. */
static void create_items(void) {
    for (int i = 0; i < 6; i++) {
        uint64_t next = rp_stream_at(fixture.table.private, 0, 0)->next_step;
        struct rp_create create = {.step = next - 1 - roll(10), .priority = 1};
        if (next > 10 && rp_writer_check_create(&fixture.table, 0, &create) == 0) {
            rp_writer_create(&fixture.table, 0, &create);
        }
    }
    rp_table_settle(&fixture.table);
}

static void draw_one(void) {
    struct rp_batch head;
    struct rp_batch_item item;
    struct rp_sample request = {.count = 1};
    if (rp_table_draw(&fixture.table, &request, &head, &item) == RP_OK) {
        rp_intent_commit(&fixture.intent);
        rp_table_settle(&fixture.table);
        drawn++;
    }
}

/* What was in the gaps of the one before never comes. */
static void next_writer(void) {
    static uint64_t session = 1;
    rp_writer_close(&fixture.table, 0);
    rp_table_settle(&fixture.table);
    CHECK(rp_writer_open(&fixture.table, ++session, 1) == 0);
}

int main(void) {
    static const struct rp_column columns[] = {{0, 16, 1}};
    static const struct rp_pick picks[] = {{0, -BEHIND}, {0, 0}};
    static const struct rp_plan plans[] = {{"stacks", picks, 2}};
    struct rp_table_config config = {.name = "queue", .capacity = CAPACITY, .step_bytes = 16,
                                     .columns = columns, .column_count = 1, .plans = plans,
                                     .plan_count = 1, .writers_max = 1, .streams_max = 1,
                                     .window = WINDOW, .pieces_max = 1, .samples_per_insert = 1,
                                     .error_max = CAPACITY - 2 * WINDOW, .fifo = 1};
    const uint64_t *counters = fixture.counters;
    rp_random_seed(&chance, 1);
    fixture_open(&fixture, &config, 1);
    CHECK(rp_writer_open(&fixture.table, 1, 1) == 0);
    for (int i = 0; i < check_rounds(20000); i++) {
        uint64_t what = roll(20);
        void (*act)(void) = what < 10   ? push_rows
                            : what < 18 ? create_items
                            : what < 19 ? draw_one
                                        : next_writer;
        act();
        rp_table_check(&fixture.table);
        uint64_t waiting = rp_tree_count(&fixture.table.tree);
        uint64_t kept = counters[RP_COUNT_items_created] - counters[RP_COUNT_items_undrawn];
        CHECK(kept == drawn + waiting, "step %d: kept %llu, drawn %llu, waiting %llu", i,
              (unsigned long long)kept, (unsigned long long)drawn, (unsigned long long)waiting);
    }
    CHECK(drawn > 100 && counters[RP_COUNT_items_undrawn] > 1000);
    printf("  %llu drawn, %llu lost undrawn\n", (unsigned long long)drawn,
           (unsigned long long)counters[RP_COUNT_items_undrawn]);
    fixture_close(&fixture);
    return check_done("test_fifo_lost");
}
