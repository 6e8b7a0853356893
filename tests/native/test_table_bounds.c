/* A table's bounds are where store.h and table.h have them, and what is cleared, kept or lost
 * of one writer is nobody else's. Small tables whose words are looked at one by one.
 */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "table/store.h"
#define MODEL_KEYS 1
#define MODEL_SEQUENCES 1
#include "table_fixture.h"

enum { WINDOW = 64, STEP = 8 };

static const struct rp_column columns[] = {{0, 8, 0}};
static const struct rp_pick row[] = {{0, 0}};
static const struct rp_plan row_plan[] = {{"row", row, 1}};
static struct fixture t;
static struct rp_table_private *p;
static uint64_t bytes[512];

static struct rp_table_config config_of(uint32_t capacity) {
    return (struct rp_table_config){
        .name = "bounds", .capacity = capacity, .step_bytes = STEP, .columns = columns,
        .column_count = 1, .plans = row_plan, .plan_count = 1, .alpha = 0.5, .writers_max = 2,
        .streams_max = 3, .window = WINDOW, .pieces_max = 1};
}

static void open_table(uint32_t capacity) {
    struct rp_table_config config = config_of(capacity);
    fixture_open(&t, &config, 1);
    p = t.table.private;
    CHECK(rp_writer_open(&t.table, 5, 3) == 0 && rp_writer_open(&t.table, 6, 2) == 1);
}

static struct rp_run_done send_run(int writer, uint64_t sequence, uint64_t step, uint16_t stream,
                                   uint16_t count) {
    struct rp_run_done done;
    struct rp_run run = {.sequence = sequence, .step = step, .stream = stream, .count = count,
                         .piece_count = 1, .size = count * STEP};
    int status = rp_writer_check(&t.table, writer, &run, (const uint8_t *)bytes);
    CHECK(status == 0, "%s", rp_status_name(status));
    rp_writer_run(&t.table, writer, &run, (const uint8_t *)bytes, &done);
    rp_table_settle(&t.table);
    rp_table_check(&t.table);
    return done;
}

static uint32_t state_at(uint32_t writer, uint64_t sequence) {
    return rp_state_of(rp_entry_at(p, writer, sequence)->key);
}

/* How a child ends that makes a table in memory of which one part is 8 bytes off its place. */
static int signal_of(uint32_t part) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        struct rp_table_config config = config_of(1024);
        struct rp_table_memory memory = fixture_memory(&t);
        uint8_t **parts[] = {(uint8_t **)&memory.state, (uint8_t **)&memory.keys,
                             (uint8_t **)&memory.steps, (uint8_t **)&memory.local};
        char text[256];
        setrlimit(RLIMIT_CORE, &none);
        fclose(stderr);
        *parts[part] += 8;
        (void)rp_table_create(&t.table, &memory, &config, 3, 1, 1, 1, 1, &t.intent, t.counters,
                              text);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void alignment(void) {
    open_table(2048); /* room for what is 8 bytes off */
    for (uint32_t part = 0; part < 4; part++) {
        CHECK(signal_of(part) == SIGABRT, "part %u may lie anywhere", part);
    }
    fixture_close(&t);
    check_group("each of a table's four parts begins a line of memory");
}

/* Given writers with steps of theirs, and one that closes, and another in its place. Expect its
 * words to be zeros, and the other's what they were. */
