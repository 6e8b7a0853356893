/* A table's config: what is impossible, said in a sentence, and where everything lies in memory.
 *
 * The layout follows from the facts alone, so an attach computes it again from the header and
 * compares.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/minmax.h"
#include "table/store.h"

#define REFUSE(...) \
    do { \
        snprintf(error, 256, __VA_ARGS__); \
        return -RP_BAD_ARGUMENT; \
    } while (0)

static int check_name(const char *what, const char name[RP_NAME_BYTES], char error[256]) {
    if (name[0] == 0 || !memchr(name, 0, RP_NAME_BYTES)) {
        REFUSE("%s: a name has 1 to %d bytes", what, RP_NAME_BYTES - 1);
    }
    return 0;
}

static int check_columns(const struct rp_table_config *config, char error[256]) {
    if (config->column_count < 1 || config->column_count > RP_COLUMNS_MAX) {
        REFUSE("table %s: %u columns, expected 1 to %d", config->name, config->column_count,
               RP_COLUMNS_MAX);
    }
    for (uint32_t i = 0; i < config->column_count; i++) {
        const struct rp_column *a = &config->columns[i];
        if (a->size == 0 || (uint64_t)a->offset + a->size > config->step_bytes) {
            REFUSE("table %s: column %u covers bytes %u to %llu of a step of %u bytes",
                   config->name, i, a->offset, (unsigned long long)a->offset + a->size,
                   config->step_bytes);
        }
        for (uint32_t j = 0; j < i; j++) {
            const struct rp_column *b = &config->columns[j];
            if (a->offset < b->offset + b->size && b->offset < a->offset + a->size) {
                REFUSE("table %s: columns %u and %u overlap", config->name, j, i);
            }
        }
    }
    return 0;
}

/* One plan; widens the table's reach and gives the plan its facts. */
static int check_plan(const struct rp_table_config *config, uint32_t index,
                      struct rp_table_facts *facts, char error[256]) {
    const struct rp_plan *plan = &config->plans[index];
    struct rp_plan_facts *kept = &facts->plans[index];
    uint64_t bytes = 0;
    if (check_name("a plan", plan->name, error) < 0) {
        return -RP_BAD_ARGUMENT;
    }
    if (plan->pick_count < 1 || plan->pick_count > RP_PICKS_MAX) {
        REFUSE("plan %s: %u picks, expected 1 to %d", plan->name, plan->pick_count, RP_PICKS_MAX);
    }
    for (uint32_t i = 0; i < plan->pick_count; i++) {
        int offset = plan->picks[i].offset;
        if (plan->picks[i].column >= config->column_count) {
            REFUSE("plan %s: pick %u names column %u of %u", plan->name, i, plan->picks[i].column,
                   config->column_count);
        }
        if (offset < -RP_REACH_MAX || offset > RP_REACH_MAX) {
            REFUSE("plan %s: pick %u reaches %d steps, the limit is %d", plan->name, i, offset,
                   RP_REACH_MAX);
        }
        facts->reach_behind = -offset > (int)facts->reach_behind ? (uint32_t)-offset
                                                                 : facts->reach_behind;
        facts->reach_ahead = offset > (int)facts->reach_ahead ? (uint32_t)offset
                                                              : facts->reach_ahead;
        bytes += config->columns[plan->picks[i].column].size;
    }
    if (bytes > (1u << 30)) {
        REFUSE("plan %s: an item of %llu bytes", plan->name, (unsigned long long)bytes);
    }
    memcpy(kept->name, plan->name, RP_NAME_BYTES);
    kept->pick_first = facts->pick_count;
    kept->pick_count = plan->pick_count;
    kept->item_bytes = (uint32_t)(bytes + 7) & ~7u;
    facts->pick_count += plan->pick_count;
    return 0;
}

static int check_plans(const struct rp_table_config *config, struct rp_table_facts *facts,
                       char error[256]) {
    if (config->plan_count < 1 || config->plan_count > RP_PLANS_MAX) {
        REFUSE("table %s: %u plans, expected 1 to %d", config->name, config->plan_count,
               RP_PLANS_MAX);
    }
    for (uint32_t i = 0; i < config->plan_count; i++) {
        if (check_plan(config, i, facts, error) < 0) {
            return -RP_BAD_ARGUMENT;
        }
    }
    return 0;
}

