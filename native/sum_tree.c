/* sum_tree.c: the shape of the tree, its life, and the loop over groups of descents.
 *
 * Levels shrink by sixteen until one group of at most sixteen entries is left; that group's sum is
 * kept in the struct, so a tree of up to 16 leaves has no derived memory at all. Each level is
 * padded to whole groups with zeros: a descent never leaves its arrays, and a padding entry, having
 * no mass, is never chosen.
 *
 * A draw goes down RP_TREE_GROUP targets at a time, level by level: the next group of each descent
 * is fetched while the others are decided, so the latency of the last two levels overlaps.
 */
#include "sum_tree.h"

#include "sum_tree_kernel.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

static size_t padded(size_t n)
{
    return (n + RP_TREE_FANOUT - 1) & ~(size_t)(RP_TREE_FANOUT - 1);
}

size_t rp_tree_leaf_count(uint32_t capacity)
{
    assert(capacity >= 1 && capacity <= RP_TREE_CAPACITY_MAX);
    return padded(capacity);
}

size_t rp_tree_bytes(uint32_t capacity)
{
    size_t bytes = 0;
    for (size_t n = rp_tree_leaf_count(capacity); n > RP_TREE_FANOUT;) {
        n = padded(n / RP_TREE_FANOUT);
        bytes += n * (sizeof(uint64_t) + sizeof(uint32_t));
    }
    return bytes;
}

uint64_t rp_tree_mass_max(uint32_t capacity)
{
    assert(capacity >= 1 && capacity <= RP_TREE_CAPACITY_MAX);
    return ((uint64_t)1 << 63) / capacity;
}

/* Sums of entries [first, first + 16) of a level; at the leaves the count is of positive masses. */
static uint64_t sum_mass(const struct rp_tree *t, uint32_t level, size_t first)
{
    uint64_t sum = 0;
    for (size_t i = first; i < first + RP_TREE_FANOUT; i++) {
        sum += t->mass[level][i];
    }
    return sum;
}

static uint32_t sum_count(const struct rp_tree *t, uint32_t level, size_t first)
{
    uint32_t sum = 0;
    for (size_t i = first; i < first + RP_TREE_FANOUT; i++) {
        sum += level == 0 ? t->mass[0][i] != 0 : t->count[level][i];
    }
    return sum;
}

/* Place the levels in `nodes`: the masses of a level, then its counts, from the leaves upwards. */
static void lay_out(struct rp_tree *t, uint64_t *leaf, void *nodes)
{
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

static void build(struct rp_tree *t)
{
    size_t n = rp_tree_leaf_count(t->capacity);
    for (uint32_t level = 1; level <= t->top; level++) {
        size_t nodes = n / RP_TREE_FANOUT;
        n = padded(nodes);
        for (size_t j = 0; j < n; j++) {
            bool real = j < nodes;
            t->mass[level][j] = real ? sum_mass(t, level - 1, j * RP_TREE_FANOUT) : 0;
            t->count[level][j] = real ? sum_count(t, level - 1, j * RP_TREE_FANOUT) : 0;
        }
    }
    t->total = sum_mass(t, t->top, 0);
    t->positive = sum_count(t, t->top, 0);
}

void rp_tree_open(struct rp_tree *t, uint64_t *leaf, void *nodes, uint32_t capacity)
{
    assert(((uintptr_t)leaf & 63) == 0 && ((uintptr_t)nodes & 63) == 0);
    memset(t, 0, sizeof(*t));
    t->capacity = capacity;
    const struct rp_tree_kernel *wide = rp_tree_kernel_avx512();
    t->kernel = wide ? wide : &rp_tree_kernel_portable;
    lay_out(t, leaf, nodes);
    build(t);
}

void rp_tree_use_portable(struct rp_tree *t)
{
    t->kernel = &rp_tree_kernel_portable;
}

void rp_tree_refresh(struct rp_tree *t, const uint32_t *slots, size_t n)
{
    t->kernel->refresh(t, slots, n);
    assert(t->total <= (uint64_t)1 << 63 && t->positive <= t->capacity);
}

uint64_t rp_tree_total(const struct rp_tree *t)
{
    return t->total;
}

uint32_t rp_tree_count(const struct rp_tree *t)
{
    return t->positive;
}

static void draw_group(const struct rp_tree *t, const uint64_t *targets, uint32_t *slots, size_t n)
{
    uint64_t left[RP_TREE_GROUP];
    for (size_t i = 0; i < n; i++) {
        assert(targets[i] < t->total);
        left[i] = targets[i];
        slots[i] = 0;
    }
    for (uint32_t level = t->top; level > 0; level--) {
        t->kernel->draw_level(t->mass[level], t->mass[level - 1], RP_TREE_MASS_BYTES, left, slots,
                              n);
    }
    t->kernel->draw_level(t->mass[0], t->mass[0], 0, left, slots, n);
}

void rp_tree_draw(const struct rp_tree *t, const uint64_t *targets, uint32_t *slots, size_t n)
{
    for (size_t done = 0; done < n; done += RP_TREE_GROUP) {
        size_t some = n - done < RP_TREE_GROUP ? n - done : RP_TREE_GROUP;
        draw_group(t, targets + done, slots + done, some);
    }
}

static void rank_group(const struct rp_tree *t, const uint32_t *ranks, uint32_t *slots, size_t n)
{
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

void rp_tree_draw_rank(const struct rp_tree *t, const uint32_t *ranks, uint32_t *slots, size_t n)
{
    for (size_t done = 0; done < n; done += RP_TREE_GROUP) {
        size_t some = n - done < RP_TREE_GROUP ? n - done : RP_TREE_GROUP;
        rank_group(t, ranks + done, slots + done, some);
    }
}

void rp_tree_check(const struct rp_tree *t)
{
    size_t n = rp_tree_leaf_count(t->capacity);
    for (size_t i = 0; i < n; i++) {
        assert(t->mass[0][i] <= (i < t->capacity ? rp_tree_mass_max(t->capacity) : 0));
    }
    for (uint32_t level = 1; level <= t->top; level++) {
        size_t nodes = n / RP_TREE_FANOUT;
        n = padded(nodes);
        for (size_t j = 0; j < n; j++) {
            bool real = j < nodes;
            size_t first = j * RP_TREE_FANOUT;
            assert(t->mass[level][j] == (real ? sum_mass(t, level - 1, first) : 0));
            assert(t->count[level][j] == (real ? sum_count(t, level - 1, first) : 0));
        }
    }
    assert(t->total == sum_mass(t, t->top, 0) && t->total <= (uint64_t)1 << 63);
    assert(t->positive == sum_count(t, t->top, 0) && t->positive <= t->capacity);
}
