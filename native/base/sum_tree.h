/* sum_tree.h: exact prioritized and uniform draws over an array of leaf masses.
 *
 * The leaves, one 64-bit mass for each slot, belong to the caller and usually lie in the persistent
 * region. Above them stands a 16-ary tree of derived memory. An entry of level k >= 1 stands for a
 * group of sixteen entries of level k - 1 (at level 1: of leaves), and the entries of one group
 * hold running sums: mass[k][j] is the mass below entries 16 * (j / 16) .. j, count[k][j] is how
 * many positive leaves are below them. So a node's own mass is the difference of two neighbours,
 * a descent compares without adding, and a change is one addition to the rest of a group. The
 * topmost level is one group; its last entry is the total. All of it is integers: every node equals
 * the sum of its children exactly, in any order of changes, for ever.
 *
 * A group is two cache lines of masses and one of counts, in arrays of their own: a prioritized
 * draw reads no counts, a uniform one no masses but the last group. At 1 M leaves a draw touches
 * five groups, of which only the leaf's and the one above lie outside the first cache.
 *
 * Invariants, asserted by rp_tree_check() in these words:
 *   leaf[i] <= 2^63 / capacity for i < capacity, so no sum can overflow
 *   leaf[i] = 0 for capacity <= i < rp_tree_leaf_count(capacity)
 *   mass[k][j] = mass[k][j-1] (0 where j starts a group) + the mass of group j of level k - 1
 *   count[k][j] likewise, counting positive leaves
 *   total = the mass of the topmost group <= 2^63, and positive likewise <= capacity
 *
 * Limits: 1 <= capacity <= 2^31. Leaves and nodes are 64-byte aligned. The struct holds pointers of
 * this process: rp_tree_open() rebuilds it, it is never stored. One owner at a time.
 *
 * The minimum mass is not kept: replacing the smallest leaf would look at fifteen siblings on every
 * level and a third array at each update, for one use only, normalising weights by the table's
 * maximum, where the batch's own maximum serves.
 */
#ifndef RP_SUM_TREE_H
#define RP_SUM_TREE_H

#include <stddef.h>
#include <stdint.h>

#include "base/prefetch.h"

enum {
    RP_TREE_FANOUT = 16,
    RP_TREE_LEVELS_MAX = 8, /* the leaves and seven levels above them: 16^8 > 2^31 */
    RP_TREE_GROUP = 32,     /* descents that run side by side */
    RP_TREE_MASS_BYTES = RP_TREE_FANOUT * sizeof(uint64_t),  /* a group of masses */
    RP_TREE_COUNT_BYTES = RP_TREE_FANOUT * sizeof(uint32_t), /* a group of counts */
};
#define RP_TREE_CAPACITY_MAX ((uint32_t)1 << 31)

struct rp_tree_kernel;

struct rp_tree {
    uint64_t *mass[RP_TREE_LEVELS_MAX];  /* mass[0] is the caller's leaves */
    uint32_t *count[RP_TREE_LEVELS_MAX]; /* count[0] is NULL */
    const struct rp_tree_kernel *kernel;
    uint64_t total;
    uint32_t positive; /* leaves with positive mass */
    uint32_t capacity;
    uint32_t top; /* the topmost level: 0 for up to 16 leaves */
};

/* How many leaf words the caller keeps for `capacity` slots: a multiple of 16, the surplus zero. */
size_t rp_tree_leaf_count(uint32_t capacity);

/* Bytes of derived memory for `capacity` slots: a multiple of 64, may be 0. */
size_t rp_tree_bytes(uint32_t capacity);

/* The largest mass a leaf may hold, 2^63 / capacity: with it no total overflows. */
uint64_t rp_tree_mass_max(uint32_t capacity);

/* Derive everything from the leaves. `leaf` and `nodes` stay the caller's and outlive *t; `nodes`
 * needs no clearing. Chooses the fastest kernel this processor has. Cost: one pass over all. */
void rp_tree_open(struct rp_tree *t, uint64_t *leaf, void *nodes, uint32_t capacity);

/* From now on this tree takes the portable kernel, whose answers are the same. */
void rp_tree_use_portable(struct rp_tree *t);

/* Bring the nodes above n leaves up to date; the caller has already written those leaf words. Any
 * order, duplicates allowed, neighbours cheap. Cost: about 15 ns a slot at 1 M leaves. */
void rp_tree_refresh(struct rp_tree *t, const uint32_t *slots, size_t n);

/* Fetch group `at` of a level whose groups have `bytes` bytes, one line or two. */
static inline void rp_tree_prefetch_group(const void *level, uint32_t at, size_t bytes) {
    const char *group = (const char *)level + at * bytes;
    rp_prefetch(group);
    rp_prefetch(group + bytes - 64);
}

/* Fetch what a refresh of `slot` touches outside the first cache: worth it some 16 slots before. */
static inline void rp_tree_prefetch(const struct rp_tree *t, uint32_t slot) {
    uint32_t group = slot / RP_TREE_FANOUT;
    rp_tree_prefetch_group(t->mass[0], group, RP_TREE_MASS_BYTES);
    if (t->top > 0) {
        uint32_t above = group / RP_TREE_FANOUT;
        rp_tree_prefetch_group(t->mass[1], above, RP_TREE_MASS_BYTES);
        rp_prefetch(t->count[1] + above * RP_TREE_FANOUT);
    }
}

/* The sum of all leaves, and how many of them are positive. */
uint64_t rp_tree_total(const struct rp_tree *t);
uint32_t rp_tree_count(const struct rp_tree *t);

/* For each target in [0, total): the one slot i with
 * leaf[0] + .. + leaf[i-1] <= target < leaf[0] + .. + leaf[i]. Mass zero is never chosen. */
void rp_tree_draw(const struct rp_tree *t, const uint64_t *targets, uint32_t *slots, size_t n);

/* For each rank in [0, count): the positive leaf with exactly `rank` positive leaves before it. */
void rp_tree_draw_rank(const struct rp_tree *t, const uint32_t *ranks, uint32_t *slots, size_t n);

/* How many positive leaves lie before `slot`. Cost: one group a level. */
uint32_t rp_tree_rank(const struct rp_tree *t, uint32_t slot);

/* Assert every invariant above. Cost: one pass over everything. */
void rp_tree_check(const struct rp_tree *t);

#endif
