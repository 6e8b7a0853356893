/* Importance weights of a batch, but for the power, which is the caller's: numpy has it for whole
 * arrays. Two passes of a few operations an item, in double precision and in the order of the
 * formula of replay_server/batch.py, so that every machine gets the same bits.
 */
#include "replay.h"

void rp_importance_odds(const struct rp_landing *landing, const struct rp_weighing *weighing,
                        uint32_t count, double uniform)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t total = landing->totals[i] ? landing->totals[i] : 1;
        double drawable = landing->drawables[i] ? (double)landing->drawables[i] : 1.0;
        double share = (double)landing->masses[i] / (double)total;
        double probability = (1.0 - uniform) * share + uniform / drawable;
        probability = landing->valid[i] ? probability : 0.0;
        weighing->probabilities[i] = probability;
        weighing->odds[i] = probability > 0.0 ? drawable * probability : 1.0;
    }
}

void rp_importance_weights(const struct rp_weighing *weighing, uint32_t count)
{
    const double *powers = weighing->odds; /* by now */
    double largest = 0.0;
    for (uint32_t i = 0; i < count; i++) {
        int drawn = weighing->probabilities[i] > 0.0;
        largest = drawn && powers[i] > largest ? powers[i] : largest;
    }
    for (uint32_t i = 0; i < count; i++) {
        double power = weighing->probabilities[i] > 0.0 ? powers[i] : 0.0;
        weighing->weights[i] = (float)(largest > 0.0 ? power / largest : power);
    }
}