static void cleared(void) {
    static uint64_t zeros[WINDOW * 16], other[4096];
    open_table(2048);
    size_t writer_bytes = p->writer_bytes;
    CHECK(writer_bytes <= sizeof other);
    for (int round = 0; round < 2; round++) {
        uint64_t many = round ? WINDOW : 3;
        for (uint64_t i = 0; i < many; i++) {
            send_run(0, i, i, 0, 1);
        }
        send_run(1, 0, 0, 1, 1);
        memcpy(other, rp_writer_at(p, 1), writer_bytes);
        rp_writer_close(&t.table, 0);
        CHECK(rp_writer_open(&t.table, 7, 3) == 0);
        CHECK(memcmp(rp_entry_at(p, 0, 0), zeros, WINDOW * 8 * p->entry_words) == 0);
        CHECK(memcmp(rp_stream_at(p, 0, 0), zeros, 3 * sizeof(struct rp_stream)) == 0);
        CHECK(rp_writer_at(p, 0)->next_sequence == 0 && rp_writer_at(p, 0)->lost_total == 0);
        CHECK(memcmp(other, rp_writer_at(p, 1), writer_bytes) == 0);
        rp_writer_close(&t.table, 1);
        CHECK(rp_writer_open(&t.table, 6, 2) == 1);
    }
    fixture_close(&t);
    check_group("a writer that closes leaves zeros, and the others as they were");
}

/* Given a reset that another process began and did not end. Expect every writer's steps gone and
 * every writer there, with nothing behind the last one touched. */
static void reset_finished(void) {
    open_table(2048);
    for (uint64_t i = 0; i < WINDOW + 9; i++) {
        send_run(0, i, i, 0, 1);
        send_run(1, i, i, 1, 1);
    }
    uint8_t *end = (uint8_t *)rp_writer_at(p, 1) + p->writer_bytes;
    struct rp_table_memory memory = fixture_memory(&t);
    size_t behind = (size_t)((uint8_t *)memory.state + t.sizes.state - end);
    uint8_t *kept = malloc(behind + 1);
    CHECK(end <= (uint8_t *)memory.state + t.sizes.state && kept);
    memcpy(kept, end, behind);
    t.table.header->resetting = 77;
    t.table.header->resetting_not = ~(uint64_t)77;
    fixture_attach(&t);
    p = t.table.private;
    CHECK(rp_table_epoch(&t.table) == 77);
    CHECK(memcmp(kept, (uint8_t *)rp_writer_at(p, 1) + p->writer_bytes, behind) == 0);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(rp_writer_session(&t.table, i) == 5 + i && rp_writer_at(p, i)->streams == 3 - i);
        CHECK(rp_writer_next(&t.table, (int)i) == 0);
        send_run((int)i, 0, 0, 0, 1);
    }
    free(kept);
    fixture_close(&t);
    check_group("a reset that another process began is ended for all its writers");
}

/* Given more rows than the list of leaves that wait has groups for, and a reset. Expect no row. */
static void large_reset(void) {
    enum { ROWS = 2 * (RP_DIRTY_MAX + RP_INTENT_WORDS) / 1024 * 1024 * RP_TREE_FANOUT };
    struct rp_table_info info;
    struct rp_table_config config = config_of(ROWS);
    config.window = ROWS / 32;
    fixture_open(&t, &config, 1);
    p = t.table.private;
    CHECK(rp_writer_open(&t.table, 5, 1) == 0);
    for (uint64_t step = 0; step < ROWS; step += 256) {
        struct rp_run run = {.sequence = step, .step = step, .count = 256, .piece_count = 1,
                             .flags = RP_RUN_ITEM, .size = 256 * STEP};
        struct rp_run_done done;
        CHECK(rp_writer_check(&t.table, 0, &run, (const uint8_t *)bytes) == 0);
        rp_writer_run(&t.table, 0, &run, (const uint8_t *)bytes, &done);
        rp_table_settle(&t.table);
    }
    rp_table_info(&t.table, &info);
    CHECK(info.count == ROWS);
    p->slots_drawn[0] = 12345; /* behind that list */
    rp_table_reset(&t.table, 9);
    CHECK(p->slots_drawn[0] == 12345, "the list has no more places");
    rp_table_info(&t.table, &info);
    CHECK(info.count == 0 && info.epoch == 9);
    rp_table_check(&t.table);
    fixture_close(&t);
    check_group("a reset of many rows");
}

/* Given a run over sequences of which the second is another stream's, stored already. Expect the
 * first stored, the second left as it was. */
