/* sum_tree.c: the shape of the tree, its life, and the loop over groups of descents.
 *
 * Levels shrink by sixteen until one group is left; that group's sum is kept in the struct, so a
 * tree of up to 16 leaves has no derived memory at all. Each level is padded to whole groups: a
 * descent never leaves its arrays, and a padding entry, having no mass, is never chosen.
 *
 * A draw goes down RP_TREE_GROUP targets at a time, level by level: the next group of each descent
 * is fetched while the others are decided, so the latency of the last two levels overlaps. A climb
 * first sums the groups of RP_TREE_CHUNK leaves, then carries the differences to the levels above.
 */
#include "base/sum_tree.h"

#include "base/minmax.h"
#include "base/sum_tree_kernel.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

static size_t padded(size_t n) {
    return (n + RP_TREE_FANOUT - 1) & ~(size_t)(RP_TREE_FANOUT - 1);
}

size_t rp_tree_leaf_count(uint32_t capacity) {
    assert(capacity >= 1 && capacity <= RP_TREE_CAPACITY_MAX);
    return padded(capacity);
}

size_t rp_tree_bytes(uint32_t capacity) {
    size_t bytes = 0;
    for (size_t n = rp_tree_leaf_count(capacity); n > RP_TREE_FANOUT;) {
        n = padded(n / RP_TREE_FANOUT);
        bytes += n * (sizeof(uint64_t) + sizeof(uint32_t));
    }
    return bytes;
}

uint64_t rp_tree_mass_max(uint32_t capacity) {
    assert(capacity >= 1 && capacity <= RP_TREE_CAPACITY_MAX);
    return ((uint64_t)1 << 63) / capacity;
}

/* How many groups a level has: the entries of the level above. */
static size_t group_total(const struct rp_tree *t, uint32_t level) {
    size_t leaves = rp_tree_leaf_count(t->capacity);
    size_t unit = (size_t)RP_TREE_FANOUT << 4 * level;
    return (leaves + unit - 1) / unit;
}

/* The mass of group `group` of a level, and how many positive leaves are below it. */
static uint64_t group_mass(const struct rp_tree *t, uint32_t level, size_t group) {
    const uint64_t *entries = t->mass[level] + group * RP_TREE_FANOUT;
    if (level > 0) {
        return entries[RP_TREE_FANOUT - 1];
    }
    uint64_t sum = 0;
    for (int j = 0; j < RP_TREE_FANOUT; j++) {
        sum += entries[j];
    }
    return sum;
}

static uint32_t group_count(const struct rp_tree *t, uint32_t level, size_t group) {
    if (level > 0) {
        return t->count[level][group * RP_TREE_FANOUT + RP_TREE_FANOUT - 1];
    }
    uint32_t sum = 0;
    for (int j = 0; j < RP_TREE_FANOUT; j++) {
        sum += t->mass[0][group * RP_TREE_FANOUT + (size_t)j] != 0;
    }
    return sum;
}

/* Place the levels in `nodes`: the masses of a level, then its counts, from the leaves upwards. */
static void lay_out(struct rp_tree *t, uint64_t *leaf, void *nodes) {
    uint8_t *next = nodes;
    t->mass[0] = leaf;
    for (size_t n = rp_tree_leaf_count(t->capacity); n > RP_TREE_FANOUT;) {
        n = padded(n / RP_TREE_FANOUT);
        t->top++;
        t->mass[t->top] = (uint64_t *)(void *)next;
        next += n * sizeof(uint64_t);
        t->count[t->top] = (uint32_t *)(void *)next;
        next += n * sizeof(uint32_t);
    }
    assert(t->top < RP_TREE_LEVELS_MAX);
}

/* One group's running sums. An entry that pads the last group stands for nothing and repeats its
 * sum. */
static void sum_group(struct rp_tree *t, uint32_t level, size_t first, size_t groups) {
    uint64_t mass = 0;
    uint32_t count = 0;
    for (size_t j = first; j < first + RP_TREE_FANOUT; j++) {
        t->mass[level][j] = mass += j < groups ? group_mass(t, level - 1, j) : 0;
        t->count[level][j] = count += j < groups ? group_count(t, level - 1, j) : 0;
    }
}

/* Derive the levels from `level` on out of the one below it, and the total out of the topmost. */
static void build(struct rp_tree *t, uint32_t level) {
    for (; level <= t->top; level++) {
        size_t groups = group_total(t, level - 1);
        for (size_t first = 0; first < groups; first += RP_TREE_FANOUT) {
            sum_group(t, level, first, groups);
        }
    }
    t->total = group_mass(t, t->top, 0);
    t->positive = group_count(t, t->top, 0);
}

void rp_tree_open(struct rp_tree *t, uint64_t *leaf, void *nodes, uint32_t capacity) {
    assert(((uintptr_t)leaf & 63) == 0 && ((uintptr_t)nodes & 63) == 0);
    memset(t, 0, sizeof(*t));
    t->capacity = capacity;
    const struct rp_tree_kernel *wide = rp_tree_kernel_avx512();
    t->kernel = wide ? wide : &rp_tree_kernel_portable;
    lay_out(t, leaf, nodes);
    build(t, 1);
}

void rp_tree_use_portable(struct rp_tree *t) {
    t->kernel = &rp_tree_kernel_portable;
}

