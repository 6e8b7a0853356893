/* Updating priorities: like drawing, a long row of small look-ups, next reads asked for early.
 *
 * Keys whose items are gone are counted and left alone. The largest mass so far rises with the
 * others; the nodes above the leaves are recomputed when the table is settled (store.c).
 */
#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "table/store.h"

/* The item's slot, or why its key cannot be updated: -1 stale, -2 unknown.
 *
 * Keys are given to slots in turn, so the slot of a key of the last lap was last given to that very
 * key; and a positive leaf is a committed item that was not evicted (table.h). So mostly the leaf
 * answers alone, which the update is about to change anyway, and the slot's words stay unread. */
static int64_t item_slot(const struct rp_table_private *p, uint64_t key, int fifo) {
    if (key >= p->head || key < p->capacity) {
        return -2;
    }
    if (p->head - 1 - key < p->capacity && p->leaves[rp_slot_of(p, key)] != 0) {
        return rp_slot_of(p, key);
    }
    const struct rp_slot *slot = rp_alive(p, key);
    if (!slot || fifo) { /* an item of a queue that has no mass was drawn, and stays so */
        return -1;
    }
    if (rp_is_item(slot->item)) {
        return slot - p->slots;
    }
    return rp_item_flags(slot->item) & RP_STEP_ITEM ? -1 : -2;
}

/* Asks for the leaves and sums that a key's update reads and changes. Leaves lie outside the second
 * cache, so what a batch costs is how many of them are under way at once. */
static void prefetch_item(const struct rp_table *table, uint64_t key) {
    const struct rp_table_private *p = table->private;
    if (p->head - 1 - key < p->capacity) {
        rp_tree_prefetch(&table->tree, rp_slot_of(p, key));
    }
}

void rp_table_update(struct rp_table *table, const struct rp_update_entry *entries, uint32_t count,
                     struct rp_updated *result) {
    struct rp_table_private *p = table->private;
    uint64_t maximum = table->header->maximum;
    uint32_t applied = 0;
    int fifo = table->header->facts.fifo != 0;
    assert(count <= RP_UPDATE_MAX);
    memset(result, 0, sizeof *result);
    for (uint32_t i = 0; i < count && i < RP_UPDATE_AHEAD; i++) {
        prefetch_item(table, entries[i].key);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (i + RP_UPDATE_AHEAD < count) {
            prefetch_item(table, entries[i + RP_UPDATE_AHEAD].key);
        }
        int64_t slot = item_slot(p, entries[i].key, fifo);
        if (slot >= 0) {
            p->update_slots[applied] = (uint32_t)slot;
            p->priorities[applied++] = entries[i].priority;
        } else {
            result->stale += slot == -1;
            result->unknown += slot == -2;
        }
    }
    rp_power_masses(&table->power, p->priorities, p->masses, applied, p->mass_max,
                    &table->counters[RP_COUNT_masses_saturated]);
    for (uint32_t i = 0; i < applied; i++) {
        rp_leaf_set(table, p->update_slots[i], p->masses[i]);
        maximum = rp_max(p->masses[i], maximum);
    }
    if (maximum != table->header->maximum) {
        rp_intent_set(table->intent, &table->header->maximum, maximum);
    }
    result->applied = applied;
    table->counters[RP_COUNT_priorities_applied] += applied;
    table->counters[RP_COUNT_priorities_stale] += result->stale;
    table->counters[RP_COUNT_priorities_unknown] += result->unknown;
}
