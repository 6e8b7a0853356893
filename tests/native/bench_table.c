/* bench_table.c: what a table does on one core, without a network: redo log, powers and tree
 * included.
 *
 *     bench_table [items, default 1,000,000] [passes over the work, default 3]
 *
 * The table is full; every row of 48 bytes is an item with a random priority over six decades. A
 * draw is all that answers a SAMPLE but the bytes; an update is all that an UPDATE does, of random
 * keys to random priorities. This processor's kernels and the portable ones take the same steps
 * from the same seed; their answers are hashed, and different hashes end the program with status
 * 1. A table of frames is gathered a datagram at a time. Last comes what a step of a plain table
 * costs in memory beyond its bytes and the tree.
 */
#include <math.h>

#include "bench.h"
#include "base/siphash.h"
#include "table_memory.h"

enum {
    STEP = 48,
    RUN = 29,
    WORK = 1 << 19,
    ROUND = 1 << 15,
    BATCH_LARGE = 4080,
    WINDOW = 1024,
    FRAME = 7056,
    FRAMES = 1024,
};

struct bench {
    struct rp_table_config config;
    struct rp_table table;
    struct rp_intent intent;
    struct rp_random random;
    uint64_t counters[RP_COUNTER_COUNT];
    uint64_t body[RUN + RUN * STEP / 8];
    uint64_t step;
    uint64_t hash;
    struct rp_batch_item items[ROUND];
    struct rp_update_entry entries[WORK];
};

static struct bench bench;
static char workload[96];
static int passes;

static double random_priority(void) {
    double share = (double)rp_random_below(&bench.random, 1 << 30) / (1 << 30);
    return exp(share * log(1e6)) * 1e-3;
}

static void mix(const void *bytes, size_t size) {
    static const uint8_t key[16];
    uint64_t pair[2] = {bench.hash, rp_siphash(key, bytes, size)};
    bench.hash = rp_siphash(key, pair, sizeof pair);
}

/* ---- work: each does one round and returns millions a second ---- */

struct work {
    struct rp_sample request;
    uint32_t batch;
    uint32_t round;
};

static double push(struct work *work) {
    struct rp_run run = {.flags = RP_RUN_ITEM | RP_RUN_PRIORITY, .count = RUN, .piece_count = 1,
                         .size = RUN * (sizeof(double) + STEP)};
    struct rp_run_done done;
    const uint8_t *bytes = (const uint8_t *)bench.body;
    double start = bench_ns();
    for (uint32_t i = 0; i < work->round / RUN; i++) {
        run.sequence = run.step = bench.step;
        bench.body[RUN + bench.step % (RUN * STEP / 8)] = bench.step;
        CHECK(rp_writer_check(&bench.table, 0, &run, bytes) == 0);
        rp_writer_run(&bench.table, 0, &run, bytes, &done);
        rp_table_settle(&bench.table);
        CHECK(done.committed == RUN);
        bench.step += RUN;
    }
    return work->round / RUN * RUN * 1e3 / (bench_ns() - start);
}

static double draw(struct work *work) {
    struct rp_batch head;
    double start = bench_ns();
    for (uint32_t i = 0; i + work->batch <= ROUND; i += work->batch) {
        CHECK(rp_table_draw(&bench.table, &work->request, &head, bench.items + i) == RP_OK);
        rp_intent_commit(&bench.intent);
        rp_table_settle(&bench.table);
    }
    double spent = bench_ns() - start;
    uint32_t drawn = ROUND / work->batch * work->batch;
    mix(bench.items, drawn * sizeof bench.items[0]);
    return drawn * 1e3 / spent;
}

static double update(struct work *work) {
    const struct rp_update_entry *entries = bench.entries + work->round % (WORK / ROUND) * ROUND;
    struct rp_updated result;
    double start = bench_ns();
    for (uint32_t i = 0; i + work->batch <= ROUND; i += work->batch) {
        rp_table_update(&bench.table, entries + i, work->batch, &result);
        rp_intent_commit(&bench.intent);
        rp_table_settle(&bench.table);
        CHECK(result.applied == work->batch);
    }
    double spent = bench_ns() - start;
    work->round++;
    mix(&bench.table.tree.total, sizeof bench.table.tree.total);
    return ROUND / work->batch * work->batch * 1e3 / spent;
}

