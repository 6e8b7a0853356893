/* bench_attach.c: what taking a full table over costs, and what comparing its steps with their
 * checksums adds.
 *
 *     bench_attach [steps, default 1,000,000] [reach behind, default 0] [reach ahead, default 0]
 *
 * Every row of 48 bytes is an item, in episodes of 200 rows; the ring went round once. Nothing of a
 * server that was killed differs for an attach from one that stands still, but the redo of one
 * transaction.
 */
#include "bench.h"
#include "table_memory.h"

enum { STEP = 48, RUN = 20, EPISODE = 200, WINDOW = 1024, ROUNDS = 7 };

static struct rp_intent intent;
static struct rp_table table;
static uint64_t counters[RP_COUNTER_COUNT];

/* Twenty rows, and a create for each row whose window has come. */
static void push(uint64_t step, uint32_t ahead) {
    static uint64_t body[RUN * STEP / 8];
    struct rp_run run = {.sequence = step, .step = step, .count = RUN, .piece_count = 1,
                         .flags = step % EPISODE == EPISODE - RUN ? RP_RUN_END : 0,
                         .size = RUN * STEP};
    struct rp_run_done done;
    body[step % (RUN * STEP / 8)] = step;
    CHECK(rp_writer_check(&table, 0, &run, (const uint8_t *)body) == 0);
    rp_writer_run(&table, 0, &run, (const uint8_t *)body, &done);
    CHECK(done.committed == RUN);
    for (uint64_t at = step < ahead ? 0 : step - ahead; at + ahead < step + RUN; at++) {
        struct rp_create create = {.step = at, .priority = 1.0 + (double)(at % 7)};
        CHECK(rp_writer_check_create(&table, 0, &create) == 0);
        (void)rp_writer_create(&table, 0, &create); /* an episode's last row is none */
    }
}

int main(int count, char **arguments) {
    uint32_t capacity = count > 1 ? (uint32_t)strtoul(arguments[1], NULL, 0) : 1000000;
    int behind = count > 2 ? atoi(arguments[2]) : 0, ahead = count > 3 ? atoi(arguments[3]) : 0;
    const struct rp_column column = {0, STEP, 0};
    const struct rp_pick picks[] = {{0, -behind}, {0, ahead}};
    const struct rp_plan plan = {"window", picks, 2};
    struct rp_table_config config = {
        .name = "rows", .step_bytes = STEP, .columns = &column, .column_count = 1, .plans = &plan,
        .plan_count = 1, .alpha = 0.6, .writers_max = 1, .streams_max = 1, .window = WINDOW,
        .pieces_max = 1, .capacity = capacity};
    char error[256] = "", workload[96];
    struct rp_table_sizes sizes;
    CHECK(rp_table_sizes(&config, &sizes, error) == 0, "%s", error);
    size_t bytes = table_memory_bytes(&sizes), log = (sizeof(struct rp_intent_log) + 63) & ~63ul;
    uint8_t *region = bench_memory(log + bytes);
    rp_intent_open(&intent, region, log + bytes, (struct rp_intent_log *)(void *)region);
    struct rp_table_memory memory = table_memory_at(region + log, &sizes);
    int status = rp_table_create(&table, &memory, &config, 0, 1, 1, 1, 0, &intent, counters, error);
    CHECK(status == 0, "%s", error);
    CHECK(rp_writer_open(&table, 1, 1) == 0);
    for (uint64_t step = 0; step < capacity + WINDOW; step += RUN) {
        push(step, (uint32_t)ahead);
    }
    static struct bench_rounds attach, verify;
    struct rp_damage damage;
    for (int i = 0; i < ROUNDS; i++) {
        double start = bench_ns();
        CHECK(rp_table_attach(&table, &memory, 0, 1, &intent, counters, error) == 0, "%s",
              error);
        bench_keep(&attach, 1e3 / (bench_ns() - start)); /* a rate: more is better */
        damage = (struct rp_damage){0};
        start = bench_ns();
        rp_table_verify_steps(&table, 0, capacity, &damage);
        bench_keep(&verify, (double)damage.steps * STEP / (bench_ns() - start));
        CHECK(damage.damaged == 0 && damage.steps > capacity - WINDOW);
    }
    snprintf(workload, sizeof workload, "%u steps, windows of %d + 1 + %d", capacity, behind,
             ahead);
    struct bench_row row = {"attach", "engine", workload, 0};
    qsort(attach.value, attach.count, sizeof attach.value[0], bench_compare);
    bench_number(&row, "median", 1e-3 / attach.value[attach.count / 2], "ms");
    bench_number(&row, "best", 1e-3 / attach.value[attach.count - 1], "ms");
    bench_number(&row, "items", (double)rp_tree_count(&table.tree), "");
    row.name = "verify_steps";
    bench_rate(&row, &verify, "GB/s");
    return check_done("bench_attach");
}
