/* When may items be created, when may a batch be drawn: Reverb's rule (Cassirer et al.
 * 2021, arXiv 2102.04736).
 *
 *     error = inserted * samples_per_insert - sampled,    error_min <= error <= error_max
 *
 * Before the minimum size nothing is drawn, and a group of creates is always admitted. The minimum
 * is reached once so many items were created since the table was last emptied, and stays reached:
 * the number of items that are there now may fall again, and then no draw could be admitted.
 *
 * No standstill. A group of n creates waits where error > error_max - n * samples_per_insert, a
 * batch of m draws where error < error_min + m. Where both wait, the group is admitted and the
 * batch drawn at once (serve_wait.c): then
 *
 *     error_max - m < error + n * samples_per_insert - m < error_min + n * samples_per_insert
 *
 * which is within the bounds where neither counts for more than the distance of the bounds. A group
 * or batch that counts for more is refused for ever.
 *
 * The price: the last group before the minimum may pass it by n - 1 items, so
 *
 *     error <= max(error_max, (min_size + n - 1) * samples_per_insert).
 *
 * The second is the larger one only where error_max lies below or hardly above
 * min_size * samples_per_insert; then no group is admitted until draws have brought the error down.
 *
 * What each side waits for is reported as a number of items of the other side.
 *
 * A queue (fifo) counts what lies in it instead:
 *
 *     error = items that can be drawn now,    0 <= error <= error_max
 *
 * So an item that is overwritten before it was drawn leaves the error too, and holds no writer back
 * for ever. A batch of m waits where error < m, since no item is drawn twice; there is no minimum.
 * Where both wait, as above, error < m, and behind group and batch it is error + n - m < n, at most
 * error_max. A group that makes fewer items than it counted, or overwrites some, may leave the batch
 * waiting; then error < m <= error_max.
 *
 * An item counts from when it can be drawn. Where steps become items as they are stored, no step
 * may wait for an earlier one: the earlier one would need the limiter's room for both
 * (rp_table_ordered).
 */
#include <math.h>

#include "base/minmax.h"
#include "table/store.h"

static uint64_t shortfall(double amount) {
    return amount < 1 ? 1 : amount < 0x1p63 ? (uint64_t)ceil(amount) : INT64_MAX;
}

/* ---- of a queue ---- */

static int queue_may_insert(const struct rp_table *table, uint64_t items, uint64_t *need) {
    uint64_t most = (uint64_t)table->header->facts.error_max;
    uint64_t waiting = rp_tree_count(&table->tree) + items;
    if (items == 0 || waiting <= most) {
        return 1;
    }
    if (items > most) {
        return -RP_NEVER_FITS;
    }
    *need = waiting - most;
    return 0;
}

static int queue_may_sample(const struct rp_table *table, uint32_t count, uint64_t *need) {
    uint32_t drawable = rp_tree_count(&table->tree);
    if (count > RP_QUEUE_BATCH_MAX || count > table->header->facts.error_max) {
        return -RP_NEVER_FITS;
    }
    *need = count > drawable ? count - drawable : 0;
    return *need == 0;
}

/* ---- of all tables ---- */

int rp_limiter_may_insert(const struct rp_table *table, uint64_t items, uint64_t *need) {
    const struct rp_table_facts *f = &table->header->facts;
    *need = 0;
    uint64_t created = table->header->inserted;
    if (f->fifo) {
        return queue_may_insert(table, items, need);
    }
    if (f->samples_per_insert == 0 || items == 0 || created < f->min_size) {
        return 1;
    }
    double over = ((double)created + (double)items) * f->samples_per_insert
                  - (double)table->header->sampled - f->error_max;
    if (over <= 0) {
        return 1;
    }
    if ((double)items * f->samples_per_insert > f->error_max - f->error_min) {
        return -RP_NEVER_FITS;
    }
    *need = shortfall(over);
    return 0;
}

int rp_limiter_may_sample(const struct rp_table *table, uint32_t count, uint64_t *need,
                          uint32_t *by_size) {
    const struct rp_table_facts *f = &table->header->facts;
    double rate = f->samples_per_insert;
    uint64_t created = table->header->inserted;
    double error = (double)created * rate - (double)table->header->sampled;
    uint64_t missing = created < f->min_size ? f->min_size - created : 0;
    double short_by = rate == 0 ? 0 : f->error_min + count - error;
    *need = 0;
    *by_size = 0;
    if (f->fifo) {
        return queue_may_sample(table, count, need);
    }
    if (rate > 0 && count > f->error_max - f->error_min) {
        return -RP_NEVER_FITS;
    }
    if (short_by > 0) {
        *need = shortfall(short_by / rate);
    }
    if (missing > 0) {
        *by_size = 1;
        *need = rp_max(missing, *need);
    }
    if (*need == 0 && rp_tree_count(&table->tree) == 0) {
        return -RP_NOTHING_DRAWABLE;
    }
    return *need == 0;
}
