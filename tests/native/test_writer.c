/* Writers do what the naive model says, whatever arrives in whatever order.
 *
 * Several writers of several streams send runs and pieces, held back, repeated, out of order and
 * now and then made up; episodes end, writers close and come back, the table is attached anew
 * and emptied; items are created, updated and drawn all the while. After every step the table is
 * checked, and all that can be seen of it is compared with the model byte for byte. Small rings,
 * so that everything wraps and places are lost.
 */
#include "table_fixture.h"

enum { POOL = 24, STEPS_OF_WALK = 5000 };

struct message {
    uint16_t writer;
    int used;
    int not_before; /* held back until this step of the walk */
    uint32_t life;
    struct run_body body;
    double priorities[8];
};

struct walk {
    struct fixture fixture;
    struct rp_random random;
    int now;
    struct message pool[POOL];
    uint64_t send_sequence[MODEL_WRITERS];
    uint64_t send_step[MODEL_WRITERS][MODEL_STREAMS];
    uint64_t sessions;
    uint64_t lost;
    uint64_t refused;
    uint64_t created;
    uint64_t evicted;
    uint64_t runs;
    uint64_t bursts;
};

static struct model model;
static struct walk walk;

static uint64_t roll(uint64_t bound) {
    return rp_random_below(&walk.random, bound);
}

static double some_priority(void) {
    static const double odd[] = {0.0, 1.0, 1e-300, 1e300, 0.001, 3.5};
    return roll(4) == 0 ? odd[roll(6)] : (double)(1 + roll(1000)) / 64;
}

/* Given a run, expect the status, the answer and the state that the model gives. */
static void deliver(struct message *message) {
    struct rp_table *table = &walk.fixture.table;
    struct rp_run *run = &message->body.run;
    const uint8_t *bytes = (const uint8_t *)message->body.words;
    int w = message->writer;
    int status = rp_writer_check(table, w, run, bytes);
    int expected = model_check(&model, message->writer, run);
    CHECK(status == expected, "rp_writer_check: %s, the model says %s", rp_status_name(status),
          rp_status_name(expected));
    if (status < 0) {
        walk.refused++;
        if (status == -RP_BAD_STEP) { /* something made up was stored meanwhile: go on behind it */
            walk.send_step[w][run->stream] = model.writer[w].stream[run->stream].next_step;
        }
        return;
    }
    struct rp_run_done done;
    struct rp_run_done wanted;
    rp_writer_run(table, w, run, bytes, &done);
    rp_table_settle(table);
    model_run(&model, message->writer, run, message->priorities);
    model_answer(&model, message->writer, run, &wanted);
    CHECK(done.key == wanted.key && done.committed == wanted.committed && done.lost == wanted.lost,
          "answer %llu %u %u, the model says %llu %u %u", (unsigned long long)done.key,
          done.committed, done.lost, (unsigned long long)wanted.key, wanted.committed, wanted.lost);
    walk.runs++;
    if (done.lost > 0) { /* send again from what is stored, under new sequences */
        walk.lost++;
        walk.send_step[w][run->stream] = model.writer[w].stream[run->stream].next_step;
    }
}

static struct message *free_message(void) {
    for (int i = 0; i < POOL; i++) {
        if (!walk.pool[i].used) {
            return &walk.pool[i];
        }
    }
    return 0;
}

static int free_messages(void) {
    int count = 0;
    for (int i = 0; i < POOL; i++) {
        count += !walk.pool[i].used;
    }
    return count;
}

static void fill_message(struct message *message, uint32_t writer) {
    for (int i = 0; i < 8; i++) {
        message->priorities[i] = some_priority();
    }
    message->used = 1;
    message->writer = (uint16_t)writer;
    message->life = model.writer[writer].life;
    message->not_before =
        roll(40) == 0 && model.config->writers_max > 1 ? walk.now + (int)roll(2000) : 0;
    fill_run(&model, writer, &message->body, message->priorities);
}

static uint16_t some_flags(void) {
    if (model.behind + model.ahead == 0) {
        static const uint16_t flags[] = {RP_RUN_ITEM | RP_RUN_PRIORITY, RP_RUN_ITEM, 0, RP_RUN_END};
        return flags[roll(4)];
    }
    return roll(6) == 0 ? RP_RUN_END : 0;
}

