/* Plans as lists of copies: the picks of a plan, neighbours merged where they lie side by side
 * in step and item.
 *
 * A row plan over a whole record is one segment, so gathering an item of it is one memcpy.
 */
#ifndef RP_PLAN_H
#define RP_PLAN_H

#include <stdint.h>

#include "protocol/config.h"

struct rp_plan_part {
    uint32_t item_offset;
    uint32_t size;
    uint32_t record_offset;
    int16_t step;       /* relative to the anchor */
    uint16_t pad_first; /* before the episode's start: 1 = its first row, 0 = zeros */
};

struct rp_plan_parts {
    struct rp_plan_part *segment;
    uint32_t count;
    uint32_t bytes;      /* of the picks, without the padding at the item's end */
    uint32_t item_bytes;
};

/* Resolves picks against columns into at most pick_count segments. */
void rp_plan_resolve(const struct rp_column *columns, const struct rp_pick *picks,
                     uint32_t pick_count, uint32_t item_bytes, struct rp_plan_part *segments,
                     struct rp_plan_parts *plan);

#endif