static void run_over_stored(void) {
    open_table(2048);
    send_run(0, 0, 0, 0, 1);
    send_run(0, 2, 0, 1, 1);
    uint64_t key = rp_entry_at(p, 0, 2)->key, repeated = t.counters[RP_COUNT_pushes_repeated];
    CHECK(state_at(0, 2) == RP_ENTRY_COMMITTED);
    send_run(0, 1, 1, 0, 2);
    CHECK(rp_stream_at(p, 0, 0)->next_step == 2 && rp_entry_at(p, 0, 2)->key == key);
    CHECK(t.counters[RP_COUNT_pushes_repeated] == repeated + 1);
    fixture_close(&t);
    check_group("a sequence that is stored is not stored again");
}

/* Given sequences whose places another writer's steps took. Expect the stream that the entry knows,
 * or that the run names where it knows none, to be told: what it reserved so far is nothing. */
static void place_lost(void) {
    for (int known = 0; known < 2; known++) {
        enum { LOST = 1 }; /* behind one that has not arrived */
        open_table(2048);
        if (known) {
            send_run(0, LOST, 1, 2, 1); /* waits for the step before it */
        }
        send_run(0, LOST + 1, 0, 1, 1);
        CHECK(state_at(0, LOST) == (known ? RP_ENTRY_COMPLETE : RP_ENTRY_EMPTY));
        p->head += p->capacity; /* as if so many were reserved meanwhile */
        struct rp_run run = {.sequence = LOST, .stream = known ? 0 : 2, .count = 1,
                             .piece_count = 1, .size = STEP};
        struct rp_run_done done;
        rp_writer_run(&t.table, 0, &run, (const uint8_t *)bytes, &done);
        CHECK(state_at(0, LOST) == RP_ENTRY_LOST);
        for (uint32_t i = 0; i < 3; i++) {
            CHECK(rp_stream_at(p, 0, i)->abandoned == (i == 2 ? LOST + 2 : 0), "stream %u", i);
        }
        fixture_close(&t);
    }
    check_group("a place that is lost is its own stream's");
}

/* Given a writer with so many holes, arrivals and bare places. Expect it to be far ahead from one
 * more on, and not before. */
static void far(void) {
    open_table(2048);
    struct rp_writer *w = rp_writer_at(p, 0);
    for (uint64_t arrived = 0; arrived < 30; arrived += 7) {
        for (uint64_t holes = 0; holes < 3; holes++) {
            uint64_t most = arrived + WINDOW / 16 + 4 - holes;
            w->next_sequence = arrived + holes;
            p->holes[0] = holes;
            CHECK(!rp_writer_far(&t.table, 0, most) && rp_writer_far(&t.table, 0, most + 1),
                  "%" PRIu64 " arrived, %" PRIu64 " holes", arrived, holes);
        }
    }
    w->next_sequence = 1 << 20;
    p->holes[0] = 0;
    p->bare = 100;
    uint64_t most = 2048 / 8 - 100;
    CHECK(!rp_writer_far(&t.table, 0, most) && rp_writer_far(&t.table, 0, most + 1));
    p->bare = 0;
    p->reach_behind = 1023; /* each hole may cost so much */
    CHECK(!rp_writer_far(&t.table, 0, 64) && rp_writer_far(&t.table, 0, 65));
    fixture_close(&t);
    check_group("how far ahead a writer may reserve");
}

