/* sum_tree_kernel.h: what a kernel of the sum tree provides; private to sum_tree*.c.
 *
 * A kernel is the inner loops only: one level of descent for up to RP_TREE_GROUP targets side by
 * side, and the climb from changed leaves. Each kernel is its own file; all give the same answers.
 *
 * One level of descent takes, for each i < n, the group at[i] that the level above chose and what
 * is left of the target inside it, and replaces them by the chosen entry and what is left inside
 * that one. `next` is the level below, whose chosen groups are prefetched.
 *
 * The climb sums the leaf group of each slot and carries what changed up to level `top`, which is
 * at least 1; the levels above it are made anew by the caller.
 */
#ifndef RP_SUM_TREE_KERNEL_H
#define RP_SUM_TREE_KERNEL_H

#include "sum_tree.h"

#include <assert.h>
#include <stdbool.h>

struct rp_tree_kernel {
    void (*draw_level)(const uint64_t *mass, const uint64_t *next, uint64_t *left, uint32_t *at,
                       size_t n);
    void (*draw_leaf)(const uint64_t *leaf, const uint64_t *left, uint32_t *at, size_t n);
    void (*rank_level)(const uint32_t *count, const void *next, size_t next_bytes, uint32_t *left,
                       uint32_t *at, size_t n);
    void (*rank_leaf)(const uint64_t *leaf, const uint32_t *left, uint32_t *at, size_t n);
    void (*climb)(struct rp_tree *t, const uint32_t *slots, size_t n, uint32_t top);
};

extern const struct rp_tree_kernel rp_tree_kernel_portable;

/* The AVX-512 kernel, or NULL where this processor cannot run it. */
const struct rp_tree_kernel *rp_tree_kernel_avx512(void);

enum {
    RP_TREE_PREFETCH_AHEAD = 16, /* changed leaves whose groups are on their way */
};

/* What a group's entries before `chosen` hold. The load is made either way, so that no branch is
 * guessed: one target in sixteen chooses the first entry. */
static inline uint64_t rp_tree_mass_before(const uint64_t *sums, uint32_t chosen)
{
    uint64_t before = sums[chosen - (chosen > 0)];
    return chosen > 0 ? before : 0;
}

/* What an entry itself weighs, out of the running sums of its group. */
static inline uint64_t rp_tree_entry_mass(const uint64_t *mass, uint32_t j)
{
    return mass[j] - (j % RP_TREE_FANOUT ? mass[j - 1] : 0);
}

static inline uint32_t rp_tree_entry_count(const uint32_t *count, uint32_t j)
{
    return count[j] - (j % RP_TREE_FANOUT ? count[j - 1] : 0);
}

#endif
