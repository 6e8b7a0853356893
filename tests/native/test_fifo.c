/* A queue draws its items oldest first, each once, whatever else happens to the table, and its
 * limiter counts what can be drawn.
 *
 * Beside the table stands a list of keys. Rows come in, some with priority 0; batches are drawn,
 * now and then by a process that dies before the commit; keys are updated; the ring laps what
 * nobody drew; the table is emptied, and attached again. After each of them the two agree.
 */
#include "table/store.h"
#include "table_fixture.h"

enum { LIST = 1 << 14, BATCH = 1024 };

struct walk {
    struct fixture fixture;
    struct rp_random random;
    uint64_t keys[LIST]; /* that wait to be drawn, oldest first */
    uint32_t waiting;
    uint32_t capacity;
    uint32_t window;
    uint32_t size;
    uint64_t head;
    uint64_t sequence;
    uint64_t value; /* of the next row, which says its key */
    uint64_t drawn, lapped, updated, attached, died, wrapped;
};

static struct walk walk;

static uint64_t roll(uint64_t bound) {
    return rp_random_below(&walk.random, bound);
}

/* ---- the list ---- */

/* Takes `count` keys from place `at` on out of the list. */
static void list_cut(uint32_t at, uint32_t count) {
    CHECK(at + count <= walk.waiting);
    walk.waiting -= count;
    memmove(walk.keys + at, walk.keys + at + count, (walk.waiting - at) * sizeof *walk.keys);
}

static int list_find(uint64_t key) {
    for (uint32_t i = 0; i < walk.waiting; i++) {
        if (walk.keys[i] == key) {
            return (int)i;
        }
    }
    return -1;
}

/* ---- what happens ---- */

static void push_rows(void) {
    struct run_body body;
    struct rp_run_done done;
    uint32_t count = 1 + (uint32_t)roll(walk.window);
    double *priorities = (double *)body.words;
    uint64_t *rows = body.words + count;
    for (uint32_t i = 0; i < count; i++) {
        priorities[i] = roll(10) == 0 ? 0.0 : 1.0 + (double)roll(9);
        rows[2 * i] = walk.head + i;
        rows[2 * i + 1] = ~(walk.head + i);
    }
    body.run = (struct rp_run){.sequence = walk.sequence,
                               .step = walk.sequence,
                               .count = (uint16_t)count,
                               .piece_count = 1,
                               .flags = RP_RUN_ITEM | RP_RUN_PRIORITY,
                               .size = 24 * count};
    rp_writer_ask(&walk.fixture.table);
    CHECK(rp_writer_ask_run(&walk.fixture.table, 0, &body.run));
    rp_writer_run(&walk.fixture.table, 0, &body.run, (const uint8_t *)body.words, &done);
    rp_table_settle(&walk.fixture.table);
    CHECK(done.committed == count);
    walk.sequence += count;
    for (uint32_t i = 0; i < count; i++, walk.head++) {
        if (priorities[i] > 0) {
            walk.keys[walk.waiting++] = walk.head;
        }
    }
    while (walk.waiting > 0 && walk.keys[0] < walk.head - walk.capacity) {
        list_cut(0, 1);
        walk.lapped++;
    }
}

static void attach(void) {
    fixture_attach(&walk.fixture);
    walk.attached++;
}

static void check_drawn(const struct rp_sample *request, const struct rp_batch *head,
                        const struct rp_batch_item *items) {
    CHECK(head->count == request->count && head->drawable == walk.waiting
          && head->total == walk.waiting * RP_POWER_ONE);
    for (uint32_t i = 0; i < request->count; i++) {
        uint64_t row[2];
        CHECK(items[i].key == walk.keys[i], "item %u of %u", i, request->count);
        CHECK(items[i].mass == RP_POWER_ONE, "as before the draw: all alike");
        CHECK(rp_table_gather(&walk.fixture.table, 0, &items[i], 0, 16, (uint8_t *)row) == 1);
        CHECK(row[0] == items[i].key && row[1] == ~items[i].key, "the row itself");
        walk.wrapped += i > 0 && items[i].key % walk.capacity < items[i - 1].key % walk.capacity;
    }
}

static void draw_batch(void) {
    static struct rp_batch_item items[BATCH];
    struct rp_batch head;
    uint32_t most = walk.capacity < BATCH ? walk.capacity : BATCH;
    struct rp_sample request = {.count = 1 + (uint32_t)roll(roll(2) ? most : 5)};
    request.mode = roll(10) == 0 ? RP_SAMPLE_STRATIFIED : RP_SAMPLE_INDEPENDENT;
    request.uniform = request.mode == RP_SAMPLE_INDEPENDENT && roll(10) == 0;
    int odd = request.mode == RP_SAMPLE_STRATIFIED || request.uniform > 0;
    int status = rp_table_draw(&walk.fixture.table, &request, &head, items);
    if (walk.waiting == 0 || odd || request.count > walk.waiting) {
        CHECK(status == (walk.waiting > 0 && odd ? -RP_BAD_ARGUMENT : -RP_NOTHING_DRAWABLE));
        CHECK(rp_intent_room(&walk.fixture.intent) == RP_INTENT_WORDS, "nothing was begun");
        return;
    }
    CHECK(status == RP_OK);
    check_drawn(&request, &head, items);
    if (roll(8) == 0) { /* its process dies before the commit: nothing was drawn */
        walk.died++;
        attach();
        return;
    }
    rp_intent_commit(&walk.fixture.intent);
    rp_table_settle(&walk.fixture.table);
    list_cut(0, request.count);
    walk.drawn += request.count;
}