static int check_limits(const struct rp_table_config *c, char error[256]) {
    if (c->step_bytes == 0 || c->step_bytes % 8 != 0 || c->step_bytes > RP_STEP_BYTES_MAX) {
        REFUSE("table %s: a step of %u bytes, expected a multiple of 8 up to %d", c->name,
               c->step_bytes, RP_STEP_BYTES_MAX);
    }
    if (c->writers_max < 1 || c->writers_max > RP_SESSIONS_MAX) {
        REFUSE("table %s: %u writers, expected 1 to %d", c->name, c->writers_max, RP_SESSIONS_MAX);
    }
    if (c->streams_max < 1 || c->streams_max > RP_STREAMS_MAX) {
        REFUSE("table %s: %u streams, expected 1 to %d", c->name, c->streams_max, RP_STREAMS_MAX);
    }
    if (c->window < 1 || c->window > RP_WINDOW_MAX) {
        REFUSE("table %s: a window of %u, expected 1 to %d", c->name, c->window, RP_WINDOW_MAX);
    }
    if (c->pieces_max < 1 || c->pieces_max > RP_PIECES_MAX) {
        REFUSE("table %s: %u pieces, expected 1 to %d", c->name, c->pieces_max, RP_PIECES_MAX);
    }
    if (c->spec_bytes > RP_SPEC_BYTES_MAX) {
        REFUSE("table %s: a spec of %u bytes, the limit is %d", c->name, c->spec_bytes,
               RP_SPEC_BYTES_MAX);
    }
    return 0;
}

static int check_capacity(const struct rp_table_config *c, const struct rp_table_facts *facts,
                          char error[256]) {
    uint64_t reserved = (uint64_t)c->window * c->writers_max;
    uint64_t smallest = 16 * reserved;
    uint64_t window = (uint64_t)facts->reach_behind + facts->reach_ahead + 1 + reserved;
    smallest = rp_max(window, smallest);
    if (c->capacity < smallest || c->capacity > RP_TREE_CAPACITY_MAX) {
        REFUSE("table %s: a capacity of %u steps; the smallest legal one is %llu (16 times window "
               "%u times writers "
               "%u, and no less than a whole item's window), the largest %u",
               c->name, c->capacity, (unsigned long long)smallest, c->window, c->writers_max,
               RP_TREE_CAPACITY_MAX);
    }
    if (c->min_size > c->capacity - reserved) {
        REFUSE("table %s: a minimum size of %llu items, but %u steps hold at most %llu", c->name,
               (unsigned long long)c->min_size, c->capacity,
               (unsigned long long)(c->capacity - reserved));
    }
    return 0;
}

/* A queue's limiter counts what can be drawn, so of Reverb's numbers only the upper bound is left. */
static int check_queue(const struct rp_table_config *c, char error[256]) {
    uint64_t most = c->capacity - (uint64_t)c->window * c->writers_max;
    if (c->fifo != 1 || c->alpha != 0 || c->samples_per_insert != 1 || c->error_min != 0
        || c->min_size > 1) {
        REFUSE("table %s: fifo is 0 or 1, and with 1 alpha is 0, samples_per_insert 1, error_min 0 "
               "and min_size 1",
               c->name);
    }
    if (!(c->error_max >= 1 && c->error_max <= (double)most)) {
        REFUSE("table %s: a queue of %g items, expected 1 to %llu: the capacity without the "
               "windows of its writers",
               c->name, c->error_max, (unsigned long long)most);
    }
    return 0;
}

static int check_numbers(const struct rp_table_config *c, char error[256]) {
    struct rp_power power;
    double rate = c->samples_per_insert;
    if (rp_power_exponent(c->alpha, &power) < 0) {
        REFUSE("table %s: alpha is %g, expected 0 to %g", c->name, c->alpha, RP_POWER_ALPHA_MAX);
    }
    if (!(rate >= 0 && rate <= 1e9)) {
        REFUSE("table %s: %g samples per insert, expected 0 (no limiter) to 1e9", c->name, rate);
    }
    if (c->fifo) {
        return check_queue(c, error);
    }
    if (rate > 0
        && !(isfinite(c->error_min) && isfinite(c->error_max)
             && c->error_max - c->error_min >= 2 * rp_max(rate, 1))) {
        REFUSE("table %s: the limiter's error may lie in %g to %g; a width below 2 * max(1, "
               "samples per insert) "
               "= %g can block both sides for ever",
               c->name, c->error_min, c->error_max, 2 * rp_max(rate, 1));
    }
    return 0;
}

