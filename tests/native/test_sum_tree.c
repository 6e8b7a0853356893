/* test_sum_tree.c: the sum tree answers exactly as a plain array would, on every kernel.
 *
 * No draw ever lands on a leaf of mass zero, beyond the capacity, or on a neighbour, and each
 * node equals the sum of its children after any history. The oracle is a walk along the array.
 * Small trees are tried with every target there is: the number of targets that lead to a leaf must
 * be its mass. Larger ones take random steps; the tree bugs that other replay memories shipped
 * (float drift, sizes that are no power of two, target = total, zero priorities) each have a case.
 */
#include "check.h"
#include "base/power.h"
#include "base/random.h"
#include "base/sum_tree.h"

#include <stdbool.h>
#include <string.h>

enum { SLOTS_MAX = 70001, STEP_MAX = 200 };

/* One tree on its own memory, dirtied first: open() must not trust what it finds. */
struct bed {
    struct rp_tree tree;
    uint64_t *leaf;
    uint64_t *naive; /* the oracle's own copy of the leaves */
    void *nodes;
    uint32_t capacity;
};

static void bed_open(struct bed *bed, uint32_t capacity, bool portable) {
    size_t bytes = rp_tree_bytes(capacity);
    bed->capacity = capacity;
    bed->leaf = aligned_alloc(64, rp_tree_leaf_count(capacity) * sizeof(uint64_t));
    bed->naive = calloc(capacity, sizeof(uint64_t));
    bed->nodes = aligned_alloc(64, bytes + 64);
    memset(bed->leaf, 0, rp_tree_leaf_count(capacity) * sizeof(uint64_t));
    memset(bed->nodes, 0xa5, bytes + 64);
    rp_tree_open(&bed->tree, bed->leaf, bed->nodes, capacity);
    if (portable) {
        rp_tree_use_portable(&bed->tree);
    }
}

static void bed_close(struct bed *bed) {
    const uint8_t *behind = (const uint8_t *)bed->nodes + rp_tree_bytes(bed->capacity);
    for (int i = 0; i < 64; i++) {
        CHECK(behind[i] == 0xa5, "the tree wrote behind its %zu bytes",
              rp_tree_bytes(bed->capacity));
    }
    free(bed->leaf);
    free(bed->naive);
    free(bed->nodes);
}

static void bed_write(struct bed *bed, uint32_t slot, uint64_t mass) {
    bed->leaf[slot] = mass;
    bed->naive[slot] = mass;
}

static void bed_set(struct bed *bed, uint32_t slot, uint64_t mass) {
    bed_write(bed, slot, mass);
    rp_tree_refresh(&bed->tree, &slot, 1);
}

/* The naive array's answers. */
static uint64_t naive_total(const struct bed *bed) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < bed->capacity; i++) {
        total += bed->naive[i];
    }
    return total;
}

static uint32_t naive_count(const struct bed *bed) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < bed->capacity; i++) {
        count += bed->naive[i] > 0;
    }
    return count;
}

static void compare_sums(const struct bed *bed) {
    rp_tree_check(&bed->tree);
    CHECK(memcmp(bed->leaf, bed->naive, bed->capacity * sizeof(uint64_t)) == 0,
          "the tree wrote a leaf");
    CHECK(rp_tree_total(&bed->tree) == naive_total(bed), "root is not the sum of the leaves");
    CHECK(rp_tree_count(&bed->tree) == naive_count(bed), "count is not that of the leaves");
}

/* Both edges of every positive leaf, every rank, and how many lie before each leaf, against one
 * walk along the array. */
static void compare_draws(const struct bed *bed) {
    uint64_t prefix = 0;
    uint32_t rank = 0;
    for (uint32_t i = 0; i < bed->capacity; i++) {
        CHECK(rp_tree_rank(&bed->tree, i) == rank, "%u leaves before %u", rank, i);
        if (bed->naive[i] == 0) {
            continue;
        }
        uint64_t edges[2] = {prefix, prefix + bed->naive[i] - 1};
        uint32_t slots[3];
        rp_tree_draw(&bed->tree, edges, slots, 2);
        rp_tree_draw_rank(&bed->tree, &rank, slots + 2, 1);
        CHECK(slots[0] == i && slots[1] == i, "leaf %u of %u drawn as %u and %u", i,
              bed->capacity, slots[0], slots[1]);
        CHECK(slots[2] == i, "rank %u is slot %u, drawn as %u", rank, i, slots[2]);
        prefix += bed->naive[i];
        rank++;
    }
}