/* Keys that wait, keys that were drawn or overwritten or never drawable, and keys to come. */
static void update_keys(void) {
    struct rp_update_entry entries[12];
    struct rp_updated found, expected = {0};
    for (uint32_t i = 0; i < 12; i++) {
        uint64_t key = walk.head + 2 - roll(walk.capacity + 9);
        key = walk.waiting > 0 && roll(4) == 0 ? walk.keys[roll(walk.waiting)] : key;
        entries[i] = (struct rp_update_entry){key, roll(3) == 0 ? 0.0 : 3.0};
        int unknown = key >= walk.head || key < walk.capacity;
        int applied = !unknown && list_find(key) >= 0;
        expected.unknown += (uint32_t)unknown;
        expected.applied += (uint32_t)applied;
        expected.stale += !unknown && !applied;
    }
    rp_table_update(&walk.fixture.table, entries, 12, &found);
    rp_intent_commit(&walk.fixture.intent);
    rp_table_settle(&walk.fixture.table);
    CHECK(memcmp(&found, &expected, sizeof found) == 0, "%u %u %u for %u %u %u", found.applied,
          found.stale, found.unknown, expected.applied, expected.stale, expected.unknown);
    walk.updated += found.applied;
    for (uint32_t i = 0; i < 12; i++) { /* the last of a key counts; one of 0 takes it out */
        int later = 0;
        for (uint32_t j = i + 1; j < 12; j++) {
            later |= entries[j].key == entries[i].key;
        }
        int at = list_find(entries[i].key);
        if (!later && at >= 0 && entries[i].priority == 0) {
            list_cut((uint32_t)at, 1);
        }
    }
}

static void reset(void) {
    rp_table_reset(&walk.fixture.table, 100 + roll(1000));
    walk.waiting = 0;
    walk.sequence = 0;
}

/* ---- what has to be true ---- */

static void check_limiter(void) {
    uint64_t need, items = roll(walk.size + 5);
    uint32_t by_size, count = 1 + (uint32_t)roll(walk.size + 5);
    int may = rp_limiter_may_insert(&walk.fixture.table, items, &need);
    if (items == 0 || walk.waiting + items <= walk.size) {
        CHECK(may == 1 && need == 0);
    } else if (items > walk.size) {
        CHECK(may == -RP_NEVER_FITS);
    } else {
        CHECK(may == 0 && need == walk.waiting + items - walk.size);
    }
    may = rp_limiter_may_sample(&walk.fixture.table, count, &need, &by_size);
    if (count > walk.size) {
        CHECK(may == -RP_NEVER_FITS);
    } else if (count <= walk.waiting) {
        CHECK(may == 1 && need == 0);
    } else {
        CHECK(may == 0 && need == count - walk.waiting && by_size == 0);
    }
}

static void check_agreement(void) {
    struct rp_table_info info;
    rp_table_check(&walk.fixture.table);
    rp_table_info(&walk.fixture.table, &info);
    CHECK(info.head == walk.head && info.count == walk.waiting, "%u wait, not %u", info.count,
          walk.waiting);
    for (int i = 0; i < 4; i++) {
        check_limiter();
    }
}

static const struct rp_column columns[] = {{0, 16, 0}};
static const struct rp_pick picks[] = {{0, 0}};
static const struct rp_plan plans[] = {{"row", picks, 1}};

static struct rp_table_config queue_of(uint32_t capacity, uint32_t window, double size) {
    return (struct rp_table_config){.name = "queue", .capacity = capacity, .step_bytes = 16,
                                    .columns = columns, .column_count = 1, .plans = plans,
                                    .plan_count = 1, .writers_max = 1, .streams_max = 1,
                                    .window = window, .pieces_max = 1, .samples_per_insert = 1,
                                    .error_max = size, .fifo = 1};
}