int rp_facts_from(const struct rp_table_config *config, struct rp_table_facts *facts,
                  char error[256]) {
    memset(facts, 0, sizeof *facts);
    if (check_name("a table", config->name, error) < 0 || check_limits(config, error) < 0
        || check_columns(config, error) < 0 || check_plans(config, facts, error) < 0
        || check_capacity(config, facts, error) < 0 || check_numbers(config, error) < 0) {
        return -RP_BAD_ARGUMENT;
    }
    memcpy(facts->name, config->name, RP_NAME_BYTES);
    facts->alpha = config->alpha;
    facts->samples_per_insert = config->samples_per_insert;
    facts->error_min = config->error_min;
    facts->error_max = config->error_max;
    facts->fifo = config->fifo;
    facts->min_size = config->min_size > 0 ? config->min_size : 1;
    facts->capacity = config->capacity;
    facts->step_bytes = config->step_bytes;
    facts->column_count = config->column_count;
    facts->plan_count = config->plan_count;
    facts->spec_bytes = config->spec_bytes;
    facts->spec_crc = rp_crc32c(0, config->spec_bytes ? config->spec : "", config->spec_bytes);
    facts->writers_max = config->writers_max;
    facts->streams_max = config->streams_max;
    facts->window = config->window;
    facts->pieces_max = config->pieces_max;
    return 0;
}

static size_t place(size_t *at, size_t bytes) {
    size_t here = (*at + 63) & ~(size_t)63;
    *at = here + bytes;
    return here;
}

void rp_layout_of(const struct rp_table_facts *f, struct rp_table_layout *layout) {
    size_t at = sizeof(struct rp_table_header);
    uint32_t bitmap = f->pieces_max > 1 ? (f->pieces_max + 63) / 64 : 0;
    size_t entry = sizeof(struct rp_entry) + bitmap * sizeof(uint64_t);
    layout->bitmap_words = bitmap;
    layout->writer_bytes = sizeof(struct rp_writer) + f->window * entry
                           + f->streams_max * sizeof(struct rp_stream);
    layout->columns = place(&at, f->column_count * sizeof(struct rp_column));
    layout->picks = place(&at, f->pick_count * sizeof(struct rp_pick));
    layout->spec = place(&at, f->spec_bytes);
    layout->slots = place(&at, f->capacity * sizeof(struct rp_slot));
    layout->leaves = place(&at, rp_tree_leaf_count(f->capacity) * sizeof(uint64_t));
    layout->writers = place(&at, f->writers_max * layout->writer_bytes);
    layout->sizes.state = place(&at, 0);
    at = f->capacity * sizeof(uint64_t);
    layout->sums = place(&at, f->capacity * sizeof(uint32_t));
    layout->sizes.keys = place(&at, 0);
    layout->sizes.steps = ((size_t)f->capacity * f->step_bytes + 63) & ~(size_t)63;
    at = sizeof(struct rp_table_private);
    layout->parts = place(&at, f->pick_count * sizeof(struct rp_plan_part));
    layout->hints = place(&at, (size_t)f->writers_max * f->streams_max * sizeof(struct rp_hint));
    layout->skips = place(&at, f->capacity * sizeof(uint32_t));
    layout->known_words = f->window + ((uint32_t)1 << rp_known_bits(f->window));
    layout->known = place(&at, (size_t)f->writers_max * layout->known_words * sizeof(uint32_t));
    layout->done = place(&at, RP_WRITER_ARRAYS * f->writers_max * sizeof(uint64_t));
    layout->nodes = place(&at, rp_tree_bytes(f->capacity));
    layout->seen = place(&at, ((size_t)f->capacity + 63) / 64 * sizeof(uint64_t));
    layout->held = place(&at, (size_t)f->writers_max * RP_HELD_BYTES);
    layout->sizes.local = place(&at, 0);
}