/* Given steps of several streams and writers. Expect each stream's skips noted as its own. */
static void skips(void) {
    open_table(2048);
    for (uint32_t writer = 0; writer < 2; writer++) {
        for (uint32_t stream = 0; stream < 3; stream++) {
            for (uint32_t w = 0; w < 2; w++) {
                for (uint32_t s = 0; s < 3; s++) {
                    rp_hint_at(p, w, s)->block = 0;
                }
            }
            rp_skip_note(p, writer, stream, RP_SKIP_BLOCK, p->capacity + 7);
            for (uint32_t w = 0; w < 2; w++) {
                for (uint32_t s = 0; s < 3; s++) {
                    uint64_t wanted = w == writer && s == stream ? p->capacity + 7 : 0;
                    CHECK(rp_hint_at(p, w, s)->block == wanted, "of %u, %u: %u, %u", writer, stream,
                          w, s);
                }
            }
        }
    }
    fixture_close(&t);
    open_table(2048);
    for (uint64_t i = 0; i < 200; i++) {
        send_run(0, 2 * i, i, 0, 1);
        send_run(0, 2 * i + 1, i, 2, 1);
    }
    uint64_t blocks[3];
    for (uint32_t s = 0; s < 3; s++) {
        blocks[s] = rp_hint_at(p, 0, s)->block;
        CHECK((blocks[s] != 0) == (s != 1));
    }
    fixture_attach(&t);
    p = t.table.private;
    for (uint32_t s = 0; s < 3; s++) {
        CHECK(rp_hint_at(p, 0, s)->block == blocks[s], "stream %u after an attach", s);
    }
    fixture_close(&t);
    check_group("skips are a stream's own, and derived for each");
}

/* Given a ring that goes round, of streams that take turns with runs and episodes of any size, and
 * windows that reach far back, all of them items. Expect each withdrawn as the first of its rows is
 * overwritten, and not before; and a few links followed for each step, not the whole reach. */
static void followers(uint32_t streams, uint32_t reach, uint32_t longest) {
    enum { CAPACITY = 2048, STEPS = 5 * CAPACITY };
    const struct rp_pick far_back[] = {{0, 0}, {0, (int16_t)-reach}};
    const struct rp_plan plan[] = {{"far back", far_back, 2}};
    struct rp_table_config config = config_of(CAPACITY);
    struct rp_random random;
    uint64_t next[3] = {0}, sequence = 0, links = 0;
    config.plans = plan;
    fixture_open(&t, &config, 1);
    p = t.table.private;
    rp_random_seed(&random, 7);
    CHECK(rp_writer_open(&t.table, 5, 3) == 0);
    while (sequence < STEPS) {
        uint16_t stream = (uint16_t)rp_random_below(&random, streams);
        uint16_t count = (uint16_t)(1 + rp_random_below(&random, 16));
        uint64_t before = p->work_total;
        struct rp_run_done done;
        struct rp_run run = {.sequence = sequence, .step = next[stream], .stream = stream,
                             .count = count, .piece_count = 1, .size = count * STEP};
        run.flags = rp_random_below(&random, longest) < 16 ? RP_RUN_END : 0;
        CHECK(rp_writer_check(&t.table, 0, &run, (const uint8_t *)bytes) == 0);
        rp_writer_run(&t.table, 0, &run, (const uint8_t *)bytes, &done);
        links += p->work_total - before;
        for (uint64_t i = 0; i < count; i++) {
            struct rp_create create = {.step = next[stream] + i, .stream = stream};
            rp_writer_create(&t.table, 0, &create);
        }
        rp_table_settle(&t.table);
        rp_table_check(&t.table);
        next[stream] += count;
        sequence += count;
    }
    CHECK(t.counters[RP_COUNT_items_evicted] > CAPACITY, "%" PRIu64 " withdrawn",
          t.counters[RP_COUNT_items_evicted]);
    CHECK(4 * links < 5 * STEPS, "%" PRIu64 " links for %d steps", links, STEPS);
    fixture_close(&t);
}

int main(void) {
    alignment();
    cleared();
    reset_finished();
    large_reset();
    run_over_stored();
    place_lost();
    far();
    skips();
    followers(1, 100, 1 << 20);
    followers(3, 100, 1 << 20);
    followers(3, 100, 300);
    followers(3, 1, 300);
    followers(3, 5, 40);
    check_group("what reaches back to an overwritten row is found in a step or two");
    return check_done("test_table_bounds");
}
