/* What one datagram of a writer may cost is bounded, whatever its numbers say.
 *
 * A large window and long streams, and the arrivals that are worst for them: creates near and far
 * in turn, steps that arrive last first, an index filled with one hash. The table counts links
 * followed and entries looked at (store.h says which); no wall time is measured.
 */
#include "check.h"
#include "table/store.h"
#define MODEL_KEYS 1
#define MODEL_SEQUENCES 1
#include "table_fixture.h"

enum { WINDOW = 8192, CAPACITY = 1 << 19, STEP_BYTES = 8 };

static const struct rp_column columns[] = {{0, 8, 0}};
static const struct rp_pick ahead[] = {{0, 0}, {0, 3}};
static const struct rp_pick row[] = {{0, 0}};
static const struct rp_plan window_plan[] = {{"ahead", ahead, 2}};
static const struct rp_plan row_plan[] = {{"row", row, 1}};

static struct rp_table_config config_of(int windows) {
    return (struct rp_table_config){.name = "work",
                                    .capacity = CAPACITY,
                                    .step_bytes = STEP_BYTES,
                                    .columns = columns,
                                    .column_count = 1,
                                    .plans = windows ? window_plan : row_plan,
                                    .plan_count = 1,
                                    .alpha = 0.5,
                                    .writers_max = 2,
                                    .streams_max = 2,
                                    .window = WINDOW,
                                    .pieces_max = 1};
}

static struct fixture t;
static uint64_t bytes[512];

static uint16_t run_flags; /* of the runs from now on */

static struct rp_run_done send_run(int writer, uint64_t sequence, uint64_t step, uint16_t stream,
                                   uint16_t count) {
    struct rp_run_done done;
    struct rp_run run = {sequence, step, stream, run_flags, count, 0, 1, 0, count * STEP_BYTES};
    int status = rp_writer_check(&t.table, writer, &run, (const uint8_t *)bytes);
    CHECK(status == 0, "%s", rp_status_name(status));
    rp_writer_run(&t.table, writer, &run, (const uint8_t *)bytes, &done);
    rp_table_settle(&t.table);
    return done;
}

/* As a PUSH does: checked, counted for the limiter, then made. Returns the most units one took. */
static uint64_t create(int writer, uint64_t step, int wanted) {
    struct rp_create create = {.step = step, .priority = 1};
    uint64_t before = t.table.private->work_total;
    CHECK(rp_writer_check_create(&t.table, writer, &create) == 0);
    uint32_t taken;
    rp_writer_create_items(&t.table, writer, &create, 1, &taken);
    int status = rp_writer_create(&t.table, writer, &create);
    rp_table_settle(&t.table);
    CHECK(status == wanted, "create of step %" PRIu64 ": %s", step, rp_status_name(status));
    return t.table.private->work_total - before;
}

static uint64_t keys[(CAPACITY + CAPACITY / 2) / 16]; /* of each 16th step */

/* An item is made of this very step. Returns what it took. */
static uint64_t make_item(int writer, uint64_t step) {
    struct rp_table_private *p = t.table.private;
    const struct rp_slot *slot = &p->slots[rp_slot_of(p, keys[step / 16] + step % 16)];
    CHECK(!rp_is_item(slot->item), "step %" PRIu64, step);
    uint64_t spent = create(writer, step, RP_OK);
    CHECK(rp_is_item(slot->item), "another step than %" PRIu64 " is the item", step);
    return spent;
}

