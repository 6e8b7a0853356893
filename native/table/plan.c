/* Resolving plans: see plan.h. Picks that continue each other in the step and in the item become
 * one copy.
 */
#include "table/plan.h"

static int continues(const struct rp_plan_part *last, const struct rp_plan_part *next) {
    return last->step == next->step && last->pad_first == next->pad_first
           && last->record_offset + last->size == next->record_offset;
}

void rp_plan_resolve(const struct rp_column *columns, const struct rp_pick *picks,
                     uint32_t pick_count, uint32_t item_bytes, struct rp_plan_part *segments,
                     struct rp_plan_parts *plan) {
    uint32_t count = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; i < pick_count; i++) {
        const struct rp_column *column = &columns[picks[i].column];
        struct rp_plan_part next = {at, column->size, column->offset, picks[i].offset,
                                    (uint16_t)(picks[i].offset < 0 && column->pad_first)};
        if (count > 0 && continues(&segments[count - 1], &next)) {
            segments[count - 1].size += next.size;
        } else {
            segments[count++] = next;
        }
        at += column->size;
    }
    *plan = (struct rp_plan_parts){segments, count, at, item_bytes};
}
