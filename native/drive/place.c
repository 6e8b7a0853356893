/* The memory of a batch: where things lie in it, and the importance weights of the items that lie
 * there (Schaul et al. 2015, section 3.4; the formula is in docs/sampling.md).
 *
 * They are computed in double precision, and divided by the largest before the power, not after it:
 * (least / odds)^beta is at most 1 whatever the odds are.
 */
#include <math.h>

#include "replay.h"

static uint64_t head_bytes(const struct rp_shape *shape) {
    return sizeof(struct rp_place) + shape->column_count * sizeof(struct rp_landing_column);
}

uint64_t rp_place_bytes(const struct rp_shape *shape, uint64_t slab_bytes) {
    return head_bytes(shape) + RP_SLAB_ALIGNMENT + slab_bytes;
}

uint32_t rp_place_lay(struct rp_place *place, const struct rp_shape *shape) {
    uint8_t *slab = (uint8_t *)place + head_bytes(shape);
    slab += -(uintptr_t)slab % RP_SLAB_ALIGNMENT;
    *place = (struct rp_place){
        .landing = {.columns = place->columns, .column_count = shape->column_count,
                    .item_bytes = shape->item_bytes, .consumes = shape->consumes,
                    .keys = (void *)(slab + shape->keys), .masses = (void *)(slab + shape->masses),
                    .behind = (void *)(slab + shape->behind),
                    .ahead = (void *)(slab + shape->ahead),
                    .totals = (void *)(slab + shape->totals),
                    .drawables = (void *)(slab + shape->drawables),
                    .ages = (void *)(slab + shape->ages), .valid = slab + shape->valid},
        .probabilities = (void *)(slab + shape->probabilities),
        .weights = (void *)(slab + shape->weights),
        .count = shape->count};
    for (uint32_t i = 0; i < shape->column_count; i++) {
        place->columns[i] = shape->columns[i];
        place->columns[i].target = slab + (uintptr_t)shape->columns[i].target;
    }
    return (uint32_t)(slab - (uint8_t *)place);
}

/* N * P of an item that has one, or infinity. */
static double odds_of(const struct rp_place *place, uint32_t item) {
    double probability = place->probabilities[item];
    uint32_t drawable = place->landing.drawables[item];
    return probability > 0.0 ? (drawable ? (double)drawable : 1.0) * probability : INFINITY;
}

void rp_place_weigh(const struct rp_place *place, double uniform, double beta) {
    const struct rp_landing *landing = &place->landing;
    double least = INFINITY;
    for (uint32_t i = 0; i < place->count; i++) {
        double total = (double)landing->totals[i];
        double drawable = landing->drawables[i] ? (double)landing->drawables[i] : 1.0;
        double share = total > 0.0 ? (double)landing->masses[i] / total : 0.0;
        double probability = (1.0 - uniform) * share + uniform / drawable;
        place->probabilities[i] = landing->valid[i] ? probability : 0.0;
        least = fmin(least, odds_of(place, i));
    }
    for (uint32_t i = 0; i < place->count; i++) {
        double odds = odds_of(place, i);
        place->weights[i] = odds < INFINITY ? (float)pow(least / odds, beta) : 0.0f;
    }
}
