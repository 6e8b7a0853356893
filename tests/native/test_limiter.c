/* The limiter never lets the error leave its bounds, tells exactly how much is missing, and
 * refuses for ever only what is worth more than its bounds lie apart (Reverb's rule, Cassirer et
 * al. 2021).
 *
 * Creates and draws of random sizes are tried against the real table; the rule is computed again
 * beside it, in whole numbers (rates are multiples of 1/4), so that no rounding is shared.
 */
#include "table/store.h"
#include "table_fixture.h"

struct trial {
    struct fixture fixture;
    struct rp_random random;
    uint64_t sequence;
    int64_t rate;  /* of samples per insert, in quarters, like all that follows */
    int64_t low;
    int64_t high;
    int64_t size;  /* the minimum, in items */
    uint64_t blocked_inserts;
    uint64_t blocked_samples;
};

static struct trial trial;

static void insert(uint64_t items) {
    for (uint64_t i = 0; i < items; i++) {
        struct run_body body = {.run = {.sequence = trial.sequence,
                                        .step = trial.sequence,
                                        .count = 1,
                                        .piece_count = 1,
                                        .flags = RP_RUN_ITEM,
                                        .size = 16}};
        struct rp_run_done done;
        rp_writer_ask(&trial.fixture.table);
        CHECK(rp_writer_ask_run(&trial.fixture.table, 0, &body.run)
              && rp_writer_asked(&trial.fixture.table) == 1);
        rp_writer_run(&trial.fixture.table, 0, &body.run, (const uint8_t *)body.words, &done);
        CHECK(done.committed == 1);
        trial.sequence++;
    }
    rp_table_settle(&trial.fixture.table);
}

static void sample(uint32_t count) {
    struct rp_sample request = {.count = count};
    struct rp_batch head;
    struct rp_batch_item items[64];
    CHECK(rp_table_draw(&trial.fixture.table, &request, &head, items) == RP_OK);
    rp_intent_commit(&trial.fixture.intent);
    rp_table_settle(&trial.fixture.table);
}

static struct rp_table_info info(void) {
    struct rp_table_info now;
    rp_table_info(&trial.fixture.table, &now);
    return now;
}

static int64_t error_of(const struct rp_table_info *now, int64_t more_items, int64_t more_samples) {
    return ((int64_t)now->inserted + more_items) * trial.rate
           - 4 * ((int64_t)now->sampled + more_samples);
}

static void try_insert(uint64_t items) {
    struct rp_table_info now = info();
    uint64_t need = 77;
    int answer = rp_limiter_may_insert(&trial.fixture.table, items, &need);
    int below_size = (int64_t)now.inserted < trial.size;
    int fits = trial.rate == 0 || items == 0 || below_size
               || error_of(&now, (int64_t)items, 0) <= trial.high;
    CHECK((answer == 1) == fits, "insert %llu: %d", (unsigned long long)items, answer);
    if (answer == 1) {
        CHECK(need == 0);
        insert(items);
    } else if (answer == 0) {
        trial.blocked_inserts++;
        CHECK(need > 0 && error_of(&now, (int64_t)items, (int64_t)need) <= trial.high,
              "need is too small");
        CHECK(error_of(&now, (int64_t)items, (int64_t)need - 1) > trial.high, "need is too large");
    } else {
        CHECK(answer == -RP_NEVER_FITS && (int64_t)items * trial.rate > trial.high - trial.low);
    }
}

