/* bench_tree.c: how fast the tree, the power and the hashes are on one core.
 *
 *     bench_tree [items, default 1,000,000] [passes over the work, default 3]
 *
 * Masses are random over six decades, targets and slots uniform. The answers of each pair of
 * kernels are hashed; different hashes end the program with status 1.
 */
#include "bench.h"
#include "base/crc32c.h"
#include "base/power.h"
#include "base/random.h"
#include "base/siphash.h"
#include "base/sum_tree.h"

#include <math.h>

enum { BATCH = 512, WORK = 1 << 20, ROUND = 1 << 15, PAYLOAD = 1400 };

struct bench {
    struct rp_tree tree;
    struct rp_power power;
    struct rp_random random;
    uint32_t items;
    int passes;
    size_t from; /* the round's work is [from, to) */
    size_t to;
    char kernel[64];
    uint64_t *leaf;
    uint64_t *targets;
    uint32_t *ranks;
    uint32_t *slots;
    double *priority;
    uint32_t *answers;
    uint64_t hash; /* of the answers of the row that ran last */
};

/* A pass goes through all of the work, a round at a time; its `units` are the row's unit. */
static void row(struct bench *bench, const char *name, uint32_t batch, double units,
                const char *unit, void (*work)(struct bench *)) {
    static struct bench_rounds rounds;
    struct bench_row row = {name, "engine", bench->kernel, batch};
    rounds.count = 0;
    for (int pass = 0; pass <= bench->passes; pass++) {
        for (bench->from = 0; bench->from < WORK; bench->from = bench->to) {
            bench->to = bench->from + ROUND;
            double start = bench_ns();
            work(bench);
            if (pass > 0) { /* the first one warms */
                bench_keep(&rounds, ROUND * units / (bench_ns() - start));
            }
        }
    }
    bench_rate(&row, &rounds, unit);
}

static void hash_answers(struct bench *bench) {
    static const uint8_t key[16];
    bench->hash = rp_siphash(key, bench->answers, WORK * sizeof(bench->answers[0]));
}

static void draw(struct bench *bench) {
    for (size_t i = bench->from; i < bench->to; i += BATCH) {
        rp_tree_draw(&bench->tree, bench->targets + i, bench->answers + i, BATCH);
    }
}

static void draw_single(struct bench *bench) {
    for (size_t i = bench->from; i < bench->to; i++) {
        rp_tree_draw(&bench->tree, bench->targets + i, bench->answers + i, 1);
    }
}

static void draw_rank(struct bench *bench) {
    for (size_t i = bench->from; i < bench->to; i += BATCH) {
        rp_tree_draw_rank(&bench->tree, bench->ranks + i, bench->answers + i, BATCH);
    }
}

static void draw_with_targets(struct bench *bench) {
    uint64_t targets[BATCH];
    for (size_t i = bench->from; i < bench->to; i += BATCH) {
        for (size_t j = 0; j < BATCH; j++) {
            targets[j] = rp_random_below(&bench->random, bench->tree.total);
        }
        rp_tree_draw(&bench->tree, targets, bench->answers + i, BATCH);
    }
}

static void powers(struct bench *bench) {
    uint64_t mass[BATCH], saturated = 0;
    for (size_t i = bench->from; i < bench->to; i += BATCH) {
        rp_power_masses(&bench->power, bench->priority + i, mass, BATCH,
                        rp_tree_mass_max(bench->items), &saturated);
        bench->answers[i] = (uint32_t)mass[i % BATCH];
    }
}

/* What update_priorities costs the engine: power, leaf words, tree. */
static void update(struct bench *bench) {
    uint64_t mass[BATCH], saturated = 0;
    for (size_t i = bench->from; i < bench->to; i += BATCH) {
        const uint32_t *slots = bench->slots + i;
        rp_power_masses(&bench->power, bench->priority + i, mass, BATCH,
                        rp_tree_mass_max(bench->items), &saturated);
        for (size_t j = 0; j < BATCH; j++) {
            bench->leaf[slots[j]] = mass[j];
        }
        rp_tree_refresh(&bench->tree, slots, BATCH);
    }
}

static void update_single(struct bench *bench) {
    for (size_t i = bench->from; i < bench->to; i++) {
        uint32_t slot = bench->slots[i];
        bench->leaf[slot] = rp_power_mass(&bench->power, bench->priority[i],
                                          rp_tree_mass_max(bench->items));
        rp_tree_refresh(&bench->tree, &slot, 1);
    }
}

static void insert_run(struct bench *bench) {
    uint32_t slots[BATCH];
    for (size_t i = bench->from; i < bench->to; i += BATCH) {
        for (size_t j = 0; j < BATCH; j++) {
            slots[j] = (uint32_t)((i + j) % bench->items);
            bench->leaf[slots[j]] = bench->targets[i + j] >> 40;
        }
        rp_tree_refresh(&bench->tree, slots, BATCH);
    }
}

static void crc(struct bench *bench) {
    for (size_t i = bench->from / 16; i < bench->to / 16; i++) {
        const uint8_t *at = (const uint8_t *)bench->targets + i % 512 * PAYLOAD;
        bench->answers[i] = rp_crc32c(0, at, PAYLOAD);
    }
}