/* Given a tree of a few units of mass. Expect as many targets on each leaf as it has mass. */
static void every_target(bool portable) {
    struct rp_random random;
    rp_random_seed(&random, 7);
    for (uint32_t capacity = 1; capacity <= 40; capacity++) {
        for (int shape = 0; shape < 20; shape++) {
            struct bed bed;
            bed_open(&bed, capacity, portable);
            uint64_t hits[40] = {0};
            for (uint32_t i = 0; i < capacity; i++) {
                bed_set(&bed, i, shape == 0 ? 1 : rp_random_below(&random, 4));
            }
            compare_sums(&bed);
            uint32_t last = 0;
            for (uint64_t target = 0; target < rp_tree_total(&bed.tree); target++) {
                uint32_t slot;
                rp_tree_draw(&bed.tree, &target, &slot, 1);
                CHECK(slot < capacity && slot >= last, "targets rise, slots do not");
                hits[slot]++;
                last = slot;
            }
            for (uint32_t i = 0; i < capacity; i++) {
                CHECK(hits[i] == bed.naive[i],
                      "%" PRIu64 " targets lead to leaf %u of mass %" PRIu64, hits[i], i,
                      bed.naive[i]);
            }
            compare_draws(&bed);
            bed_close(&bed);
        }
    }
}

/* A mass of any size up to the limit, often 0, often tiny, sometimes the limit itself. */
static uint64_t random_mass(struct rp_random *random, uint32_t capacity) {
    uint64_t choice = rp_random_below(random, 8);
    if (choice < 2) {
        return choice == 0 ? 0 : rp_tree_mass_max(capacity);
    }
    return rp_random_next(random) % (rp_tree_mass_max(capacity) + 1) >> rp_random_below(random, 62);
}

/* Write n random leaves (duplicates and runs among them), then refresh them at once. */
static void random_step(struct bed *bed, struct rp_random *random) {
    uint32_t slots[STEP_MAX];
    size_t n = 1 + rp_random_below(random, rp_random_below(random, 2) ? 3 : STEP_MAX);
    bool run = rp_random_below(random, 4) == 0;
    uint32_t first = (uint32_t)rp_random_below(random, bed->capacity);
    for (size_t i = 0; i < n; i++) {
        slots[i] = run ? (uint32_t)((first + i) % bed->capacity)
                       : (uint32_t)rp_random_below(random, bed->capacity);
        bed_write(bed, slots[i], random_mass(random, bed->capacity));
    }
    rp_tree_refresh(&bed->tree, slots, n);
}

/* Given random batches of changes. Expect the array's sums after each and its draws at the end. */
static void random_walks(bool portable, uint64_t seed) {
    static const uint32_t sizes[] = {1,   2,   3,    5,    15,   16,    17,    31,    33,
                                     255, 256, 257,  511,  1023, 4095,  4096,  4097,  6561,
                                     16384, 16385, 65535, 65536, 65537, SLOTS_MAX};
    struct rp_random random;
    rp_random_seed(&random, seed);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        struct bed bed;
        bed_open(&bed, sizes[s], portable);
        compare_sums(&bed);
        for (int step = 0; step < (sizes[s] < 5000 ? 120 : 12); step++) {
            random_step(&bed, &random);
            compare_sums(&bed);
        }
        compare_draws(&bed);
        struct rp_tree again;
        rp_tree_open(&again, bed.leaf, bed.nodes, bed.capacity);
        CHECK(rp_tree_total(&again) == rp_tree_total(&bed.tree), "reopened with another total");
        bed_close(&bed);
    }
}

/* Given the same targets. Expect the same slots from every kernel, batches of every length; the
 * second size has one level more than any other test. */