/* The request.count items drawn last, in turn, asked for ahead as a server does; gigabytes a
 * second. */
static double gather(struct work *work) {
    static uint8_t part[1344];
    uint32_t bytes = rp_table_item_bytes(&bench.table, 0);
    double start = bench_ns();
    for (uint32_t i = 0; i < work->batch; i++) {
        const struct rp_batch_item *item = &bench.items[work->round++ % work->request.count];
        rp_table_prefetch(&bench.table, &bench.items[(work->round + 10) % work->request.count]);
        for (uint32_t first = 0; first < bytes; first += sizeof part) {
            uint32_t size = bytes - first < sizeof part ? bytes - first : sizeof part;
            rp_table_gather(&bench.table, 0, item, first, size, part);
        }
    }
    return (double)work->batch * bytes / (bench_ns() - start);
}

static void rows(const char *name, uint32_t batch, struct work work, const char *unit,
                 double (*round)(struct work *)) {
    static struct bench_rounds rounds;
    struct bench_row row = {name, "engine", workload, batch};
    rounds.count = 0;
    for (int i = 0; i < passes * (WORK / ROUND); i++) {
        bench_keep(&rounds, round(&work));
    }
    bench_rate(&row, &rounds, unit);
}

/* ---- the tables ---- */

static void *open_table(const struct rp_table_config *config, int portable) {
    char error[256] = "";
    bench.config = *config;
    struct rp_table_sizes sizes;
    CHECK(rp_table_sizes(config, &sizes, error) == 0, "%s", error);
    size_t bytes = table_memory_bytes(&sizes);
    size_t log = (sizeof(struct rp_intent_log) + 63) / 64 * 64;
    uint8_t *region = bench_memory(log + bytes);
    rp_intent_open(&bench.intent, region, log + bytes, (struct rp_intent_log *)(void *)region);
    struct rp_table_memory memory = table_memory_at(region + log, &sizes);
    CHECK(rp_table_create(&bench.table, &memory, config, 0, 1, 1, 1, 0, &bench.intent,
                          bench.counters, error) == 0, "%s", error);
    CHECK(rp_writer_open(&bench.table, 1, 1) == 0);
    if (portable) {
        rp_tree_use_portable(&bench.table.tree);
        rp_power_use_portable(&bench.table.power);
    }
    rp_random_seed(&bench.random, 5);
    bench.step = 0;
    return region;
}

static const struct rp_column row_columns[] = {{0, 16, 0}, {16, STEP - 16, 0}};
static const struct rp_pick row_picks[] = {{0, 0}, {1, 0}};
static const struct rp_plan row_plans[] = {{"row", row_picks, 2}};
static struct rp_table_config row_config = {
    .name = "rows", .step_bytes = STEP, .columns = row_columns, .column_count = 2,
    .plans = row_plans, .plan_count = 1, .alpha = 0.6, .writers_max = 1, .streams_max = 1,
    .window = WINDOW, .pieces_max = 1};

static void fill_rows(void) {
    struct work one = {.round = RUN};
    while (bench.step < row_config.capacity) {
        for (int i = 0; i < RUN; i++) {
            ((double *)bench.body)[i] = random_priority();
        }
        push(&one);
    }
    uint64_t head = row_config.capacity + bench.step; /* keys start at the capacity */
    for (uint32_t i = 0; i < WORK; i++) {
        bench.entries[i] = (struct rp_update_entry){
            head - 1 - rp_random_below(&bench.random, row_config.capacity), random_priority()};
    }
}