static void try_sample(uint32_t count) {
    struct rp_table_info now = info();
    uint64_t need = 77;
    uint32_t by_size = 77;
    int answer = rp_limiter_may_sample(&trial.fixture.table, count, &need, &by_size);
    int64_t missing = trial.size - (int64_t)now.inserted;
    int fits = missing <= 0 && (trial.rate == 0 || error_of(&now, 0, count) >= trial.low);
    int ever = trial.rate == 0 || 4 * (int64_t)count <= trial.high - trial.low;
    fits = fits && ever;
    CHECK((answer == -RP_NEVER_FITS) == !ever);
    CHECK((answer == 1) == fits, "sample %u: %d", count, answer);
    if (answer == 1) {
        CHECK(need == 0 && by_size == 0);
        sample(count);
    } else if (answer == 0) {
        trial.blocked_samples++;
        CHECK(by_size == (missing > 0), "by_size");
        int64_t items = (int64_t)need;
        CHECK(items >= missing && (trial.rate == 0 || error_of(&now, items, count) >= trial.low),
              "need");
        CHECK(items - 1 < missing
                  || (trial.rate > 0 && error_of(&now, items - 1, count) < trial.low),
              "need");
    }
}

static void take_trial(uint64_t seed, double rate, double low, double high, uint64_t min_size) {
    static const struct rp_column columns[] = {{0, 16, 0}};
    static const struct rp_pick picks[] = {{0, 0}};
    static const struct rp_plan plans[] = {{"row", picks, 1}};
    struct rp_table_config config = {.name = "limited",
                                     .capacity = 256,
                                     .step_bytes = 16,
                                     .columns = columns,
                                     .column_count = 1,
                                     .plans = plans,
                                     .plan_count = 1,
                                     .alpha = 1,
                                     .writers_max = 1,
                                     .streams_max = 1,
                                     .window = 8,
                                     .pieces_max = 1,
                                     .samples_per_insert = rate,
                                     .error_min = low,
                                     .error_max = high,
                                     .min_size = min_size};
    memset(&trial, 0, sizeof trial);
    rp_random_seed(&trial.random, seed);
    trial.rate = (int64_t)(rate * 4);
    trial.low = (int64_t)(low * 4);
    trial.high = (int64_t)(high * 4);
    trial.size = min_size > 0 ? (int64_t)min_size : 1;
    fixture_open(&trial.fixture, &config, seed);
    CHECK(rp_writer_open(&trial.fixture.table, 1, 1) == 0);
    for (int i = 0; i < 3000; i++) {
        if (rp_random_below(&trial.random, 2)) {
            try_insert(rp_random_below(&trial.random, 12));
        } else {
            try_sample(1 + (uint32_t)rp_random_below(&trial.random, 40));
        }
        struct rp_table_info now = info();
        if (trial.rate > 0 && now.inserted > min_size) {
            CHECK(error_of(&now, 0, 0) >= trial.low || now.sampled == 0,
                  "the error left its bounds");
        }
    }
    struct rp_table_info now = info();
    printf("  rate %g, error %g to %g, at least %llu: %llu in, %llu out, blocked %llu and %llu "
           "times\n",
           rate, low, high, (unsigned long long)min_size, (unsigned long long)now.inserted,
           (unsigned long long)now.sampled, (unsigned long long)trial.blocked_inserts,
           (unsigned long long)trial.blocked_samples);
    CHECK(now.inserted > min_size && now.sampled > 0, "both sides got on");
    fixture_close(&trial.fixture);
}

/* Given bounds that lie 20 apart, and every size. Expect groups and batches of up to that to be let
 * in at some time, above the minimum and below it, and larger ones never; groups below the minimum
 * never wait. */
static void check_sizes(void) {
    struct rp_table_header header = {0};
    struct rp_table_private private = {0};
    struct rp_table table = {.header = &header, .private = &private};
    uint64_t need = 0;
    uint32_t by_size = 0;
    header.facts.error_min = -4;
    header.facts.error_max = 16;
    header.facts.min_size = 40;
    for (uint32_t rate = 1; rate <= 6; rate += 5) {
        header.facts.samples_per_insert = rate;
        for (uint32_t inserted = 30; inserted <= 40; inserted += 10) {
            header.inserted = inserted;
            header.sampled = 40 * rate - 16;
            for (uint32_t size = 1; size <= 30; size++) {
                int may = rp_limiter_may_insert(&table, size, &need);
                int ever = size * rate <= 20;
                CHECK(may == (inserted < 40 ? 1 : ever ? 0 : -RP_NEVER_FITS), "%u of %u: %d", size,
                      rate, may);
                may = rp_limiter_may_sample(&table, size, &need, &by_size);
                CHECK((may == -RP_NEVER_FITS) == (size > 20), "%u: %d", size, may);
            }
        }
    }
    check_group("sizes that are let in at some time");
}

