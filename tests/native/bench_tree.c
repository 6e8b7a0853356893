/* bench_tree.c: how fast the tree, the power and the hashes are on one core.
 *
 * `bench_tree [items] [rounds]`, by default 1,000,000 items and 9 rounds. Masses are random over
 * six decades, targets and slots uniform. A row is the median of the rounds in millions a second
 * (bytes: gigabytes a second), then the slowest and the fastest round. The answers of each pair of
 * kernels are hashed; different hashes end the program with status 1.
 */
#include "check.h"
#include "crc32c.h"
#include "power.h"
#include "random.h"
#include "siphash.h"
#include "sum_tree.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { BATCH = 512, WORK = 1 << 20, ROUNDS_MAX = 101, PAYLOAD = 1400 };

struct bench {
    struct rp_tree tree;
    struct rp_power power;
    struct rp_random random;
    uint32_t items;
    int rounds;
    uint64_t *leaf;
    uint64_t *targets;
    uint32_t *ranks;
    uint32_t *slots;
    double *priority;
    uint32_t *answers;
    uint64_t hash; /* of the answers of the row that ran last */
};

static void *memory(size_t bytes)
{
    void *result = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    CHECK(result, "no memory");
    return memset(result, 0, bytes);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void row(struct bench *bench, const char *what, double units, void (*work)(struct bench *))
{
    double rate[ROUNDS_MAX];
    work(bench); /* warm */
    for (int i = 0; i < bench->rounds; i++) {
        double start = seconds();
        work(bench);
        rate[i] = units / (seconds() - start);
    }
    qsort(rate, (size_t)bench->rounds, sizeof(rate[0]), compare);
    printf("%-46s %8.1f  (%.1f .. %.1f)\n", what, rate[bench->rounds / 2], rate[0],
           rate[bench->rounds - 1]);
}

static void hash_answers(struct bench *bench)
{
    static const uint8_t key[16];
    bench->hash = rp_siphash(key, bench->answers, WORK * sizeof(bench->answers[0]));
}

static void draw(struct bench *bench)
{
    for (size_t i = 0; i < WORK; i += BATCH) {
        rp_tree_draw(&bench->tree, bench->targets + i, bench->answers + i, BATCH);
    }
}

static void draw_single(struct bench *bench)
{
    for (size_t i = 0; i < WORK; i++) {
        rp_tree_draw(&bench->tree, bench->targets + i, bench->answers + i, 1);
    }
}

static void draw_rank(struct bench *bench)
{
    for (size_t i = 0; i < WORK; i += BATCH) {
        rp_tree_draw_rank(&bench->tree, bench->ranks + i, bench->answers + i, BATCH);
    }
}

static void draw_with_targets(struct bench *bench)
{
    uint64_t targets[BATCH];
    for (size_t i = 0; i < WORK; i += BATCH) {
        for (size_t j = 0; j < BATCH; j++) {
            targets[j] = rp_random_below(&bench->random, bench->tree.total);
        }
        rp_tree_draw(&bench->tree, targets, bench->answers + i, BATCH);
    }
}

static void powers(struct bench *bench)
{
    uint64_t mass[BATCH], saturated = 0;
    for (size_t i = 0; i < WORK; i += BATCH) {
        rp_power_masses(&bench->power, bench->priority + i, mass, BATCH,
                        rp_tree_mass_max(bench->items), &saturated);
        bench->answers[i] = (uint32_t)mass[i % BATCH];
    }
}

/* What update_priorities costs the engine: power, leaf words, tree. */
static void update(struct bench *bench)
{
    uint64_t mass[BATCH], saturated = 0;
    for (size_t i = 0; i < WORK; i += BATCH) {
        const uint32_t *slots = bench->slots + i;
        rp_power_masses(&bench->power, bench->priority + i, mass, BATCH,
                        rp_tree_mass_max(bench->items), &saturated);
        for (size_t j = 0; j < BATCH; j++) {
            bench->leaf[slots[j]] = mass[j];
        }
        rp_tree_refresh(&bench->tree, slots, BATCH);
    }
}

static void update_single(struct bench *bench)
{
    for (size_t i = 0; i < WORK; i++) {
        uint32_t slot = bench->slots[i];
        bench->leaf[slot] = rp_power_mass(&bench->power, bench->priority[i],
                                          rp_tree_mass_max(bench->items));
        rp_tree_refresh(&bench->tree, &slot, 1);
    }
}

static void insert_run(struct bench *bench)
{
    uint32_t slots[BATCH];
    for (size_t i = 0; i < WORK; i += BATCH) {
        for (size_t j = 0; j < BATCH; j++) {
            slots[j] = (uint32_t)((i + j) % bench->items);
            bench->leaf[slots[j]] = bench->targets[i + j] >> 40;
        }
        rp_tree_refresh(&bench->tree, slots, BATCH);
    }
}

static void crc(struct bench *bench)
{
    for (size_t i = 0; i < WORK / 16; i++) {
        const uint8_t *at = (const uint8_t *)bench->targets + i % 512 * PAYLOAD;
        bench->answers[i] = rp_crc32c(0, at, PAYLOAD);
    }
}

static void crc_portable(struct bench *bench)
{
    for (size_t i = 0; i < WORK / 16; i++) {
        const uint8_t *at = (const uint8_t *)bench->targets + i % 512 * PAYLOAD;
        bench->answers[i] = rp_crc32c_portable(0, at, PAYLOAD);
    }
}

static void cookie(struct bench *bench)
{
    for (size_t i = 0; i < WORK; i++) {
        bench->answers[i] = (uint32_t)rp_siphash((const uint8_t *)bench->slots,
                                                 bench->targets + i % 1000, 32);
    }
}

static void fill(struct bench *bench)
{
    double top = log(1e6);
    for (uint32_t i = 0; i < bench->items; i++) {
        double share = (double)rp_random_below(&bench->random, 1 << 30) / (1 << 30);
        bench->leaf[i] = rp_power_mass(&bench->power, exp(share * top) * 1e-3,
                                       rp_tree_mass_max(bench->items));
    }
    size_t nodes = rp_tree_bytes(bench->items);
    rp_tree_open(&bench->tree, bench->leaf, memory(nodes + 64), bench->items);
    for (size_t i = 0; i < WORK; i++) {
        bench->targets[i] = rp_random_below(&bench->random, bench->tree.total);
        bench->ranks[i] = (uint32_t)rp_random_below(&bench->random, bench->tree.positive);
        bench->slots[i] = (uint32_t)rp_random_below(&bench->random, bench->items);
        double share = (double)rp_random_below(&bench->random, 1 << 30) / (1 << 30);
        bench->priority[i] = exp(share * top) * 1e-3;
    }
}

/* The rows of one kernel; returns the hash of its draws, of its ranks and of the tree's total. */
static uint64_t kernel_rows(struct bench *bench, const char *name)
{
    const double million = WORK / 1e6;
    uint64_t hash;
    printf("%s kernel, %u items\n", name, bench->items);
    row(bench, "  draw, batches of 512", million, draw);
    hash_answers(bench);
    hash = bench->hash;
    row(bench, "  draw, one at a time", million, draw_single);
    hash_answers(bench);
    CHECK(bench->hash == hash, "batched and single draws differ");
    row(bench, "  draw by rank, batches of 512", million, draw_rank);
    hash_answers(bench);
    hash ^= bench->hash * 3;
    row(bench, "  draw with its random targets", million, draw_with_targets);
    row(bench, "  power alone, batches of 512", million, powers);
    row(bench, "  update: power, leaves, tree", million, update);
    row(bench, "  update, one at a time", million, update_single);
    rp_tree_check(&bench->tree);
    hash ^= rp_tree_total(&bench->tree) * 5;
    printf("  hash of answers %016" PRIx64 "\n", hash);
    return hash;
}

int main(int argc, char **argv)
{
    struct bench bench = {.items = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 1000000,
                          .rounds = argc > 2 ? atoi(argv[2]) : 9};
    CHECK(bench.items >= 1 && bench.rounds >= 1 && bench.rounds <= ROUNDS_MAX);
    rp_random_seed(&bench.random, 1);
    CHECK(rp_power_exponent(0.6, &bench.power) == 0);
    bench.leaf = memory(rp_tree_leaf_count(bench.items) * sizeof(uint64_t));
    bench.targets = memory(WORK * sizeof(uint64_t));
    bench.ranks = memory(WORK * sizeof(uint32_t));
    bench.slots = memory(WORK * sizeof(uint32_t));
    bench.priority = memory(WORK * sizeof(double));
    bench.answers = memory(WORK * sizeof(uint32_t));
    fill(&bench);
    uint64_t *before = memory(rp_tree_leaf_count(bench.items) * sizeof(uint64_t));
    memcpy(before, bench.leaf, bench.items * sizeof(uint64_t));
    uint64_t wide = kernel_rows(&bench, "best");
    memcpy(bench.leaf, before, bench.items * sizeof(uint64_t));
    rp_tree_open(&bench.tree, bench.leaf, bench.tree.mass[1] ? bench.tree.mass[1] : before,
                 bench.items);
    rp_tree_use_portable(&bench.tree);
    rp_power_use_portable(&bench.power);
    uint64_t narrow = kernel_rows(&bench, "portable");
    CHECK(wide == narrow, "the kernels' answers differ");
    printf("the rest\n");
    row(&bench, "  refresh of neighbouring slots", WORK / 1e6, insert_run);
    row(&bench, "  crc32c of 1400 B, GB/s", WORK / 16 * PAYLOAD / 1e9, crc);
    row(&bench, "  crc32c of 1400 B by tables, GB/s", WORK / 16 * PAYLOAD / 1e9, crc_portable);
    row(&bench, "  siphash of 32 B, million", WORK / 1e6, cookie);
    return check_done("bench_tree");
}
