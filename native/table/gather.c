/* Executing a plan: the bytes of one item, or the part of them that one datagram holds.
 *
 * An item whose anchor is alive and not evicted has its whole window alive, so one look decides.
 * The rows of the window are found by following links, no further than the range asked for
 * needs; the last walk is kept, since the datagrams of one large item come one after another.
 */
#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "base/prefetch.h"
#include "table/store.h"

/* Rows behind (ahead of) the anchor up to `distance` are known afterwards. */
static void walk_behind(const struct rp_table_private *p, struct rp_rows *rows, uint32_t distance) {
    while (rows->behind_known < distance) {
        const struct rp_slot *slot = rp_previous(p, &p->slots[rows->behind[rows->behind_known]]);
        assert(slot);
        rows->behind[++rows->behind_known] = (uint32_t)(slot - p->slots);
    }
}

static void walk_ahead(const struct rp_table_private *p, struct rp_rows *rows, uint32_t distance) {
    while (rows->ahead_known < distance) {
        const struct rp_slot *slot = rp_next(p, &p->slots[rows->ahead[rows->ahead_known]]);
        assert(slot);
        rows->ahead[++rows->ahead_known] = (uint32_t)(slot - p->slots);
    }
}

/* The bytes of one segment's row, or null where zeros stand before the episode's start. */
static const uint8_t *row_of(const struct rp_table_private *p, struct rp_rows *rows,
                             const struct rp_batch_item *item, const struct rp_plan_part *segment) {
    uint32_t slot;
    if (segment->step < 0) {
        uint32_t distance = (uint32_t)-segment->step;
        if (distance > item->behind && !segment->pad_first) {
            return 0;
        }
        distance = rp_min(distance, item->behind);
        walk_behind(p, rows, distance);
        slot = rows->behind[distance];
    } else {
        uint32_t distance = (uint32_t)segment->step;
        distance = rp_min(distance, item->ahead);
        walk_ahead(p, rows, distance);
        slot = rows->ahead[distance];
    }
    return p->steps + (size_t)slot * p->step_bytes + segment->record_offset;
}

/* The segment that holds this byte of the item. */
static uint32_t find_segment(const struct rp_plan_parts *plan, uint32_t offset) {
    uint32_t low = 0;
    uint32_t high = plan->count;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (plan->segment[middle].item_offset <= offset) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct rp_rows *rows_of(struct rp_table_private *p, uint64_t key, uint32_t anchor) {
    struct rp_rows *rows = &p->rows;
    if (rows->key != key) {
        rows->key = key;
        rows->behind_known = 0;
        rows->ahead_known = 0;
        rows->behind[0] = anchor;
        rows->ahead[0] = anchor;
    }
    return rows;
}

/* The sizes of numbers and small vectors as single moves: a call costs more than they do. */
static inline void copy(uint8_t *target, const uint8_t *source, uint32_t size) {
    switch (size) {
    case 1: *target = *source; break;
    case 4: memcpy(target, source, 4); break;
    case 8: memcpy(target, source, 8); break;
    case 16: memcpy(target, source, 16); break;
    default: memcpy(target, source, size);
    }
}

/* Every segment of an item, in order: nothing is searched and nothing cut. */
static void copy_all(struct rp_table_private *p, const struct rp_plan_parts *plan,
                     const struct rp_batch_item *item, uint32_t anchor, uint8_t *target) {
    const uint8_t *record = p->steps + (size_t)anchor * p->step_bytes;
    struct rp_rows *rows = rows_of(p, item->key, anchor);
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct rp_plan_part *segment = &plan->segment[i];
        const uint8_t *row = segment->step == 0 ? record + segment->record_offset
                                                : row_of(p, rows, item, segment);
        if (row) {
            copy(target, row, segment->size);
        } else {
            memset(target, 0, segment->size);
        }
        target += segment->size;
    }
}

/* Is all of an item in the anchor's row, and in one piece? */
static int is_own_row(const struct rp_plan_parts *plan) {
    return plan->count == 1 && plan->segment->step == 0;
}

static void copy_segments(struct rp_table_private *p, const struct rp_plan_parts *plan,
                          const struct rp_batch_item *item, uint32_t anchor, uint32_t offset,
                          uint32_t size, uint8_t *target) {
    struct rp_rows *rows = rows_of(p, item->key, anchor);
    for (uint32_t i = find_segment(plan, offset); size > 0; i++) {
        const struct rp_plan_part *segment = &plan->segment[i];
        const uint8_t *row = row_of(p, rows, item, segment);
        uint32_t skip = offset - segment->item_offset;
        uint32_t bytes = rp_min(segment->size - skip, size);
        if (row) {
            memcpy(target, row + skip, bytes);
        } else {
            memset(target, 0, bytes);
        }
        target += bytes;
        offset += bytes;
        size -= bytes;
    }
}

/* Are the rows that the item was looked up with there, where its step is? What was looked up as
 * itself alone needs no other row, whatever it has become since: an item, or none. Nor does a plan
 * of the anchor's own row. */
static int has_its_rows(const struct rp_slot *slot, const struct rp_batch_item *item,
                        const struct rp_plan_parts *plan) {
    if ((item->behind == 0 && item->ahead == 0) || is_own_row(plan)) {
        return 1;
    }
    return rp_is_item(slot->item) && rp_item_behind(slot->item) == item->behind
           && rp_item_ahead(slot->item) == item->ahead;
}

int rp_table_gather(const struct rp_table *table, uint32_t plan_index,
                    const struct rp_batch_item *item, uint32_t offset, uint32_t size,
                    uint8_t *target) {
    struct rp_table_private *p = table->private;
    const struct rp_plan_parts *plan = &p->plans[plan_index];
    const struct rp_slot *slot = rp_alive(p, item->key);
    assert((uint64_t)offset + size <= plan->item_bytes);
    if (!slot || !has_its_rows(slot, item, plan)) {
        memset(target, 0, size);
        return 0;
    }
    uint32_t anchor = (uint32_t)(slot - p->slots);
    uint32_t end = offset + size;
    uint32_t filled = rp_min(end, plan->bytes);
    if (end > plan->bytes) {
        uint32_t padding = end - rp_max(offset, plan->bytes);
        memset(target + size - padding, 0, padding);
    }
    if (offset >= filled) {
        return 1;
    }
    if (is_own_row(plan)) {
        uint32_t record_offset = plan->segment->record_offset;
        memcpy(target, p->steps + (size_t)anchor * p->step_bytes + record_offset + offset,
               filled - offset);
    } else if (offset == 0 && filled == plan->bytes) {
        copy_all(p, plan, item, anchor, target);
    } else {
        copy_segments(p, plan, item, anchor, offset, filled - offset, target);
    }
    return 1;
}

/* A prefetch of the first lines only: where a row is longer, the processor follows by itself. */
void rp_table_prefetch(const struct rp_table *table, const struct rp_batch_item *item) {
    enum { LINE = 64, LINES = 4 };
    const struct rp_table_private *p = table->private;
    if (p->head - 1 - item->key < p->capacity) {
        const uint8_t *row = p->steps + (size_t)rp_slot_of(p, item->key) * p->step_bytes;
        for (uint32_t at = 0; at < p->step_bytes && at < LINES * LINE; at += LINE) {
            rp_prefetch(row + at);
        }
    }
}