static void climb(struct rp_tree *t, const uint32_t *slots, size_t n, uint32_t top) {
    struct rp_tree_sum sums[RP_TREE_CHUNK];
    for (size_t i = 0; i < n && i < RP_TREE_CHUNK; i++) {
        rp_tree_prefetch_group(t->mass[0], slots[i] / RP_TREE_FANOUT, RP_TREE_MASS_BYTES);
    }
    while (n > 0) {
        size_t some = rp_min(n, RP_TREE_CHUNK);
        size_t next = rp_min(n - some, RP_TREE_CHUNK);
        size_t groups = t->kernel->sum_groups(t, slots, some, next, sums);
        t->kernel->carry(t, sums, groups, top);
        slots += some;
        n -= some;
    }
}

void rp_tree_refresh(struct rp_tree *t, const uint32_t *slots, size_t n) {
    uint32_t top = t->top;
    for (size_t i = 0; i < n; i++) {
        assert(slots[i] < t->capacity);
    }
    while (top > 0 && group_total(t, top - 1) <= n) {
        top--; /* more changes than entries: a rebuild is cheaper than a carry for each */
    }
    if (top > 0) {
        climb(t, slots, n, top);
    }
    build(t, top + 1);
    assert(t->total <= (uint64_t)1 << 63 && t->positive <= t->capacity);
}

uint64_t rp_tree_total(const struct rp_tree *t) {
    return t->total;
}

uint32_t rp_tree_count(const struct rp_tree *t) {
    return t->positive;
}

static void draw_group(const struct rp_tree *t, const uint64_t *targets, uint32_t *slots,
                       size_t n) {
    uint64_t left[RP_TREE_GROUP];
    for (size_t i = 0; i < n; i++) {
        assert(targets[i] < t->total);
        left[i] = targets[i];
        slots[i] = 0;
    }
    for (uint32_t level = t->top; level > 0; level--) {
        t->kernel->draw_level(t->mass[level], t->mass[level - 1], left, slots, n);
    }
    t->kernel->draw_leaf(t->mass[0], left, slots, n);
}

void rp_tree_draw(const struct rp_tree *t, const uint64_t *targets, uint32_t *slots, size_t n) {
    for (size_t done = 0; done < n; done += RP_TREE_GROUP) {
        size_t some = rp_min(n - done, RP_TREE_GROUP);
        draw_group(t, targets + done, slots + done, some);
    }
}

static void rank_group(const struct rp_tree *t, const uint32_t *ranks, uint32_t *slots, size_t n) {
    uint32_t left[RP_TREE_GROUP];
    for (size_t i = 0; i < n; i++) {
        assert(ranks[i] < t->positive);
        left[i] = ranks[i];
        slots[i] = 0;
    }
    for (uint32_t level = t->top; level > 0; level--) {
        bool last = level == 1;
        const void *next = last ? (const void *)t->mass[0] : t->count[level - 1];
        t->kernel->rank_level(t->count[level], next,
                              last ? RP_TREE_MASS_BYTES : RP_TREE_COUNT_BYTES, left, slots, n);
    }
    t->kernel->rank_leaf(t->mass[0], left, slots, n);
}

void rp_tree_draw_rank(const struct rp_tree *t, const uint32_t *ranks, uint32_t *slots, size_t n) {
    for (size_t done = 0; done < n; done += RP_TREE_GROUP) {
        size_t some = rp_min(n - done, RP_TREE_GROUP);
        rank_group(t, ranks + done, slots + done, some);
    }
}

uint32_t rp_tree_rank(const struct rp_tree *t, uint32_t slot) {
    uint32_t at = slot / RP_TREE_FANOUT;
    uint32_t rank = 0;
    assert(slot < t->capacity);
    for (uint32_t i = at * RP_TREE_FANOUT; i < slot; i++) {
        rank += t->mass[0][i] != 0;
    }
    for (uint32_t level = 1; level <= t->top; level++) {
        rank += at % RP_TREE_FANOUT ? t->count[level][at - 1] : 0;
        at /= RP_TREE_FANOUT;
    }
    return rank;
}

/* What entry j of a level has to be, given the entry before it and the level below. */
static uint64_t entry_mass(const struct rp_tree *t, uint32_t level, size_t j, size_t groups) {
    uint64_t before = j % RP_TREE_FANOUT ? t->mass[level][j - 1] : 0;
    return before + (j < groups ? group_mass(t, level - 1, j) : 0);
}

static uint32_t entry_count(const struct rp_tree *t, uint32_t level, size_t j, size_t groups) {
    uint32_t before = j % RP_TREE_FANOUT ? t->count[level][j - 1] : 0;
    return before + (j < groups ? group_count(t, level - 1, j) : 0);
}

void rp_tree_check(const struct rp_tree *t) {
    size_t n = rp_tree_leaf_count(t->capacity);
    for (size_t i = 0; i < n; i++) {
        assert(t->mass[0][i] <= (i < t->capacity ? rp_tree_mass_max(t->capacity) : 0));
    }
    for (uint32_t level = 1; level <= t->top; level++) {
        size_t groups = group_total(t, level - 1);
        for (size_t j = 0; j < padded(groups); j++) {
            assert(t->mass[level][j] == entry_mass(t, level, j, groups));
            assert(t->count[level][j] == entry_count(t, level, j, groups));
        }
    }
    assert(t->total == group_mass(t, t->top, 0) && t->total <= (uint64_t)1 << 63);
    assert(t->positive == group_count(t, t->top, 0) && t->positive <= t->capacity);
}