/* ---- no standstill ---- */

enum { CREATED_MAX = 24, SAMPLED_MAX = 72 };

struct corner {
    struct rp_table table;
    struct rp_table_header header;
    struct rp_table_private private;
    int64_t rate, low, high; /* in quarters, as above */
    uint32_t items_max, batch_max;
};

static int group_goes(struct corner *c, uint64_t created, uint64_t sampled, uint64_t items) {
    uint64_t need;
    c->header.inserted = created;
    c->header.sampled = sampled;
    return rp_limiter_may_insert(&c->table, items, &need) == 1;
}

static int batch_goes(struct corner *c, uint64_t created, uint64_t sampled, uint32_t count) {
    uint64_t need;
    uint32_t by_size;
    c->header.inserted = created;
    c->header.sampled = sampled;
    int answer = rp_limiter_may_sample(&c->table, count, &need, &by_size);
    return answer == 1 || answer == -RP_NOTHING_DRAWABLE; /* the tree here is empty */
}

/* As the server does it: where both wait, the group is let in and the batch drawn. */
static int pair_goes(struct corner *c, uint64_t created, uint64_t sampled, uint64_t items,
                     uint32_t count) {
    return !group_goes(c, created, sampled, items) && !batch_goes(c, created, sampled, count)
           && batch_goes(c, created + items, sampled, count);
}

static void check_state(struct corner *c, uint64_t created, uint64_t sampled) {
    int64_t size = (int64_t)c->header.facts.min_size;
    int64_t error = (int64_t)created * c->rate - 4 * (int64_t)sampled;
    int64_t first = (size - 1 + c->items_max) * c->rate, over = first - 4 * (int64_t)sampled;
    CHECK(error <= (over > c->high ? over : c->high), "the error passed its bound");
    CHECK(error >= c->low || sampled == 0, "the error fell below its bound");
    for (uint64_t items = 1; items <= c->items_max; items++) {
        for (uint32_t count = 1; count <= c->batch_max; count++) {
            CHECK(group_goes(c, created, sampled, items) || batch_goes(c, created, sampled, count)
                      || pair_goes(c, created, sampled, items, count),
                  "rate %g, error %g to %g, at least %d: %u created, %u drawn, and neither %u "
                  "creates nor %u draws get on", (double)c->rate / 4, (double)c->low / 4,
                  (double)c->high / 4, (int)size, (unsigned)created, (unsigned)sampled,
                  (unsigned)items, count);
        }
    }
}

/* Every state that any order of groups, batches and pairs of both leads to. Returns how many. */
static uint64_t walk_corner(struct corner *c) {
    static uint8_t reached[CREATED_MAX + 1][SAMPLED_MAX + 1];
    uint64_t states = 0;
    memset(reached, 0, sizeof reached);
    reached[0][0] = 1;
    for (uint32_t created = 0; created <= CREATED_MAX; created++) {
        for (uint32_t sampled = 0; sampled <= SAMPLED_MAX; sampled++) {
            if (!reached[created][sampled]) {
                continue;
            }
            states++;
            check_state(c, created, sampled);
            for (uint32_t n = 1; n <= c->items_max && created + n <= CREATED_MAX; n++) {
                reached[created + n][sampled] |= group_goes(c, created, sampled, n) != 0;
                for (uint32_t m = 1; m <= c->batch_max && sampled + m <= SAMPLED_MAX; m++) {
                    reached[created + n][sampled + m] |= pair_goes(c, created, sampled, n, m) != 0;
                }
            }
            for (uint32_t m = 1; m <= c->batch_max && sampled + m <= SAMPLED_MAX; m++) {
                reached[created][sampled + m] |= batch_goes(c, created, sampled, m) != 0;
            }
        }
    }
    return states;
}