/* Every anchor that is stored is found, in few moves, wherever the last one was. */
static void anchors_far_and_near(void) {
    struct rp_table_config config = config_of(1);
    uint64_t worst = 0;
    fixture_open(&t, &config, 1);
    int a = rp_writer_open(&t.table, 5, 2), b = rp_writer_open(&t.table, 6, 2);
    uint64_t end = CAPACITY + CAPACITY / 2, step = 0;
    for (; step < end; step += 16) { /* b's steps lie between, so that links have lengths */
        keys[step / 16] = send_run(a, step, step, 0, 16).key;
        if (step / 16 % 3 == 0) {
            send_run(b, step / 48, step / 48, 0, 1);
        }
    }
    rp_table_check(&t.table);
    uint64_t last = step - 1, oldest = last;
    uint64_t stored = (uint64_t)CAPACITY * 48 / 49 - 64;
    for (uint64_t far = stored, i = 0; far > 1000; far -= far / 64 + 1, i++) {
        if (i == 100) {
            fixture_attach(&t); /* skips are derived anew */
        }
        uint64_t near = make_item(a, last - 4 - i), back = make_item(a, last - far);
        worst = near > worst ? near : worst;
        worst = back > worst ? back : worst;
        oldest = last - far < oldest ? last - far : oldest;
    }
    create(a, oldest, RP_EXISTS);
    create(a, last - CAPACITY, RP_OVERWRITTEN);
    create(a, last, RP_NOT_YET);
    create(a, last - 1, RP_NOT_YET);
    create(a, last + 5 * WINDOW, RP_UNKNOWN_STEP);
    const uint64_t *counters = t.counters;
    CHECK(counters[RP_COUNT_items_existed] == 1 && counters[RP_COUNT_items_overwritten] == 1);
    CHECK(counters[RP_COUNT_items_not_yet] == 2 && counters[RP_COUNT_items_refused] == 1);
    make_item(a, last - 700); /* then a link or two, and the three rows ahead */
    CHECK(make_item(a, last - 699) == 1 + 3 && make_item(a, last - 701) == 2 + 3);
    printf("  at most %" PRIu64 " units a create\n", worst);
    CHECK(worst <= RP_WALK_MAX, "%" PRIu64 " units", worst);
    rp_table_check(&t.table);
    fixture_close(&t);
    check_group("an anchor is found however far it is");
}

/* One datagram's creates, each as far as can be: past its budget they are put off, not refused. */
static void creates_put_off(void) {
    struct rp_table_config config = config_of(1);
    struct rp_create far = {.step = 0, .priority = 1}, near = far;
    uint64_t before, answers[RP_STATUS_COUNT] = {0};
    fixture_open(&t, &config, 1);
    int a = rp_writer_open(&t.table, 5, 2);
    for (uint64_t step = 0; step < CAPACITY / 2; step += 16) {
        send_run(a, step, step, 0, 16);
    }
    CHECK(rp_writer_check_create(&t.table, a, &far) == 0);
    before = t.table.private->work_total;
    for (uint64_t i = 0; i < RP_MTU_MAX / sizeof far; i++) {
        far.step = i;
        near.step = CAPACITY / 2 - 8 - i;
        answers[rp_writer_create(&t.table, a, i % 2 ? &near : &far)]++;
        CHECK(i != 10 || t.table.private->dirty_count > 0, "leaves wait for the tree");
    }
    uint64_t spent = t.table.private->work_total - before;
    CHECK(spent < RP_WORK_MAX + RP_WALK_MAX + 4, "%" PRIu64 " units", spent);
    CHECK(answers[RP_OK] + answers[RP_NOT_YET] == RP_MTU_MAX / sizeof far
          && answers[RP_NOT_YET] > 0);
    CHECK(answers[RP_OK] > RP_DIRTY_MAX && t.table.private->dirty_count < RP_DIRTY_MAX,
          "%u leaf groups wait for the tree", t.table.private->dirty_count);
    create(a, 2000, RP_OK); /* the next datagram has its own budget */
    rp_table_check(&t.table);
    fixture_close(&t);
    check_group("creates beyond a datagram's budget are put off");
}

/* Given a limiter, a step that waits for the one before it, and more creates than a datagram's
 * budget finds. Expect those that were found to be counted and no others made, and the step to go
 * in with the one that was missing, as runs have a budget of their own; of the same creates once
 * more, those that were put off, and no others, to be counted and made. */