/* A writer alone fills the whole ring: whatever others have under way loses its place. */
static void burst(uint32_t writer) {
    struct model_writer *w = &model.writer[writer];
    uint16_t stream = (uint16_t)roll(w->streams);
    struct message message;
    uint32_t steps = 2 * model.config->capacity;
    walk.bursts++;
    walk.send_step[writer][stream] = w->stream[stream].next_step;
    for (uint32_t i = 0;
         i < steps && walk.send_sequence[writer] < w->done_through + model.config->window; i++) {
        message.body.run = (struct rp_run){walk.send_sequence[writer],
                                           walk.send_step[writer][stream],
                                           stream,
                                           some_flags(),
                                           1,
                                           0,
                                           1,
                                           0,
                                           0};
        fill_message(&message, writer);
        walk.send_sequence[writer]++;
        walk.send_step[writer][stream]++;
        deliver(&message);
    }
}

/* The next steps of a stream, as an honest client numbers them. */
static void compose(uint32_t writer) {
    struct model_writer *w = &model.writer[writer];
    uint16_t stream = (uint16_t)roll(w->streams);
    uint16_t count = (uint16_t)(1 + roll(4));
    uint16_t pieces = model.config->pieces_max > 1 && roll(2) ? (uint16_t)(2 << roll(2)) : 1;
    count = pieces > 1 ? 1 : count;
    if (walk.send_sequence[writer] + count > w->done_through + model.config->window
        || free_messages() < pieces) {
        return;
    }
    uint16_t flags = some_flags();
    struct rp_run run = {walk.send_sequence[writer],
                         walk.send_step[writer][stream],
                         stream,
                         flags,
                         count,
                         0,
                         pieces,
                         0,
                         0};
    for (uint16_t piece = 0; piece < pieces; piece++) {
        struct message *message = free_message();
        run.piece = piece;
        message->body.run = run;
        fill_message(message, writer);
    }
    walk.send_sequence[writer] += count;
    walk.send_step[writer][stream] += count;
}

static void deliver_some(void) {
    struct message *message = &walk.pool[roll(POOL)];
    for (int i = 0; i < POOL && (!message->used || message->not_before > walk.now); i++) {
        message = &walk.pool[(message - walk.pool + 1) % POOL];
    }
    if (!message->used || message->not_before > walk.now) {
        return;
    }
    if (model.writer[message->writer].life == message->life
        && model.writer[message->writer].session != 0) {
        if (roll(400) > 0 || model.config->writers_max == 1) { /* else it never arrives: a hole */
            deliver(message);
        }
        message->used = roll(4) == 0; /* a repeat will follow */
    } else {
        message->used = 0;
    }
}

/* A run nobody honest would send; it must be refused or end as the model says. */
static void deliver_garbage(uint32_t writer) {
    struct model_writer *w = &model.writer[writer];
    struct message message;
    uint16_t stream = (uint16_t)roll(w->streams + 1u);
    uint64_t next = stream < w->streams ? w->stream[stream].next_step : 0;
    uint64_t low = w->done_through > 6 ? w->done_through - 6 : 0;
    message.body.run = (struct rp_run){low + roll(model.config->window + 8),
                                       next + roll(5),
                                       stream,
                                       some_flags(),
                                       (uint16_t)(1 + roll(3)),
                                       0,
                                       1,
                                       0,
                                       0};
    message.body.run.step -= message.body.run.step > 2 ? roll(3) : 0;
    if (message.body.run.sequence + 4 > walk.send_sequence[writer]) {
        return; /* sequences the honest part has not used yet stay its own */
    }
    fill_message(&message, writer);
    deliver(&message);
}

static void create_some(uint32_t writer) {
    struct model_writer *w = &model.writer[writer];
    uint16_t stream = (uint16_t)roll(w->streams);
    uint64_t next = w->stream[stream].next_step;
    uint64_t back = roll(4) ? model.ahead + roll(3) : roll(next + 1);
    struct rp_create create = {.step = next + 1 > back ? next + 1 - back : 0, .stream = stream};
    create.step += roll(50) == 0 ? 5u * model.config->window : 0;
    if (roll(3) == 0) {
        create.flags = RP_CREATE_MAXIMUM;
    } else {
        create.priority = some_priority();
    }
    CHECK(rp_writer_check_create(&walk.fixture.table, (int)writer, &create) == 0);
    int expected = model_create(&model, writer, &create, 0);
    uint32_t taken;
    uint32_t items = rp_writer_create_items(&walk.fixture.table, (int)writer, &create, 1, &taken);
    CHECK(items == 1 || (expected != RP_OK && expected != RP_NOT_YET),
          "a new item is not foreseen");
    int status = RP_NOT_YET;
    for (int i = 0; i < 4000 && status == RP_NOT_YET; i++) { /* a long walk goes on in the repeat */
        status = rp_writer_create(&walk.fixture.table, (int)writer, &create);
        i = expected == RP_NOT_YET ? 4000 : i;
    }
    rp_table_settle(&walk.fixture.table);
    CHECK(status == expected, "create: %s, the model says %s", rp_status_name(status),
          rp_status_name(expected));
    walk.created += status == RP_OK;
    model_create(&model, writer, &create, 1);
}

