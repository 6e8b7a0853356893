/* sum_tree_portable.c: the sum tree's kernel in plain C, for every processor, and the yardstick of
 * the others.
 *
 * The choice among sixteen children has no branch: with prefix p[j] = child[0] + .. + child[j], the
 * chosen child is the number of j with p[j] <= target. The test keeps equality on the left side:
 * a target equal to p[j] belongs to child j + 1, and a child of mass zero has p[j] = p[j-1], so it
 * is passed over together with the one before it and never chosen.
 */
#include "sum_tree_kernel.h"

static inline uint32_t choose(const uint64_t *child, uint64_t *left)
{
    uint64_t prefix = 0;
    uint64_t before = 0;
    uint32_t chosen = 0;
    for (int j = 0; j < RP_TREE_FANOUT; j++) {
        prefix += child[j];
        uint64_t passed = prefix <= *left;
        before += child[j] & -passed;
        chosen += (uint32_t)passed;
    }
    *left -= before;
    return chosen;
}

static void draw_level(const uint64_t *child, const void *next, size_t next_bytes,
                       uint64_t *left, uint32_t *at, size_t n)
{
    uint32_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t chosen = choose(child + (size_t)at[i] * RP_TREE_FANOUT, &left[i]);
        seen |= chosen;
        at[i] = at[i] * RP_TREE_FANOUT + chosen;
        rp_tree_prefetch_group(next, at[i], next_bytes);
    }
    assert(seen < RP_TREE_FANOUT); /* else a node holds more than its children */
}

static void rank_level(const uint32_t *child, const void *next, size_t next_bytes,
                       uint32_t *left, uint32_t *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t *children = child + (size_t)at[i] * RP_TREE_FANOUT;
        uint32_t chosen = 0;
        while (left[i] >= children[chosen]) {
            left[i] -= children[chosen++];
            assert(chosen < RP_TREE_FANOUT);
        }
        at[i] = at[i] * RP_TREE_FANOUT + chosen;
        rp_tree_prefetch_group(next, at[i], next_bytes);
    }
}

static void rank_leaf(const uint64_t *leaf, const uint32_t *left, uint32_t *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t *children = leaf + (size_t)at[i] * RP_TREE_FANOUT;
        uint32_t passed = 0;
        uint32_t chosen = 0;
        while (children[chosen] == 0 || passed++ < left[i]) {
            chosen++;
            assert(chosen < RP_TREE_FANOUT);
        }
        at[i] = at[i] * RP_TREE_FANOUT + chosen;
    }
}

static void refresh(struct rp_tree *t, const uint32_t *slots, size_t n)
{
    uint32_t last = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        if (i + RP_TREE_PREFETCH_AHEAD < n) {
            rp_tree_prefetch_climb(t, slots[i + RP_TREE_PREFETCH_AHEAD]);
        }
        uint32_t group = slots[i] / RP_TREE_FANOUT;
        assert(slots[i] < t->capacity);
        if (group == last) {
            continue; /* neighbours: the group was summed after all leaves were written */
        }
        const uint64_t *children = t->mass[0] + (size_t)group * RP_TREE_FANOUT;
        uint64_t mass = 0;
        uint32_t positive = 0;
        for (int j = 0; j < RP_TREE_FANOUT; j++) {
            mass += children[j];
            positive += children[j] != 0;
        }
        rp_tree_climb(t, group, mass, positive);
        last = group;
    }
}

const struct rp_tree_kernel rp_tree_kernel_portable = {
    .draw_level = draw_level,
    .rank_level = rank_level,
    .rank_leaf = rank_leaf,
    .refresh = refresh,
};