static void creates_counted(void) {
    enum { COUNT = RP_MTU_MAX / sizeof(struct rp_create), STORED = CAPACITY / 2 };
    static struct rp_create creates[COUNT];
    static uint8_t statuses[COUNT];
    struct rp_table_config config = config_of(1);
    struct rp_run missing = {STORED, STORED, 0, 0, 1, 0, 1, 0, STEP_BYTES};
    struct rp_run_done done;
    struct rp_pushed progress;
    uint32_t taken = 0, made = 0, put_off = 0;
    config.samples_per_insert = 1;
    config.error_max = 1e6;
    fixture_open(&t, &config, 1);
    int a = rp_writer_open(&t.table, 5, 2);
    for (uint64_t step = 0; step < STORED; step += 16) {
        send_run(a, step, step, 0, 16);
    }
    send_run(a, STORED + 1, STORED + 1, 0, 1);
    for (uint64_t i = 0; i < COUNT; i++) {
        creates[i] = (struct rp_create){.step = i % 2 ? STORED - 8 - i : i, .priority = 1};
    }
    CHECK(rp_writer_check(&t.table, a, &missing, (const uint8_t *)bytes) == 0);
    uint32_t items = rp_writer_create_items(&t.table, a, creates, COUNT, &taken);
    CHECK(items > 0 && items == taken && taken < COUNT, "%u of %u taken", items, taken);
    rp_writer_run(&t.table, a, &missing, (const uint8_t *)bytes, &done);
    rp_writer_progress(&t.table, a, &progress);
    CHECK(progress.done_through == STORED + 2, "what waited is stored in the same datagram");
    rp_writer_create_all(&t.table, a, creates, COUNT, taken, statuses);
    rp_table_settle(&t.table);
    for (uint32_t i = 0; i < COUNT; i++) {
        made += statuses[i] == RP_OK;
        put_off += statuses[i] == RP_NOT_YET;
    }
    CHECK(t.counters[RP_COUNT_items_not_yet] == put_off && put_off > 0);
    CHECK(made > 0 && made <= items, "%u made of %u", made, items);
    uint32_t first = made; /* repeated, it begins with those that were put off */
    made = 0;
    CHECK(rp_writer_check_create(&t.table, a, creates) == 0);
    items = rp_writer_create_items(&t.table, a, creates, COUNT, &taken);
    rp_writer_create_all(&t.table, a, creates, COUNT, taken, statuses);
    rp_table_settle(&t.table);
    for (uint32_t i = 0; i < COUNT; i++) {
        made += statuses[i] == RP_OK;
    }
    CHECK(first + made == COUNT && made == items, "%u made of %u, %u before", made, items, first);
    rp_table_check(&t.table);
    fixture_close(&t);
    check_group("creates that are counted are those that are made");
}

/* Given creates beyond a datagram's budget, all of them asked for again and again. Expect each
 * datagram to have a budget of its own, and to go on with those that were put off. */
static void creates_again(void) {
    enum { COUNT = RP_MTU_MAX / sizeof(struct rp_create), STORED = CAPACITY / 2 };
    static struct rp_create creates[COUNT];
    static uint8_t statuses[COUNT];
    struct rp_table_config config = config_of(1);
    uint32_t made = 0, before = 0;
    fixture_open(&t, &config, 1);
    int a = rp_writer_open(&t.table, 5, 2);
    for (uint64_t step = 0; step < STORED; step += 16) {
        send_run(a, step, step, 0, 16);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        creates[i] = (struct rp_create){.step = i % 2 ? STORED - 8 - i : i, .priority = 1};
    }
    do {
        before = made;
        rp_writer_create_all(&t.table, a, creates, COUNT, COUNT, statuses);
        rp_table_settle(&t.table);
        for (uint32_t i = 0; i < COUNT; i++) {
            made += statuses[i] == RP_OK;
        }
    } while (made > before && made < COUNT);
    CHECK(made == COUNT && before > 0, "%u made, %u before", made, before);
    fixture_close(&t);
    check_group("creates that are repeated get on");
}

/* Given a block of a stream whose first step lies 2^32 keys behind a stored row of another stream.
 * Expect what is before the block to be told as gone, and no item made of that row. */