static void update_some(void) {
    struct rp_update_entry entries[16];
    struct rp_updated found;
    struct rp_updated expected;
    uint32_t count = 1 + (uint32_t)roll(16);
    uint64_t capacity = model.config->capacity;
    for (uint32_t i = 0; i < count; i++) {
        entries[i].key = model.head - 1 - roll(capacity + capacity / 4);
        entries[i].key = roll(8) == 0 ? model.head + roll(3) : entries[i].key;
        entries[i].key = i > 0 && roll(8) == 0 ? entries[i - 1].key : entries[i].key;
        entries[i].priority = some_priority();
    }
    rp_table_update(&walk.fixture.table, entries, count, &found);
    rp_intent_commit(&walk.fixture.intent);
    rp_table_settle(&walk.fixture.table);
    model_update(&model, entries, count, &expected);
    CHECK(memcmp(&found, &expected, sizeof found) == 0,
          "applied %u stale %u unknown %u, the model says %u %u %u", found.applied, found.stale,
          found.unknown, expected.applied, expected.stale, expected.unknown);
}

static void draw_some(void) {
    struct rp_batch head;
    struct rp_batch_item items[24];
    uint64_t keys[24];
    uint32_t drawable;
    uint64_t total = model_total(&model, &drawable);
    uint64_t most = model.config->fifo ? 3 : 24; /* few wait there */
    struct rp_sample request = {.count = 1 + (uint32_t)roll(most), .mode = (uint8_t)roll(2)};
    static const uint32_t mixes[] = {0, 0, 1u << 30, UINT32_MAX};
    request.uniform = request.mode == RP_SAMPLE_STRATIFIED ? 0 : mixes[roll(4)];
    request.plan = (uint16_t)roll(model.config->plan_count);
    int status = rp_table_draw(&walk.fixture.table, &request, &head, items);
    CHECK(status == model_may_draw(&model, &request));
    if (status < 0) {
        return;
    }
    rp_intent_commit(&walk.fixture.intent);
    rp_table_settle(&walk.fixture.table);
    CHECK(head.total == total && head.drawable == drawable && head.head == model.head
          && head.count == request.count);
    model_draw(&model, &request, keys);
    for (uint32_t i = 0; i < request.count; i++) {
        const struct model_step *s = model_at(&model, keys[i]);
        CHECK(items[i].key == keys[i], "draw %u", i);
        CHECK(items[i].mass == (model.config->fifo ? RP_POWER_ONE : s->mass));
        CHECK(items[i].behind == s->behind
              && items[i].ahead == s->ahead);
    }
}

static void open_writer(uint32_t writer) {
    uint16_t streams = (uint16_t)(1 + roll(model.config->streams_max));
    uint64_t session = ++walk.sessions;
    CHECK(rp_writer_open(&walk.fixture.table, session, streams) == (int)writer);
    CHECK(rp_writer_open(&walk.fixture.table, session, streams) == (int)writer,
          "opening again finds the same place");
    model_writer_open(&model, writer, session, streams);
    walk.send_sequence[writer] = 0;
    memset(walk.send_step[writer], 0, sizeof walk.send_step[writer]);
}

static void close_and_open(uint32_t writer) {
    rp_writer_close(&walk.fixture.table, (int)writer);
    CHECK(rp_writer_find(&walk.fixture.table, model.writer[writer].session) == -RP_NOT_A_WRITER);
    model_close(&model, writer);
    const char *difference = model_differs(&model, &walk.fixture.table);
    CHECK(!difference, "after a close: %s", difference);
    open_writer(writer);
}

static void step_of_walk(void) {
    uint32_t writer = (uint32_t)roll(model.config->writers_max);
    uint64_t what = roll(100);
    if (what < 35) {
        compose(writer);
    } else if (what < 75) {
        deliver_some();
    } else if (what < 78) {
        deliver_garbage(writer);
    } else if (what < 90) {
        create_some(writer);
    } else if (what < 94) {
        update_some();
    } else if (what < 98) {
        draw_some();
    } else if (what == 98 && roll(3) == 0) {
        burst(writer);
    } else if (what == 98) {
        fixture_attach(&walk.fixture);
    } else if (roll(6) == 0) {
        close_and_open(writer);
    } else if (roll(8) == 0) {
        rp_table_reset(&walk.fixture.table, 1000 + roll(1000));
        model_reset(&model);
        memset(walk.send_sequence, 0, sizeof walk.send_sequence);
        memset(walk.send_step, 0, sizeof walk.send_step);
        memset(walk.pool, 0, sizeof walk.pool);
    }
}

