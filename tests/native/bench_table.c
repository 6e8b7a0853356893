/* bench_table.c: how fast a table is on one core, intents, powers and tree included.
 *
 * `bench_table [items] [rounds]`, by default 1,000,000 items of 48 bytes and 5 rounds.
 * Priorities are random over six decades, updates go to keys drawn before. A row is the median
 * of its rounds, then the slowest and the fastest. Everything runs twice from the same seed,
 * with this processor's kernels and with the portable ones; the answers are hashed, and
 * different hashes end the program with status 1.
 */
#include <string.h>
#include <time.h>

#include "check.h"
#include "crc32c.h"
#include "store.h"

enum {
    BATCH = 512,
    RUN = 29,
    STEP = 48,
    WORK = 1 << 19,
    ROUNDS_MAX = 101,
    FRAME = 7056,
    FRAMES = 4096
};

struct bench {
    struct rp_table table;
    struct rp_intent intent;
    struct rp_random random;
    uint64_t counters[RP_COUNTER_COUNT];
    uint32_t items;
    int rounds;
    int portable;
    uint64_t step;
    uint32_t hash;
    struct rp_batch_item *drawn; /* WORK of them */
    struct rp_update_entry *updates;
    uint64_t body[RUN + RUN * STEP / 8];
};

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare(const void *left, const void *right) {
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static void *memory(size_t bytes) {
    void *result = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    CHECK(result, "no memory");
    return memset(result, 0, bytes);
}

static double six_decades(struct rp_random *random) {
    static const double decade[] = {1e-3, 1e-2, 1e-1, 1, 10, 100};
    uint64_t bits = rp_random_next(random);
    return decade[bits % 6] * (1 + (double)(bits >> 40) / (1 << 24));
}

static void row(struct bench *b, const char *what, const char *unit, double units,
                void (*work)(struct bench *)) {
    double rate[ROUNDS_MAX];
    for (int i = -1; i < b->rounds; i++) { /* the first one warms */
        double start = seconds();
        work(b);
        rate[i < 0 ? 0 : i] = units / (seconds() - start);
    }
    qsort(rate, (size_t)b->rounds, sizeof rate[0], compare);
    printf("  %-34s %9.2f %s   %.2f to %.2f\n", what, rate[b->rounds / 2], unit, rate[0],
           rate[b->rounds - 1]);
}

static void hash(struct bench *b, const void *bytes, size_t size) {
    b->hash = rp_crc32c(b->hash, bytes, size);
}

/* ---- work ---- */

static void push_run(struct bench *b) {
    struct rp_run run = {b->step, b->step,         0, RP_RUN_ITEM | RP_RUN_PRIORITY, RUN, 0, 1,
                         0,       RUN * (8 + STEP)};
    struct rp_run_done done;
    b->body[RUN + b->step % (RUN * STEP / 8)] = b->step;
    CHECK(rp_writer_check(&b->table, 0, &run, (const uint8_t *)b->body) == 0);
    rp_writer_run(&b->table, 0, &run, (const uint8_t *)b->body, &done);
    CHECK(done.committed == RUN);
    b->step += RUN;
}

static void work_push(struct bench *b) {
    for (uint32_t i = 0; i < WORK / RUN; i++) {
        push_run(b);
    }
}

static void draw(struct bench *b, const struct rp_sample *request) {
    struct rp_batch head;
    for (uint32_t i = 0; i < WORK; i += BATCH) {
        CHECK(rp_table_draw(&b->table, request, &head, b->drawn + i) == RP_OK);
        rp_intent_commit(&b->intent);
        rp_table_settle(&b->table);
    }
}

static void work_independent(struct bench *b) {
    struct rp_sample request = {.count = BATCH};
    draw(b, &request);
}

static void work_stratified(struct bench *b) {
    struct rp_sample request = {.count = BATCH, .mode = RP_SAMPLE_STRATIFIED};
    draw(b, &request);
}

static void work_mixed(struct bench *b) {
    struct rp_sample request = {.count = BATCH, .uniform = 1u << 31};
    draw(b, &request);
}

static void work_update(struct bench *b) {
    struct rp_updated result;
    for (uint32_t i = 0; i < WORK; i += BATCH) {
        rp_table_update(&b->table, b->updates + i, BATCH, &result);
        rp_intent_commit(&b->intent);
        rp_table_settle(&b->table);
        CHECK(result.applied == BATCH);
    }
}

static void work_gather(struct bench *b) {
    uint64_t item[STEP / 8];
    for (uint32_t i = 0; i < WORK; i++) {
        rp_table_gather(&b->table, 0, &b->drawn[i], 0, STEP, (uint8_t *)item);
    }
}

static void prepare_updates(struct bench *b) {
    for (uint32_t i = 0; i < WORK; i++) {
        b->updates[i] = (struct rp_update_entry){b->drawn[i].key, six_decades(&b->random)};
    }
}

/* ---- the two tables ---- */

static void open_table(struct bench *b, const struct rp_table_config *config) {
    char error[256] = "";
    size_t bytes = rp_table_bytes(config, error);
    CHECK(bytes > 0, "%s", error);
    size_t log = (sizeof(struct rp_intent_log) + 63) & ~(size_t)63;
    uint8_t *region = memory(log + bytes);
    rp_intent_open(&b->intent, region, log + bytes, (struct rp_intent_log *)(void *)region);
    CHECK(rp_table_create(&b->table, region + log, config, 0, 1, 1, &b->intent, b->counters, error)
          == 0);
    CHECK(rp_writer_open(&b->table, 1, 1) == 0);
    if (b->portable) {
        rp_tree_use_portable(&b->table.tree);
        rp_power_use_portable(&b->table.power);
    }
}

static void bench_rows(struct bench *b) {
    static const struct rp_column columns[] = {{0, 16, 0}, {16, 32, 0}};
    static const struct rp_pick picks[] = {{0, 0}, {1, 0}};
    static const struct rp_plan plans[] = {{"row", picks, 2}};
    struct rp_table_config config = {.name = "rows",
                                     .capacity = b->items,
                                     .step_bytes = STEP,
                                     .columns = columns,
                                     .column_count = 2,
                                     .plans = plans,
                                     .plan_count = 1,
                                     .alpha = 0.6,
                                     .writers_max = 1,
                                     .streams_max = 1,
                                     .window = 1024,
                                     .pieces_max = 1};
    open_table(b, &config);
    rp_random_seed(&b->random, 5);
    for (int i = 0; i < RUN; i++) {
        ((double *)b->body)[i] = six_decades(&b->random);
    }
    while (b->step < (uint64_t)b->items + RUN) {
        push_run(b);
    }
    row(b, "steps pushed, runs of 29 x 48 B", "M/s ", WORK / RUN * RUN / 1e6, work_push);
    work_independent(b);
    prepare_updates(b);
    row(b, "updates, 512 keys a call", "M/s ", WORK / 1e6, work_update);
    row(b, "draws, independent, 512 a batch", "M/s ", WORK / 1e6, work_independent);
    hash(b, b->drawn, WORK * sizeof *b->drawn);
    row(b, "draws, stratified", "M/s ", WORK / 1e6, work_stratified);
    hash(b, b->drawn, WORK * sizeof *b->drawn);
    row(b, "draws, half uniform", "M/s ", WORK / 1e6, work_mixed);
    hash(b, b->drawn, WORK * sizeof *b->drawn);
    row(b, "gather, 48 B rows", "GB/s", (double)WORK * STEP / 1e9, work_gather);
    hash(b, b->table.private->leaves, b->items * sizeof(uint64_t));
    free(b->intent.region);
}

static void work_frames(struct bench *b) {
    static uint8_t part[1344];
    uint32_t bytes = rp_table_item_bytes(&b->table, 0);
    for (uint32_t i = 0; i < BATCH; i++) {
        for (uint32_t first = 0; first < bytes; first += sizeof part) {
            uint32_t size = bytes - first < sizeof part ? bytes - first : sizeof part;
            rp_table_gather(&b->table, 0, &b->drawn[i], first, size, part);
        }
    }
}

/* 4 stacked frames and 3 steps: 7 frames of 7056 bytes an item, gathered a datagram at a time. */
static void bench_frames(struct bench *b) {
    static const struct rp_column columns[] = {{0, FRAME, 0}, {FRAME, 8, 0}};
    static const struct rp_pick picks[] = {{0, -3}, {0, -2}, {0, -1}, {0, 0}, {0, 1},
                                           {0, 2},  {0, 3},  {1, 0},  {1, 1}, {1, 2}};
    static const struct rp_plan plans[] = {{"frames", picks, 10}};
    struct rp_table_config config = {.name = "frames",
                                     .capacity = FRAMES,
                                     .step_bytes = FRAME + 8,
                                     .columns = columns,
                                     .column_count = 2,
                                     .plans = plans,
                                     .plan_count = 1,
                                     .alpha = 0.6,
                                     .writers_max = 1,
                                     .streams_max = 1,
                                     .window = 64,
                                     .pieces_max = 1};
    static uint64_t frame[(FRAME + 8) / 8];
    open_table(b, &config);
    for (uint64_t step = 0; step < FRAMES; step++) {
        struct rp_run run = {step, step, 0, 0, 1, 0, 1, 0, FRAME + 8};
        struct rp_run_done done;
        struct rp_create create = {.step = step >= 3 ? step - 3 : 0,
                                   .priority = six_decades(&b->random)};
        rp_writer_run(&b->table, 0, &run, (const uint8_t *)frame, &done);
        rp_writer_create(&b->table, 0, &create);
    }
    work_independent(b);
    row(b, "gather, 7 frames of 84 x 84", "GB/s",
        (double)BATCH * rp_table_item_bytes(&b->table, 0) / 1e9, work_frames);
    hash(b, b->drawn, WORK * sizeof *b->drawn);
    free(b->intent.region);
}

int main(int count, char **arguments) {
    static struct bench fast;
    fast.items = count > 1 ? (uint32_t)atoi(arguments[1]) : 1000000;
    fast.rounds = count > 2 ? atoi(arguments[2]) : 5;
    CHECK(fast.items >= 16384 && fast.rounds >= 1 && fast.rounds <= ROUNDS_MAX);
    fast.drawn = memory(WORK * sizeof *fast.drawn);
    fast.updates = memory(WORK * sizeof *fast.updates);
    static struct bench portable;
    portable = fast;
    portable.portable = 1;
    struct bench *both[] = {&fast, &portable};
    for (int i = 0; i < 2; i++) {
        printf("%s, %u items, median of %d rounds (slowest to fastest)\n",
               i ? "portable" : "this processor", fast.items, fast.rounds);
        bench_rows(both[i]);
        bench_frames(both[i]);
        printf("  answers %08x\n", both[i]->hash);
    }
    CHECK(fast.hash == portable.hash, "the kernels' answers differ");
    return check_done("bench_table");
}