static void skip_too_far(void) {
    struct rp_table_config config = config_of(0);
    fixture_lap = 1 << 16; /* keys are far above 2^32 */
    fixture_open(&t, &config, 1);
    fixture_lap = 0;
    int a = rp_writer_open(&t.table, 5, 2);
    uint64_t other = send_run(a, 0, 0, 1, 1).key;
    send_run(a, 1, 0, 0, RP_SKIP_BLOCK - 1);
    rp_hint_at(t.table.private, (uint32_t)a, 0)->block = other - (UINT64_C(1) << 32);
    send_run(a, RP_SKIP_BLOCK, RP_SKIP_BLOCK - 1, 0, 1);
    create(a, 0, RP_OVERWRITTEN);
    const struct rp_slot *slot = &t.table.private->slots[rp_slot_of(t.table.private, other)];
    CHECK(rp_key_at(t.table.private, slot) == other && !rp_is_item(slot->item));
    rp_table_check(&t.table);
    fixture_close(&t);
    check_group("a skip that is too long is none");
}

/* Given a stream whose steps another's took the place of, and its next one, the first of a block,
 * with a key just above 2^32. Expect what lies before it told as gone, and no step of the other
 * stream made an item in its stead. */
static void skip_to_nowhere(void) {
    enum { OTHERS = CAPACITY + 512 };
    struct rp_table_config config = config_of(0);
    struct rp_table_info info;
    fixture_lap = (uint32_t)((UINT64_C(1) << 32) / CAPACITY) - 2;
    fixture_open(&t, &config, 1);
    fixture_lap = 0;
    int a = rp_writer_open(&t.table, 5, 2);
    send_run(a, 0, 0, 0, RP_SKIP_BLOCK);
    for (uint64_t step = 0; step < OTHERS; step += 256) {
        send_run(a, RP_SKIP_BLOCK + step, step, 1, 256);
    }
    uint64_t key = send_run(a, RP_SKIP_BLOCK + OTHERS, RP_SKIP_BLOCK, 0, 1).key;
    CHECK(key > UINT64_C(1) << 32 && key < (UINT64_C(1) << 32) + CAPACITY);
    create(a, 0, RP_OVERWRITTEN);
    rp_table_info(&t.table, &info);
    CHECK(info.count == 0, "another step is an item");
    rp_table_check(&t.table);
    fixture_close(&t);
    check_group("a skip whose target is gone leads nowhere");
}

/* Given updates of two items at once, one at a slot that is a multiple of the other's. Expect the
 * tree to know of both. */
static void leaves_apart(void) {
    struct rp_table_config config = config_of(0);
    struct rp_table_info info;
    struct rp_updated result;
    uint64_t updated = 0, square = RP_TREE_FANOUT * RP_TREE_FANOUT;
    fixture_open(&t, &config, 1);
    int a = rp_writer_open(&t.table, 5, 2);
    run_flags = RP_RUN_ITEM;
    for (uint64_t step = 0; step < 16 * square; step += 16) {
        send_run(a, step, step, 0, 16);
    }
    run_flags = 0;
    for (uint64_t slot = 1; slot < 16; slot++) {
        struct rp_update_entry pair[2] = {{.key = CAPACITY + slot * square, .priority = 4},
                                          {.key = CAPACITY + slot, .priority = 4}};
        rp_table_update(&t.table, pair, 2, &result);
        rp_intent_commit(&t.intent);
        rp_table_settle(&t.table);
        updated += 2;
        rp_table_info(&t.table, &info);
        CHECK(result.applied == 2 && info.total == (16 * square + updated) * RP_POWER_ONE,
              "slot %" PRIu64 ": %u applied, %g", slot, result.applied,
              (double)info.total / (double)RP_POWER_ONE);
    }
    rp_table_check(&t.table);
    fixture_close(&t);
    check_group("leaves far apart in one update");
}

/* Steps arrive last first, then the hole is filled: nothing is scanned, and what became ready goes
 * in as the budget allows. */