static void bench_rows_table(int portable) {
    void *region = open_table(&row_config, portable);
    struct work mixed = {.request = {.count = 512, .uniform = 1u << 31}, .batch = 512};
    struct work strata = {.request = {.count = 512, .mode = RP_SAMPLE_STRATIFIED}, .batch = 512};
    snprintf(workload, sizeof workload, "%u items, %s", row_config.capacity,
             bench.table.power.wide ? "avx512" : "portable");
    fill_rows();
    rows("table_draw", 32, (struct work){{.count = 32}, 32, 0}, "M/s", draw);
    rows("table_draw", 512, (struct work){{.count = 512}, 512, 0}, "M/s", draw);
    rows("table_draw_stratified", 512, strata, "M/s", draw);
    rows("table_draw_half_uniform", 512, mixed, "M/s", draw);
    rows("table_gather_rows", 512, (struct work){{.count = ROUND}, 512, 0}, "GB/s", gather);
    uint32_t batches[] = {80, 512, BATCH_LARGE};
    for (int i = 0; i < 3; i++) {
        rows("table_update", batches[i], (struct work){.batch = batches[i]}, "M/s", update);
    }
    rows("table_push", RUN, (struct work){.round = ROUND}, "M/s", push);
    mix(bench.table.tree.mass[0], row_config.capacity * sizeof(uint64_t));
    free(region);
}

static void bench_frames(int portable) {
    static const struct rp_column columns[] = {{0, FRAME, 0}, {FRAME, 8, 0}};
    static const struct rp_pick picks[] = {{0, -3}, {0, -2}, {0, -1}, {0, 0}, {0, 1},
                                           {0, 2},  {0, 3},  {1, 0},  {1, 1}, {1, 2}};
    static const struct rp_plan plans[] = {{"frames", picks, 10}};
    static const struct rp_table_config config = {
        .name = "frames", .capacity = FRAMES, .step_bytes = FRAME + 8, .columns = columns,
        .column_count = 2, .plans = plans, .plan_count = 1, .alpha = 0.6, .writers_max = 1,
        .streams_max = 1, .window = 64, .pieces_max = 1};
    static uint64_t frame[(FRAME + 8) / 8];
    void *region = open_table(&config, portable);
    struct work whole = {.request = {.count = 512}, .batch = 512};
    for (uint64_t step = 0; step < FRAMES; step++) {
        struct rp_run run = {.sequence = step, .step = step, .count = 1, .piece_count = 1,
                             .size = FRAME + 8};
        struct rp_create create = {.step = step >= 3 ? step - 3 : 0,
                                   .priority = random_priority()};
        struct rp_run_done done;
        rp_writer_run(&bench.table, 0, &run, (const uint8_t *)frame, &done);
        rp_writer_create(&bench.table, 0, &create);
        rp_table_settle(&bench.table);
    }
    draw(&whole);
    snprintf(workload, sizeof workload, "7 frames of 84 x 84");
    rows("table_gather_frames", 64, (struct work){{.count = 512}, 64, 0}, "GB/s", gather);
    free(region);
}

/* ---- the program ---- */

static uint64_t kernel(int portable) {
    bench.hash = 0;
    bench_rows_table(portable);
    struct bench_row row = {"table_answers", "engine", workload, 0};
    bench_hash(&row, bench.hash);
    return bench.hash;
}

/* Of a million steps, whatever was measured: a small table's share of what is fixed is larger. */
static void memory_rows(void) {
    char error[256];
    uint32_t items = 1000000;
    struct bench_row row = {"table_memory", "engine", "1000000 plain rows", 0};
    row_config.capacity = items;
    uint64_t tree = rp_tree_leaf_count(items) * sizeof(uint64_t) + rp_tree_bytes(items);
    struct rp_table_sizes sizes;
    CHECK(rp_table_sizes(&row_config, &sizes, error) == 0, "%s", error);
    uint64_t own = table_memory_bytes(&sizes) - (uint64_t)items * STEP - tree;
    bench_number(&row, "bookkeeping", (double)own / items, "B/step");
    bench_number(&row, "leaf and tree", (double)tree / items, "B/step");
}

int main(int count, char **arguments) {
    row_config.capacity = count > 1 ? (uint32_t)strtoul(arguments[1], NULL, 0) : 1000000;
    passes = count > 2 ? atoi(arguments[2]) : 3;
    CHECK(row_config.capacity >= 16 * WINDOW && passes >= 1, "at least %d items", 16 * WINDOW);
    uint64_t wide = kernel(0);
    uint64_t narrow = kernel(1);
    CHECK(wide == narrow, "the kernels' answers differ");
    bench_frames(0);
    memory_rows();
    return check_done("bench_table");
}