static void take_walk(const char *name, const struct rp_table_config *config, uint64_t seed) {
    memset(&walk, 0, sizeof walk);
    rp_random_seed(&walk.random, seed);
    fixture_open(&walk.fixture, config, seed + 1);
    model_open(&model, config, seed + 1);
    for (uint32_t i = 0; i < config->writers_max; i++) {
        open_writer(i);
    }
    for (int i = 0; i < check_rounds(STEPS_OF_WALK); i++) {
        walk.now = i;
        step_of_walk();
        rp_table_check(&walk.fixture.table);
        const char *difference = model_differs(&model, &walk.fixture.table);
        CHECK(!difference, "walk %s, step %d: %s", name, i, difference);
    }
    const uint64_t *counters = walk.fixture.counters;
    printf("  %-7s bursts %llu, runs %llu, refused %llu, lost %llu, items %llu, evicted %llu, "
           "holes %llu, laps %llu\n",
           name, (unsigned long long)walk.bursts, (unsigned long long)walk.runs,
           (unsigned long long)walk.refused, (unsigned long long)walk.lost,
           (unsigned long long)counters[RP_COUNT_items_created],
           (unsigned long long)counters[RP_COUNT_items_evicted],
           (unsigned long long)counters[RP_COUNT_holes_overwritten],
           (unsigned long long)(model.head / config->capacity));
    fixture_close(&walk.fixture);
}

/* What must be refused, one line each: the run, the status, the counter that moves. */
static void check_refusals(const struct rp_table_config *config) {
    static const double bad[] = {-1.0, 1.0 / 0.0, 0.0 / 0.0};
    static const struct {
        struct rp_run run;
        int status;
        int counter;
    } cases[] = {
        {{0, 0, 0, 0, 0, 0, 1, 0, 0}, RP_BAD_ARGUMENT, RP_COUNT_refused_argument},
        {{0, 0, 0, 8, 1, 0, 1, 0, 32}, RP_BAD_ARGUMENT, RP_COUNT_refused_argument},
        {{0, 0, 0, 0, 1, 0, 1, 1, 32}, RP_BAD_ARGUMENT, RP_COUNT_refused_argument},
        {{0, 0, 0, RP_RUN_PRIORITY, 1, 0, 1, 0, 40}, RP_BAD_ARGUMENT, RP_COUNT_refused_argument},
        {{0, 0, 0, RP_RUN_ITEM | RP_RUN_END, 1, 0, 1, 0, 32},
         RP_BAD_ARGUMENT,
         RP_COUNT_refused_argument},
        {{0, 0, 0, 0, 1, 0, 0, 0, 32}, RP_BAD_PIECE, RP_COUNT_refused_piece},
        {{0, 0, 0, 0, 1, 1, 1, 0, 32}, RP_BAD_PIECE, RP_COUNT_refused_piece},
        {{0, 0, 0, 0, 1, 0, 5, 0, 8}, RP_BAD_PIECE, RP_COUNT_refused_piece},
        {{0, 0, 0, 0, 2, 0, 2, 0, 16}, RP_BAD_PIECE, RP_COUNT_refused_piece},
        {{0, 0, 0, 0, 1, 0, 3, 0, 16},
         RP_BAD_PIECE,
         RP_COUNT_refused_piece}, /* its third piece would be empty */
        {{0, 0, 0, 0, 1, 0, 2, 0, 24}, RP_BAD_PIECE, RP_COUNT_refused_piece},
        {{0, 0, 0, 0, 1, 0, 1, 0, 24}, RP_BAD_PIECE, RP_COUNT_refused_piece},
        {{0, 0, 2, 0, 1, 0, 1, 0, 32}, RP_BAD_STREAM, RP_COUNT_refused_stream},
        {{4, 0, 0, 0, 1, 0, 1, 0, 32}, RP_BAD_SEQUENCE, RP_COUNT_refused_sequence},
        {{3, 0, 0, 0, 2, 0, 1, 0, 64}, RP_BAD_SEQUENCE, RP_COUNT_refused_sequence},
        {{UINT64_MAX, 0, 0, 0, 1, 0, 1, 0, 32}, RP_BAD_SEQUENCE, RP_COUNT_refused_sequence},
        {{0, 16, 0, 0, 1, 0, 1, 0, 32}, RP_BAD_STEP, RP_COUNT_refused_step},
        {{0, UINT64_MAX, 0, 0, 1, 0, 1, 0, 32}, RP_BAD_STEP, RP_COUNT_refused_step},
        {{0, 0, 0, RP_RUN_ITEM | RP_RUN_PRIORITY, 1, 0, 1, 0, 40},
         RP_BAD_PRIORITY,
         RP_COUNT_refused_priority},
    };
    struct fixture t;
    struct rp_writer_granted granted;
    fixture_open(&t, config, 1);
    int writer = rp_writer_open(&t.table, 5, 2);
    rp_writer_granted(&t.table, writer, &granted);
    CHECK(granted.epoch == 1 && granted.next_sequence == 0 && granted.window == 4
          && granted.streams == 2 && granted.pieces_max == 4);
    CHECK(rp_writer_open(&t.table, 6, 2) == -RP_NO_WRITER_FREE);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t j = 0; j < 3; j++) {
            uint64_t before = t.counters[cases[i].counter];
            int status = rp_writer_check(&t.table, writer, &cases[i].run, (const uint8_t *)&bad[j]);
            CHECK(status == -cases[i].status, "case %zu: %s", i, rp_status_name(status));
            CHECK(t.counters[cases[i].counter] == before + 1, "case %zu", i);
        }
    }
    static const struct rp_create creates[] = {{.stream = 2},
                                               {.flags = 2},
                                               {.table = 1},
                                               {.priority = -1.0},
                                               {.priority = 1.0, .flags = RP_CREATE_MAXIMUM}};
    static const int statuses[] = {RP_BAD_STREAM, RP_BAD_ARGUMENT, RP_BAD_ARGUMENT, RP_BAD_PRIORITY,
                                   RP_BAD_PRIORITY};
    for (size_t i = 0; i < 5; i++) {
        CHECK(rp_writer_check_create(&t.table, writer, &creates[i]) == -statuses[i], "create %zu",
              i);
    }
    fixture_close(&t);
    check_group("what must be refused is refused, by name and counter");
}