static void arrivals_backwards(uint64_t seed) {
    struct rp_table_config config = config_of(0);
    uint64_t worst = 0, budget = 0;
    fixture_open(&t, &config, seed);
    int a = rp_writer_open(&t.table, 5, 2);
    send_run(a, 0, 0, 0, 1);
    for (uint64_t i = WINDOW; i > 1; i--) {
        uint64_t before = t.table.private->work_total;
        send_run(a, i, i, 0, 1);
        uint64_t spent = t.table.private->work_total - before;
        worst = i < WINDOW && spent > worst ? spent : worst;
    }
    CHECK(worst <= 4 * RP_BUCKET_MAX, "an arrival cost %" PRIu64 " units", worst);
    uint64_t before = t.table.private->work_total;
    struct rp_run_done done = send_run(a, 1, 1, 0, 1);
    budget = t.table.private->work_total - before;
    CHECK(done.committed == 1 && budget >= RP_WORK_MAX
              && budget < RP_WORK_MAX + 2 * RP_WORK_COMMIT,
          "filling the hole cost %" PRIu64 " units", budget);
    for (int repeat = 0; repeat < 3; repeat++) {
        done = send_run(a, WINDOW, WINDOW, 0, 1);
    }
    CHECK(done.committed == 1, "a repeat goes on with what was left");
    struct rp_pushed progress;
    rp_writer_progress(&t.table, a, &progress);
    CHECK(progress.done_through == WINDOW + 1 && progress.lost_total == 0);
    rp_table_check(&t.table);
    fixture_close(&t);
}

/* Another writer's step lies between two of a run: no key is told that is not the run's. */
static void keys_of_a_run_cut_anew(void) {
    struct rp_table_config config = config_of(0);
    fixture_open(&t, &config, 1);
    int a = rp_writer_open(&t.table, 5, 1), b = rp_writer_open(&t.table, 6, 1);
    struct rp_run_done one = send_run(a, 0, 0, 0, 1), other = send_run(b, 0, 0, 0, 1);
    CHECK(one.key == CAPACITY && other.key == CAPACITY + 1);
    struct rp_run_done whole = send_run(a, 0, 0, 0, 3), rest = send_run(a, 1, 1, 0, 2);
    CHECK(whole.committed == 3 && whole.key == 0, "key %" PRIu64 " told", whole.key);
    CHECK(rest.committed == 2 && rest.key == CAPACITY + 2, "key %" PRIu64 " told", rest.key);
    send_run(a, 4, 4, 0, 1); /* it waits, as the next one does: they lie around b's */
    send_run(b, 1, 1, 0, 1);
    send_run(a, 5, 5, 0, 1);
    rest = send_run(a, 4, 4, 0, 2);
    CHECK(rest.committed == 0 && rest.key == 0, "key %" PRIu64 " told", rest.key);
    rest = send_run(a, 4, 4, 0, 1);
    CHECK(rest.committed == 0 && rest.key == CAPACITY + 5, "key %" PRIu64 " told", rest.key);
    fixture_close(&t);
    check_group("a run is answered with keys that are its own");
}

/* Given holes that a writer asks for, and a reach that makes each cost 128 units. Expect as many as
 * the work of one datagram takes, and no more; by the window alone it could have four more. */
static void far_ahead(void) {
    static const struct rp_pick far[] = {{0, -127}, {0, 0}};
    static const struct rp_plan plan[] = {{"far", far, 2}};
    struct rp_table_config config = config_of(1);
    config.plans = plan;
    uint64_t holes = RP_WORK_MAX / 128;
    CHECK(holes + 4 <= WINDOW / RP_HOLES_SHARE + 4);
    fixture_open(&t, &config, 1);
    int a = rp_writer_open(&t.table, 5, 1);
    CHECK(!rp_writer_far(&t.table, a, holes), "%" PRIu64 " holes", holes);
    CHECK(rp_writer_far(&t.table, a, holes + 1), "%" PRIu64 " holes", holes + 1);
    fixture_close(&t);
    check_group("holes are as many as a datagram may work on");
}

/* Given writers whose windows are reserved as far as their last sequence: one log of the intent
 * full, and a bit more. Expect their ends to fit the log, every slot free, and the open episode
 * cut. */
