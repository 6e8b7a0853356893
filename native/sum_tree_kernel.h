/* sum_tree_kernel.h: what a kernel of the sum tree provides; private to sum_tree*.c.
 *
 * A kernel is the inner loops only: one level of descent for up to RP_TREE_GROUP targets side by
 * side, and the climb from changed leaves. Each kernel is its own file; all give the same answers.
 *
 * One level of descent takes, for each i < n, the node at[i] of the level above and what is left of
 * the target inside it, and replaces them by the chosen child and what is left inside that one.
 * `child` is the level it looks at; `next` is the level below, whose chosen groups of `next_bytes`
 * each it prefetches (0 at the leaves: there is none).
 */
#ifndef RP_SUM_TREE_KERNEL_H
#define RP_SUM_TREE_KERNEL_H

#include "sum_tree.h"

#include <assert.h>

struct rp_tree_kernel {
    void (*draw_level)(const uint64_t *child, const void *next, size_t next_bytes, uint64_t *left,
                       uint32_t *at, size_t n);
    void (*rank_level)(const uint32_t *child, const void *next, size_t next_bytes, uint32_t *left,
                       uint32_t *at, size_t n);
    void (*rank_leaf)(const uint64_t *leaf, const uint32_t *left, uint32_t *at, size_t n);
    void (*refresh)(struct rp_tree *t, const uint32_t *slots, size_t n);
};

extern const struct rp_tree_kernel rp_tree_kernel_portable;

/* The AVX-512 kernel, or NULL where this processor cannot run it. */
const struct rp_tree_kernel *rp_tree_kernel_avx512(void);

enum {
    RP_TREE_MASS_BYTES = RP_TREE_FANOUT * sizeof(uint64_t),  /* a group of masses */
    RP_TREE_COUNT_BYTES = RP_TREE_FANOUT * sizeof(uint32_t), /* a group of counts */
    RP_TREE_PREFETCH_AHEAD = 16, /* changed leaves whose groups are on their way */
};

/* Fetch group `at` of a level whose groups have `bytes` bytes: none, one or two lines. */
static inline void rp_tree_prefetch_group(const void *level, uint32_t at, size_t bytes)
{
    for (size_t line = 0; line < bytes; line += 64) {
        __builtin_prefetch((const char *)level + at * bytes + line);
    }
}

/* The leaf group `group` now holds `mass` in `positive` leaves: carry the difference to the root.
 * Differences of unsigned integers are exact and associative, so each ancestor still equals the sum
 * of its children to the last bit. A group that did not change costs two loads. */
static inline void rp_tree_climb(struct rp_tree *t, uint32_t group, uint64_t mass,
                                 uint32_t positive)
{
    if (t->top == 0) {
        t->total = mass;
        t->positive = positive;
        return;
    }
    uint64_t more = mass - t->mass[1][group];
    uint32_t more_positive = positive - t->count[1][group];
    if ((more | more_positive) == 0) {
        return;
    }
    t->mass[1][group] = mass;
    t->count[1][group] = positive;
    for (uint32_t level = 2; level <= t->top; level++) {
        group /= RP_TREE_FANOUT;
        t->mass[level][group] += more;
        t->count[level][group] += more_positive;
    }
    t->total += more;
    t->positive += more_positive;
}

/* Fetch what the climb from `slot` will touch outside the first cache. */
static inline void rp_tree_prefetch_climb(const struct rp_tree *t, uint32_t slot)
{
    uint32_t group = slot / RP_TREE_FANOUT;
    rp_tree_prefetch_group(t->mass[0], group, RP_TREE_MASS_BYTES);
    if (t->top > 0) {
        __builtin_prefetch(t->mass[1] + group, 1);
        __builtin_prefetch(t->count[1] + group, 1);
    }
}

#endif