static void kernels_agree(uint64_t seed, uint32_t capacity) {
    enum { TARGETS = 1000 };
    static uint64_t targets[TARGETS];
    static uint32_t ranks[TARGETS], wide[TARGETS], narrow[TARGETS];
    struct rp_random random;
    rp_random_seed(&random, seed);
    struct bed bed;
    bed_open(&bed, capacity, false);
    for (int step = 0; step < 500; step++) {
        random_step(&bed, &random);
    }
    compare_sums(&bed);
    compare_draws(&bed);
    struct rp_tree portable = bed.tree;
    rp_tree_use_portable(&portable);
    for (size_t n = 0; n < 100; n++) {
        size_t some = n < 70 ? n : TARGETS;
        for (size_t i = 0; i < some; i++) {
            targets[i] = rp_random_below(&random, rp_tree_total(&bed.tree));
            ranks[i] = (uint32_t)rp_random_below(&random, rp_tree_count(&bed.tree));
        }
        rp_tree_draw(&bed.tree, targets, wide, some);
        rp_tree_draw(&portable, targets, narrow, some);
        CHECK(memcmp(wide, narrow, some * sizeof(wide[0])) == 0, "draws differ");
        rp_tree_draw_rank(&bed.tree, ranks, wide, some);
        rp_tree_draw_rank(&portable, ranks, narrow, some);
        CHECK(memcmp(wide, narrow, some * sizeof(wide[0])) == 0, "ranks differ");
    }
    bed_close(&bed);
}

/* Given 2 million updates over 12 decades and then all leaves at the least mass. Expect no drift.
 * (flashbax#52: a float tree drifts until it returns experience of weight zero.) */
static void no_drift(bool portable, uint64_t seed) {
    enum { SLOTS = 4096, BATCH = 500 };
    struct rp_random random;
    rp_random_seed(&random, seed);
    struct bed bed;
    bed_open(&bed, SLOTS, portable);
    uint32_t slots[BATCH];
    for (int step = 0; step < check_rounds(2000000 / BATCH); step++) {
        for (size_t i = 0; i < BATCH; i++) {
            slots[i] = (uint32_t)rp_random_below(&random, SLOTS);
            uint64_t decade = 1;
            for (uint64_t d = rp_random_below(&random, 13); d > 0; d--) {
                decade *= 10;
            }
            bed_write(&bed, slots[i], 1 + rp_random_below(&random, decade));
        }
        rp_tree_refresh(&bed.tree, slots, BATCH);
    }
    compare_sums(&bed);
    for (uint32_t i = 0; i < SLOTS; i++) {
        bed_set(&bed, i, 1);
    }
    CHECK(rp_tree_total(&bed.tree) == SLOTS, "all leaves are 1, the total is not their number");
    compare_draws(&bed);
    bed_close(&bed);
}

/* cleanrl#546 and the ring's last slot: given a size that is no power of two, exactly full. Expect
 * the first target on the first leaf, the last on the last (torchrl#2230, ray#7180: the draw at the
 * upper edge went out of range). */
static void odd_sizes_and_edges(bool portable) {
    static const uint32_t sizes[] = {3, 6, 10, 17, 100, 241, 1000, 4097, 50000};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        struct bed bed;
        bed_open(&bed, sizes[s], portable);
        for (uint32_t i = 0; i < sizes[s]; i++) {
            bed_set(&bed, i, rp_tree_mass_max(sizes[s]));
        }
        compare_sums(&bed);
        uint64_t edges[2] = {0, rp_tree_total(&bed.tree) - 1};
        uint32_t slots[2];
        rp_tree_draw(&bed.tree, edges, slots, 2);
        CHECK(slots[0] == 0 && slots[1] == sizes[s] - 1, "last leaf never drawn: %u of %u",
              slots[1], sizes[s]);
        compare_draws(&bed);
        bed_close(&bed);
    }
}

/* Given one positive leaf among zeros (ReinforcementLearningTrajectories.jl#59 drew the zeros).
 * Expect it, whatever the target; and given none, expect total 0 and count 0. */