static const struct rp_column columns[] = {{0, 8, 0}, {8, 5, 1}, {16, 16, 0}};
static const struct rp_pick row[] = {{0, 0}, {1, 0}, {2, 0}};
static const struct rp_pick whole[] = {{2, 0}, {1, 0}};
static const struct rp_pick stacked[] = {{0, -3}, {0, -2}, {0, -1}, {0, 0}, {0, 1}, {0, 2}, {0, 3},
                                         {1, -3}, {1, -1}, {1, 0},  {1, 3}, {2, 0}, {2, 1}, {2, 2}};
static const struct rp_pick sequence[] = {{0, 0}, {1, 0}, {1, 1}, {1, 2}, {1, 3},
                                          {1, 4}, {1, 5}, {2, 0}, {2, 1}, {2, 5}};
static const struct rp_plan plain_plans[] = {{"row", row, 3}, {"some", whole, 2}};
static const struct rp_plan window_plans[] = {
    {"stacked", stacked, 14}, {"sequence", sequence, 10}, {"row", row, 3}};

int main(void) {
    uint64_t seed = check_seed(20260801);
    struct rp_table_config config = {.name = "walk",
                                     .capacity = 97,
                                     .step_bytes = 32,
                                     .columns = columns,
                                     .column_count = 3,
                                     .plans = plain_plans,
                                     .plan_count = 2,
                                     .alpha = 0.6,
                                     .writers_max = 2,
                                     .streams_max = 3,
                                     .window = 3,
                                     .pieces_max = 1};
    take_walk("plain", &config, seed);
    config.capacity = 64;
    config.window = 4;
    config.writers_max = 1;
    config.pieces_max = 4;
    check_refusals(&config);
    take_walk("pieces", &config, seed + 1);
    config.plans = window_plans;
    config.plan_count = 3;
    config.capacity = 96;
    config.window = 6;
    config.alpha = 0;
    take_walk("windows", &config, seed + 2);
    config.capacity = 131;
    config.writers_max = 4;
    config.window = 2;
    config.alpha = 1;
    take_walk("crowd", &config, seed + 3);
    config.capacity = 32;
    config.writers_max = 2;
    config.window = 1;
    take_walk("tiny", &config, seed + 4);
    config.capacity = 1024;
    config.writers_max = 3;
    config.window = 21;
    take_walk("wide", &config, seed + 5);
    config.capacity = 100;
    config.window = 2;
    config.alpha = 0;
    config.fifo = 1;
    config.samples_per_insert = 1;
    config.error_max = 40;
    take_walk("queue", &config, seed + 6);
    return check_done("test_writer");
}