/* Given every small rate, minimum and pair of bounds, also such as lie beside rate * minimum, and
 * groups and batches of every size that is not refused for ever. Expect no state that can be
 * reached in which a group and a batch both have to wait. */
static void check_standstill(void) {
    static const int64_t rates[] = {1, 2, 4, 6, 12}; /* quarters */
    static struct corner c;
    uint64_t states = 0;
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        int64_t narrowest = 2 * (rates[r] > 4 ? rates[r] : 4);
        for (int64_t size = 1; size <= 6; size++) {
            for (int64_t low = -4; low <= 20; low += 3) {
                for (int64_t width = narrowest; width <= narrowest + 12; width += 3) {
                    memset(&c, 0, sizeof c);
                    c.table.header = &c.header;
                    c.table.private = &c.private;
                    c.rate = rates[r];
                    c.low = low;
                    c.high = low + width;
                    c.items_max = (uint32_t)(width / c.rate);
                    c.batch_max = (uint32_t)(width / 4);
                    c.header.facts.samples_per_insert = (double)c.rate / 4;
                    c.header.facts.error_min = (double)c.low / 4;
                    c.header.facts.error_max = (double)c.high / 4;
                    c.header.facts.min_size = (uint64_t)size;
                    states += walk_corner(&c);
                }
            }
        }
    }
    printf("  %llu states\n", (unsigned long long)states);
    check_group("creates and draws of sizes that are let in never wait for each other");
}

/* A rate so small that no number of items is enough: many are missing, never none. */
static void tiny_rates(void) {
    const double rates[] = {1e-17, 1e-19, 1e-20, 1e-300};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct rp_table_header header = {.inserted = 4};
        struct rp_table_private private = {0};
        struct rp_table table = {.header = &header, .private = &private};
        uint64_t need;
        uint32_t by_size;
        header.facts.samples_per_insert = rates[i];
        header.facts.error_max = 1000;
        int may = rp_limiter_may_sample(&table, 64, &need, &by_size);
        CHECK(may == 0 && need >= UINT64_C(6000000000000000000), "%g: %d, need %" PRIu64, rates[i],
              may, need);
    }
    check_group("tiny rates");
}

/* Given more items than the bounds allow, as a group that passed the minimum left them. Expect who
 * creates nothing, and a table without a rate, not to wait. */
static void nothing_to_create(void) {
    struct rp_table_header header = {.inserted = 100};
    struct rp_table_private private = {0};
    struct rp_table table = {.header = &header, .private = &private};
    uint64_t need = 0;
    header.facts.samples_per_insert = 1;
    header.facts.error_max = 3;
    CHECK(rp_limiter_may_insert(&table, 1, &need) == 0 && need == 98);
    CHECK(rp_limiter_may_insert(&table, 0, &need) == 1 && need == 0);
    header.facts.samples_per_insert = 0;
    header.facts.error_max = -3;
    CHECK(rp_limiter_may_insert(&table, 1, &need) == 1 && need == 0);
    check_group("who creates nothing waits for nothing");
}

int main(void) {
    tiny_rates();
    nothing_to_create();
    uint64_t seed = check_seed(77);
    take_trial(seed, 0, 0, 0, 0);
    take_trial(seed, 0, 0, 0, 100);
    take_trial(seed, 1, -10, 10, 1);
    take_trial(seed, 0.25, -20, 20, 50);
    take_trial(seed, 4, 100, 180, 40);
    take_trial(seed, 8, -30, 30, 10);
    check_sizes();
    check_standstill();
    return check_done("test_limiter");
}