static void one_among_zeros(bool portable) {
    static const uint32_t places[] = {0, 1, 15, 16, 255, 256, 4095, 4096, 4999};
    struct bed bed;
    bed_open(&bed, 5000, portable);
    for (size_t p = 0; p < sizeof(places) / sizeof(places[0]); p++) {
        bed_set(&bed, places[p], 3);
        uint64_t targets[3] = {0, 1, 2};
        uint32_t rank = 0;
        uint32_t slots[4];
        CHECK(rp_tree_total(&bed.tree) == 3 && rp_tree_count(&bed.tree) == 1);
        rp_tree_draw(&bed.tree, targets, slots, 3);
        rp_tree_draw_rank(&bed.tree, &rank, slots + 3, 1);
        for (int i = 0; i < 4; i++) {
            CHECK(slots[i] == places[p], "drew %u, only %u has mass", slots[i], places[p]);
        }
        bed_set(&bed, places[p], 0);
        CHECK(rp_tree_total(&bed.tree) == 0 && rp_tree_count(&bed.tree) == 0);
    }
    rp_tree_check(&bed.tree);
    bed_close(&bed);
}

/* flashbax#58 and torchrl#3925: given priorities through the power. Expect the leaf to be the power
 * of the priority once, to the bit, and a new item at the largest mass so far to weigh exactly as
 * much as the item that set it. */
static void masses_arrive_unrounded(bool portable) {
    struct rp_power power;
    CHECK(rp_power_exponent(0.6, &power) == 0);
    struct bed bed;
    bed_open(&bed, 1000, portable);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t mass = rp_power_mass(&power, 16777217.0 + i / 2, rp_tree_mass_max(1000));
        bed_set(&bed, i, mass);
        sum += mass;
        CHECK(bed.leaf[i] == mass && rp_tree_total(&bed.tree) == sum, "a mass was rounded");
    }
    CHECK(rp_power_mass(&power, 4294967296.0, rp_tree_mass_max(1000)) < (uint64_t)1 << 46,
          "alpha was not applied, or twice");
    bed_close(&bed);
}

/* Given the largest capacity. Expect sizes that fit it (the memory itself is not taken). */
static void largest_sizes(void) {
    CHECK(rp_tree_leaf_count(RP_TREE_CAPACITY_MAX) == (size_t)1 << 31);
    CHECK(rp_tree_mass_max(RP_TREE_CAPACITY_MAX) == (uint64_t)1 << 32);
    CHECK(rp_tree_mass_max(1) == (uint64_t)1 << 63);
    size_t bytes = 0;
    for (size_t n = (size_t)1 << 27; n > 1; n /= 16) {
        bytes += (n < 16 ? 16 : n) * 12;
    }
    CHECK(rp_tree_bytes(RP_TREE_CAPACITY_MAX) == bytes, "%zu bytes",
          rp_tree_bytes(RP_TREE_CAPACITY_MAX));
    CHECK(rp_tree_bytes(1) == 0 && rp_tree_bytes(16) == 0 && rp_tree_bytes(17) == 16 * 12);
}

int main(void) {
    uint64_t seed = check_seed(20240917);
    for (int portable = 0; portable < 2; portable++) {
        printf("  kernel: %s\n", portable ? "portable" : "the processor's best");
        every_target(portable);
        check_group("small trees: every target, as many on each leaf as it has mass");
        random_walks(portable, seed);
        check_group("random batches: sums and draws of the naive array");
        no_drift(portable, seed);
        check_group("2 M updates over 12 decades: the root is exact");
        odd_sizes_and_edges(portable);
        check_group("sizes that are no power of two, full: both edges in range");
        one_among_zeros(portable);
        check_group("one positive leaf among zeros is the only one drawn");
        masses_arrive_unrounded(portable);
        check_group("masses arrive unrounded, the power once");
    }
    kernels_agree(seed, SLOTS_MAX);
    kernels_agree(seed, (1u << 20) + 1);
    check_group("kernels agree");
    largest_sizes();
    check_group("sizes up to 2^31 leaves");
    return check_done("test_sum_tree");
}