static void take_walk(uint32_t capacity, uint32_t window, uint32_t size, uint64_t seed) {
    struct rp_table_config config = queue_of(capacity, window, size);
    memset(&walk, 0, sizeof walk);
    rp_random_seed(&walk.random, seed);
    fixture_lap = 3;
    fixture_open(&walk.fixture, &config, seed);
    CHECK(rp_writer_open(&walk.fixture.table, 1, 1) == 0);
    walk.capacity = capacity;
    walk.window = window;
    walk.size = size;
    walk.head = walk.fixture.table.header->head;
    for (int i = 0; i < check_rounds(3000); i++) {
        uint64_t what = roll(1000);
        uint64_t pushes = i / 50 % 4 == 3 ? 880 : 480; /* at times hardly anybody draws */
        if (what < pushes) {
            push_rows();
        } else if (what < 900) {
            draw_batch();
        } else if (what < 960) {
            update_keys();
        } else if (what < 995) {
            attach();
        } else {
            reset();
        }
        check_agreement();
    }
    printf("  capacity %u: %llu drawn, %llu lapped undrawn, %llu updated, %llu attached, %llu died "
           "drawing\n",
           capacity, (unsigned long long)walk.drawn, (unsigned long long)walk.lapped,
           (unsigned long long)walk.updated, (unsigned long long)walk.attached,
           (unsigned long long)walk.died);
    CHECK(walk.drawn > 0 && walk.lapped > 0 && walk.updated > 0 && walk.died > 0
          && walk.wrapped > 0);
    CHECK(walk.fixture.table.counters[RP_COUNT_items_undrawn] == walk.lapped, "%llu",
          (unsigned long long)walk.fixture.table.counters[RP_COUNT_items_undrawn]);
    fixture_close(&walk.fixture);
}

/* Given a queue's configuration with one number that a queue cannot have. Expect a sentence. */
static void check_refusals(void) {
    struct rp_table_sizes sizes;
    char error[256] = "";
    struct rp_table_config good = queue_of(64, 4, 60), bad[7];
    CHECK(rp_table_sizes(&good, &sizes, error) == 0, "%s", error);
    for (int i = 0; i < 7; i++) {
        bad[i] = good;
    }
    bad[0].fifo = 2;
    bad[1].alpha = 0.5;
    bad[2].samples_per_insert = 2;
    bad[3].error_min = -1;
    bad[4].min_size = 2;
    bad[5].error_max = 0;
    bad[6].error_max = 61;
    for (int i = 0; i < 7; i++) {
        const char *expected = i < 5 ? "table queue: fifo is 0 or 1, and with 1 alpha is 0, "
                                       "samples_per_insert 1, error_min 0 and min_size 1"
                               : i < 6 ? "table queue: a queue of 0 items, expected 1 to 60: the "
                                         "capacity without the windows of its writers"
                                       : "table queue: a queue of 61 items, expected 1 to 60: the "
                                         "capacity without the windows of its writers";
        CHECK(rp_table_sizes(&bad[i], &sizes, error) == -RP_BAD_ARGUMENT);
        CHECK(strcmp(error, expected) == 0, "case %d: %s", i, error);
    }
    good.error_max = 1;
    good.min_size = 1;
    CHECK(rp_table_sizes(&good, &sizes, error) == 0, "%s", error);
    check_group("what no queue can be is said in a sentence");
}

/* Given a batch of as many items as the largest batch of a queue has. Expect one transaction. */
static void check_largest(void) {
    static struct rp_batch_item items[RP_QUEUE_BATCH_MAX];
    struct rp_table_config config = queue_of(20480, 256, 20000);
    struct rp_sample request = {.count = RP_QUEUE_BATCH_MAX + 1};
    struct rp_batch head;
    uint64_t need;
    uint32_t by_size;
    memset(&walk, 0, sizeof walk);
    fixture_open(&walk.fixture, &config, 1);
    CHECK(rp_writer_open(&walk.fixture.table, 1, 1) == 0);
    walk.capacity = config.capacity;
    walk.window = config.window;
    walk.head = walk.fixture.table.header->head;
    rp_random_seed(&walk.random, 1);
    while (walk.waiting <= RP_QUEUE_BATCH_MAX) {
        walk.waiting = 0;
        push_rows();
        walk.waiting = rp_tree_count(&walk.fixture.table.tree);
    }
    CHECK(rp_limiter_may_sample(&walk.fixture.table, request.count, &need, &by_size)
          == -RP_NEVER_FITS);
    CHECK(rp_table_draw(&walk.fixture.table, &request, &head, items) == -RP_BAD_ARGUMENT);
    request.count--;
    CHECK(rp_limiter_may_sample(&walk.fixture.table, request.count, &need, &by_size) == 1);
    CHECK(rp_table_draw(&walk.fixture.table, &request, &head, items) == RP_OK);
    CHECK(rp_intent_room(&walk.fixture.intent) >= 64, "and room for the request's record");
    rp_intent_commit(&walk.fixture.intent);
    rp_table_settle(&walk.fixture.table);
    rp_table_check(&walk.fixture.table);
    CHECK(rp_tree_count(&walk.fixture.table.tree) == walk.waiting - request.count);
    fixture_close(&walk.fixture);
    check_group("the largest batch is one transaction");
}

int main(void) {
    uint64_t seed = check_seed(2611);
    take_walk(16, 1, 8, seed);
    take_walk(100, 6, 40, seed + 1);
    take_walk(5000, 300, 2000, seed + 2);
    check_group("a queue and a list, drawn side by side");
    check_refusals();
    check_largest();
    return check_done("test_fifo");
}