static void ends_of_full_windows(void) {
    enum { WORDS_EACH = 2, FITS = RP_INTENT_WORDS / WORDS_EACH };
    for (uint32_t window = FITS; window <= FITS + 9; window += 9) {
        struct rp_table_config config = config_of(0);
        struct rp_pushed progress;
        config.window = window;
        fixture_open(&t, &config, 1);
        int a = rp_writer_open(&t.table, 5, 2);
        send_run(a, 0, 0, 1, 1);
        send_run(a, window, window - 1, 0, 1);
        rp_writer_progress(&t.table, a, &progress);
        CHECK(progress.done_through == 1 && rp_writer_next(&t.table, a) == window + 1);
        rp_writer_close(&t.table, a);
        const struct rp_table_private *p = t.table.private;
        for (uint32_t slot = 0; slot < CAPACITY; slot++) {
            CHECK(rp_state_of(p->keys[slot]) != RP_SLOT_RESERVED, "window %u, slot %u", window,
                  slot);
        }
        CHECK(t.counters[RP_COUNT_episodes_cut] == 1);
        rp_table_check(&t.table);
        fixture_close(&t);
    }
    check_group("the end of a full window fits the log");
}

/* What was never used is not looked at: a mark there survives a reset, and a writer's going. */
static void what_a_reset_touches(int pushed) {
    struct rp_table_config config = config_of(0);
    const uint64_t mark = 0x5EED;
    fixture_open(&t, &config, 1);
    struct rp_table_private *p = t.table.private;
    int a = rp_writer_open(&t.table, 5, 2);
    CHECK(a == 0);
    for (int i = 0; i < pushed; i++) {
        send_run(a, (uint64_t)i, (uint64_t)i, 0, 1);
    }
    uint64_t *unused[] = {
        &p->slots[CAPACITY / 2].links,
        &p->keys[CAPACITY / 2],
        &p->leaves[CAPACITY / 2],
        &t.table.tree.mass[1][CAPACITY / 2 / RP_TREE_FANOUT],
        &rp_entry_at(p, 0, WINDOW - 1)->step,
        &rp_entry_at(p, 1, 0)->step,
        &rp_stream_at(p, 1, 0)->depth,
    };
    uint64_t before[sizeof unused / sizeof *unused];
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) {
        before[i] = *unused[i];
        *unused[i] = mark;
    }
    rp_table_reset(&t.table, 77);
    rp_writer_close(&t.table, a);
    CHECK(rp_writer_open(&t.table, 7, 2) == 0);
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) {
        CHECK(*unused[i] == mark, "unused word %zu was written to", i);
        *unused[i] = before[i];
    }
    rp_table_check(&t.table);
    CHECK(rp_table_epoch(&t.table) == 77 && rp_tree_total(&t.table.tree) == 0);
    CHECK(send_run(0, 0, 0, 0, 1).committed == 1);
    rp_table_check(&t.table);
    fixture_close(&t);
}

/* Resets with the ring in any position, full or not, and steps that wait: nothing is left. */
static void resets_at_random(uint64_t seed) {
    struct rp_table_config config = config_of(0);
    struct rp_random random;
    config.capacity = 1000;
    config.window = 31;
    run_flags = RP_RUN_ITEM;
    rp_random_seed(&random, seed);
    fixture_open(&t, &config, seed);
    for (int round = 0; round < 30; round++) {
        int a = rp_writer_open(&t.table, 5 + (uint64_t)round / 4, 2);
        uint64_t count = rp_random_below(&random, 2500), sequence = 0;
        for (; sequence < count; sequence++) {
            send_run(a, sequence, sequence, 0, 1);
        }
        for (uint64_t far = 9; far > 1; far--) { /* they wait for two, or for one */
            send_run(a, sequence + far, far % 2 ? sequence + far : far, far % 2 == 0, 1);
        }
        rp_table_check(&t.table);
        rp_table_reset(&t.table, 100 + (uint64_t)round);
        rp_table_check(&t.table);
        CHECK(rp_tree_count(&t.table.tree) == 0 && t.table.private->bare == 0);
        const uint8_t *slots = (const void *)t.table.private->slots;
        size_t length = config.capacity * sizeof *t.table.private->slots;
        CHECK(slots[0] == 0 && memcmp(slots, slots + 1, length - 1) == 0, "a slot has something");
        const uint32_t *lists = t.table.private->known + (size_t)a * t.table.private->known_words
                                + config.window;
        for (uint32_t i = 0; i < (uint32_t)1 << t.table.private->known_bits; i++) {
            CHECK(lists[i] == 0, "list %u has a step", i);
        }
        if (rp_random_below(&random, 3) == 0) {
            fixture_attach(&t);
        }
        CHECK(send_run(a, 0, 0, 0, 1).committed == 1);
        CHECK(send_run(a, 1, 0, 1, 2).committed == 2);
        rp_table_check(&t.table);
        if (round % 4 == 3) {
            rp_writer_close(&t.table, a);
        } else {
            rp_table_reset(&t.table, 200 + (uint64_t)round);
        }
    }
    fixture_close(&t);
}