static void crc_portable(struct bench *bench) {
    for (size_t i = bench->from / 16; i < bench->to / 16; i++) {
        const uint8_t *at = (const uint8_t *)bench->targets + i % 512 * PAYLOAD;
        bench->answers[i] = rp_crc32c_portable(0, at, PAYLOAD);
    }
}

static void cookie(struct bench *bench) {
    for (size_t i = bench->from; i < bench->to; i++) {
        bench->answers[i] = (uint32_t)rp_siphash((const uint8_t *)bench->slots,
                                                 bench->targets + i % 1000, 32);
    }
}

static void fill(struct bench *bench, void *nodes) {
    double top = log(1e6);
    for (uint32_t i = 0; i < bench->items; i++) {
        double share = (double)rp_random_below(&bench->random, 1 << 30) / (1 << 30);
        bench->leaf[i] = rp_power_mass(&bench->power, exp(share * top) * 1e-3,
                                       rp_tree_mass_max(bench->items));
    }
    rp_tree_open(&bench->tree, bench->leaf, nodes, bench->items);
    for (size_t i = 0; i < WORK; i++) {
        bench->targets[i] = rp_random_below(&bench->random, bench->tree.total);
        bench->ranks[i] = (uint32_t)rp_random_below(&bench->random, bench->tree.positive);
        bench->slots[i] = (uint32_t)rp_random_below(&bench->random, bench->items);
        double share = (double)rp_random_below(&bench->random, 1 << 30) / (1 << 30);
        bench->priority[i] = exp(share * top) * 1e-3;
    }
}

/* The rows of one kernel; returns the hash of its draws, of its ranks and of the tree's total. */
static uint64_t kernel_rows(struct bench *bench, const char *name) {
    uint64_t hash;
    snprintf(bench->kernel, sizeof bench->kernel, "%u items, %s", bench->items, name);
    row(bench, "tree_draw", BATCH, 1e3, "M/s", draw);
    hash_answers(bench);
    hash = bench->hash;
    row(bench, "tree_draw", 1, 1e3, "M/s", draw_single);
    hash_answers(bench);
    CHECK(bench->hash == hash, "batched and single draws differ");
    row(bench, "tree_draw_by_rank", BATCH, 1e3, "M/s", draw_rank);
    hash_answers(bench);
    hash ^= bench->hash * 3;
    row(bench, "tree_draw_with_targets", BATCH, 1e3, "M/s", draw_with_targets);
    row(bench, "power", BATCH, 1e3, "M/s", powers);
    row(bench, "tree_update_with_power", BATCH, 1e3, "M/s", update);
    row(bench, "tree_update_with_power", 1, 1e3, "M/s", update_single);
    rp_tree_check(&bench->tree);
    hash ^= rp_tree_total(&bench->tree) * 5;
    struct bench_row answers = {"tree_answers", "engine", bench->kernel, 0};
    bench_hash(&answers, hash);
    return hash;
}

static void hash_rows(struct bench *bench) {
    snprintf(bench->kernel, sizeof bench->kernel, "%u items", bench->items);
    row(bench, "tree_refresh_of_neighbours", BATCH, 1e3, "M/s", insert_run);
    snprintf(bench->kernel, sizeof bench->kernel, "1400 bytes, this processor");
    row(bench, "crc32c", 1, PAYLOAD / 16.0, "GB/s", crc);
    snprintf(bench->kernel, sizeof bench->kernel, "1400 bytes, by tables");
    row(bench, "crc32c", 1, PAYLOAD / 16.0, "GB/s", crc_portable);
    snprintf(bench->kernel, sizeof bench->kernel, "32 bytes");
    row(bench, "siphash", 1, 1e3, "M/s", cookie);
}

int main(int argc, char **argv) {
    static struct bench bench;
    bench.items = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 1000000;
    bench.passes = argc > 2 ? atoi(argv[2]) : 3;
    CHECK(bench.items >= 1 && bench.passes >= 1);
    rp_random_seed(&bench.random, 1);
    CHECK(rp_power_exponent(0.6, &bench.power) == 0);
    bench.leaf = bench_memory(rp_tree_leaf_count(bench.items) * sizeof(uint64_t));
    bench.targets = bench_memory(WORK * sizeof(uint64_t));
    bench.ranks = bench_memory(WORK * sizeof(uint32_t));
    bench.slots = bench_memory(WORK * sizeof(uint32_t));
    bench.priority = bench_memory(WORK * sizeof(double));
    bench.answers = bench_memory(WORK * sizeof(uint32_t));
    void *nodes = bench_memory(rp_tree_bytes(bench.items) + 64);
    fill(&bench, nodes);
    size_t leaf_bytes = rp_tree_leaf_count(bench.items) * sizeof(uint64_t);
    uint64_t *before = bench_memory(leaf_bytes);
    memcpy(before, bench.leaf, leaf_bytes);
    uint64_t wide = kernel_rows(&bench, bench.power.wide ? "avx512" : "portable");
    memcpy(bench.leaf, before, leaf_bytes);
    rp_tree_open(&bench.tree, bench.leaf, nodes, bench.items);
    rp_tree_use_portable(&bench.tree);
    rp_power_use_portable(&bench.power);
    uint64_t narrow = kernel_rows(&bench, "portable");
    CHECK(wide == narrow, "the kernels' answers differ");
    hash_rows(&bench);
    return check_done("bench_tree");
}
