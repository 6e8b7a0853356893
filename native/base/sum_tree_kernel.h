/* sum_tree_kernel.h: what a kernel of the sum tree provides; private to sum_tree*.c.
 *
 * A kernel is the inner loops only: one level of descent for up to RP_TREE_GROUP targets side by
 * side, and the two halves of the climb from changed leaves. Each kernel is its own file; all give
 * the same answers.
 *
 * One level of descent takes, for each i < n, the group at[i] that the level above chose and what
 * is left of the target inside it, and replaces them by the chosen entry and what is left inside
 * that one. `next` is the level below, whose chosen groups are prefetched.
 *
 * The climb goes in two stages, RP_TREE_CHUNK slots at a time: first the sums of their leaf groups,
 * then the differences are carried up through the levels 1 .. top (top >= 1; the caller rebuilds
 * the levels above). The first stage stores nothing between its reads, so the processor has as many
 * cache misses under way as it can. Taken group by group, each read would wait for the stores of
 * the group before. The prefetches stand between the sums, a few at a time: prefetches in a row
 * wait for each other. Slots side by side in one group are summed once. A group that is named twice
 * all the same has the same sum, and the second time the difference is 0.
 */
#ifndef RP_SUM_TREE_KERNEL_H
#define RP_SUM_TREE_KERNEL_H

#include "base/sum_tree.h"

#include <assert.h>
#include <stdbool.h>

enum { RP_TREE_CHUNK = 32 };

struct rp_tree_sum { /* of a leaf group */
    uint64_t mass;
    uint32_t positive; /* how many of its leaves are */
    uint32_t group;
};

struct rp_tree_kernel {
    void (*draw_level)(const uint64_t *mass, const uint64_t *next, uint64_t *left, uint32_t *at,
                       size_t n);
    void (*draw_leaf)(const uint64_t *leaf, const uint64_t *left, uint32_t *at, size_t n);
    void (*rank_level)(const uint32_t *count, const void *next, size_t next_bytes, uint32_t *left,
                       uint32_t *at, size_t n);
    void (*rank_leaf)(const uint64_t *leaf, const uint32_t *left, uint32_t *at, size_t n);
    /* Of n slots; the n_next behind them are prefetched. Returns how many sums were written. */
    size_t (*sum_groups)(const struct rp_tree *t, const uint32_t *slots, size_t n, size_t n_next,
                         struct rp_tree_sum *sums);
    void (*carry)(struct rp_tree *t, const struct rp_tree_sum *sums, size_t n, uint32_t top);
};

extern const struct rp_tree_kernel rp_tree_kernel_portable;

/* The AVX-512 kernel, or NULL where this processor cannot run it. */
const struct rp_tree_kernel *rp_tree_kernel_avx512(void);

/* What a group's entries before `chosen` hold. The load is made either way, so that no branch is
 * guessed: one target in sixteen chooses the first entry. */
static inline uint64_t rp_tree_mass_before(const uint64_t *sums, uint32_t chosen) {
    uint64_t before = sums[chosen - (chosen > 0)];
    return chosen > 0 ? before : 0;
}

/* Asks for the level above a leaf group. */
static inline void rp_tree_prefetch_above(const struct rp_tree *t, uint32_t group) {
    uint32_t above = group / RP_TREE_FANOUT;
    rp_tree_prefetch_group(t->mass[1], above, RP_TREE_MASS_BYTES);
    rp_prefetch(t->count[1] + (size_t)above * RP_TREE_FANOUT);
}

/* Of the slots behind the n: asks for the leaves of number i. */
static inline void rp_tree_prefetch_next(const struct rp_tree *t, const uint32_t *slots, size_t i,
                                         size_t n, size_t n_next) {
    if (i < n_next) {
        rp_tree_prefetch_group(t->mass[0], slots[n + i] / RP_TREE_FANOUT, RP_TREE_MASS_BYTES);
    }
}

/* What an entry itself weighs, out of the running sums of its group. */
static inline uint64_t rp_tree_entry_mass(const uint64_t *mass, uint32_t j) {
    return mass[j] - (j % RP_TREE_FANOUT ? mass[j - 1] : 0);
}

static inline uint32_t rp_tree_entry_count(const uint32_t *count, uint32_t j) {
    return count[j] - (j % RP_TREE_FANOUT ? count[j - 1] : 0);
}

#endif