/* Given damage in a writer's place that nobody has, where an attach looks at nothing. Expect the
 * place to be empty for who takes it. */
static void free_place_damaged(void) {
    struct rp_table_config config = config_of(0);
    fixture_open(&t, &config, 1);
    struct rp_writer *place = rp_writer_at(t.table.private, 0);
    place->streams = UINT32_MAX;
    place->next_sequence = 7;
    fixture_attach(&t);
    CHECK(place->streams == 0 && place->next_sequence == 0);
    int a = rp_writer_open(&t.table, 5, 2);
    CHECK(a == 0 && send_run(a, 0, 0, 0, 1).committed == 1);
    rp_table_check(&t.table);
    fixture_close(&t);
    check_group("a free place is empty after an attach");
}

/* Given more steps that wait for one than a datagram may commit, and an attach when it has come.
 * Expect the attach to go on where the datagram had to stop. */
static void attach_goes_on(void) {
    enum { AT_ONCE = RP_WORK_MAX / RP_WORK_COMMIT };
    struct rp_table_config config = config_of(0);
    fixture_open(&t, &config, 1);
    uint64_t before[2];
    for (int a = 0; a < 2; a++) {
        CHECK(rp_writer_open(&t.table, 5 + (uint64_t)a, 2) == a);
        for (uint64_t step = WINDOW - 1; step > 0; step--) {
            CHECK(send_run(a, step, step, 0, 1).committed == 0);
        }
        send_run(a, 0, 0, 0, 1);
        before[a] = rp_stream_at(t.table.private, (uint32_t)a, 0)->next_step;
        CHECK(before[a] > AT_ONCE / 2 && before[a] <= AT_ONCE + 1, "%" PRIu64 " steps", before[a]);
    }
    fixture_attach(&t);
    for (uint32_t a = 0; a < 2; a++) { /* each as if it were the only one */
        uint64_t after = rp_stream_at(t.table.private, a, 0)->next_step;
        CHECK(after >= before[a] + AT_ONCE / 2 || after == WINDOW, "%" PRIu64 " steps", after);
    }
    rp_table_check(&t.table);
    fixture_close(&t);
    check_group("an attach goes on with steps that waited");
}

int main(void) {
    attach_goes_on();
    anchors_far_and_near();
    creates_put_off();
    creates_counted();
    creates_again();
    free_place_damaged();
    skip_too_far();
    skip_to_nowhere();
    leaves_apart();
    for (uint64_t seed = 100; seed < 125; seed++) { /* and salt: 119's is bad for a weaker hash */
        arrivals_backwards(seed);
    }
    check_group("arrivals in the worst order are not scanned for");
    keys_of_a_run_cut_anew();
    far_ahead();
    ends_of_full_windows();
    what_a_reset_touches(0);
    what_a_reset_touches(500);
    check_group("a reset costs what was stored");
    for (uint64_t seed = 1; seed <= 10; seed++) {
        resets_at_random(seed);
    }
    check_group("a reset leaves nothing");
    return check_done("test_work");
}
