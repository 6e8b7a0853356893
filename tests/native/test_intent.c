/* A process killed between any two stores leaves a table that is whole, and repeating what
 * was interrupted completes it exactly once.
 *
 * Built with -DRP_SIMULATE: every store that has to survive is a site. Each operation of a
 * random script is run once to its end; then again from the same state, killed at its first
 * site, attached, checked; at its second, and so on. After each kill:
 *     the state equals the one before, the one after, or one between two whole transactions of the
 *     operation, never one that was left already; where the operation is one or two transactions
 *     the naive model names each of these states
 *     repeating the operation gives the state that the unkilled run gave, word for word
 * A word outside the table stands for the server's record of an update's or a draw's number: it
 * rides in the same intent and decides whether they are repeated.
 */
#define MODEL_KEYS (1 << 13)
#define MODEL_SEQUENCES (1 << 12)
#include <setjmp.h>

#include "base/crc32c.h"
#include "table/store.h"
#include "table_fixture.h"

extern struct rp_site __start_rp_sites[];
extern struct rp_site __stop_rp_sites[];

static jmp_buf death;
static uint64_t hits;
static uint64_t kill_at;

void rp_site_hit(struct rp_site *site) {
    site->hits++;
    if (++hits == kill_at) {
        site->kills++;
        longjmp(death, 1);
    }
}

enum kind { RUN, CREATE, UPDATE, DRAW, OPEN, CLOSE, RESET, KINDS };
static const char *const kind_names[] = {"run",  "create", "update", "draw",
                                         "open", "close",  "reset"};

struct op {
    enum kind kind;
    uint32_t writer;
    struct run_body body;
    double priorities[8];
    struct rp_create create;
    struct rp_update_entry entries[8];
    struct rp_sample sample;
    uint64_t number; /* session, epoch, or the request's number */
};

enum { DEFERRED = 6, STATES = 64 };

static struct fixture fixture;
static struct rp_random dice;
static struct model model, reserved, after;
static struct op deferred[DEFERRED];
static int deferred_used[DEFERRED];
static uint64_t send_sequence[MODEL_WRITERS];
static uint64_t send_step[MODEL_WRITERS][MODEL_STREAMS];
static uint64_t numbers;
static uint64_t kills_of[KINDS];
static uint64_t most_states[KINDS];

static uint64_t roll(uint64_t bound) {
    return rp_random_below(&dice, bound);
}

/* ---- what a table's state is, down to the word ---- */

static uint32_t add_words(uint32_t crc, const void *words, size_t bytes) {
    return rp_crc32c(crc, words, bytes);
}

static uint32_t state_of_writer(const struct rp_table_private *p, uint32_t index, uint32_t crc) {
    const struct rp_writer *writer = rp_writer_at(p, index);
    crc = add_words(crc, &writer->session, 8);
    if (writer->session == 0) {
        return crc;
    }
    crc = add_words(crc, &writer->streams, 8);
    crc = add_words(crc, &writer->next_sequence, 8);
    crc = add_words(crc, &writer->lost_total, 8);
    crc = add_words(crc, &p->done_through[index], 8);
    for (uint64_t s = p->done_through[index]; s < writer->next_sequence; s++) {
        const struct rp_entry *entry = rp_entry_at(p, index, s);
        size_t bytes = rp_entry_known(entry) ? p->entry_words * 8 : 8;
        crc = add_words(crc, entry, bytes);
    }
    return add_words(crc, rp_stream_at(p, index, 0), writer->streams * sizeof(struct rp_stream));
}

static uint32_t state_of(const struct fixture *t) {
    const struct rp_table_header *header = t->table.header;
    const struct rp_table_private *p = t->table.private;
    uint32_t crc = add_words(0, &header->epoch,
                             offsetof(struct rp_table_header, facts)
                                 - offsetof(struct rp_table_header, epoch));
    crc = add_words(crc, p->leaves, p->capacity * 8);
    for (uint32_t slot = 0; slot < p->capacity; slot++) {
        crc = add_words(crc, &p->keys[slot], 8);
        if (rp_state_of(p->keys[slot]) == RP_SLOT_COMMITTED) {
            crc = add_words(crc, &p->slots[slot], sizeof p->slots[slot]);
            crc = add_words(crc, p->steps + slot * p->step_bytes, p->step_bytes);
        }
    }
    for (uint32_t i = 0; i < p->writers_max; i++) {
        crc = state_of_writer(p, i, crc);
    }
    return add_words(crc, t->region + t->offset - 8, 8);
}

/* ---- operations ---- */

static uint64_t *record_word(struct fixture *t) {
    return (uint64_t *)(void *)(t->region + t->offset - 8);
}

static void commit_numbered(struct fixture *t, uint64_t number) {
    rp_intent_set(&t->intent, record_word(t), number);
    rp_intent_commit(&t->intent);
    rp_table_settle(&t->table);
}

static void perform(struct fixture *t, struct op *op) {
    struct rp_run_done done;
    struct rp_updated updated;
    struct rp_batch head;
    struct rp_batch_item items[8];
    int writer = op->kind == RUN || op->kind == CREATE ? (int)op->writer : 0;
    switch (op->kind) {
    case RUN:
        if (rp_writer_check(&t->table, writer, &op->body.run, (const uint8_t *)op->body.words)
            == 0) {
            rp_writer_run(&t->table, writer, &op->body.run, (const uint8_t *)op->body.words, &done);
            rp_table_settle(&t->table);
        }
        break;
    case CREATE:
        rp_writer_create(&t->table, writer, &op->create);
        rp_table_settle(&t->table);
        break;
    case UPDATE:
        if (*record_word(t) != op->number) {
            rp_table_update(&t->table, op->entries, 8, &updated);
            commit_numbered(t, op->number);
        }
        break;
    case DRAW:
        if (*record_word(t) != op->number
            && rp_table_draw(&t->table, &op->sample, &head, items) == RP_OK) {
            commit_numbered(t, op->number);
        }
        break;
    case OPEN:
        rp_writer_open(&t->table, op->number, 3);
        break;
    case CLOSE:
        writer = rp_writer_find(&t->table, op->number);
        if (writer >= 0) {
            rp_writer_close(&t->table, writer);
        }
        break;
    default:
        if (rp_table_epoch(&t->table) != op->number) {
            rp_table_reset(&t->table, op->number);
        }
    }
}

/* The same for the models: `after` has done it, `reserved` only what a run does first. */
static void foresee(const struct op *op) {
    uint64_t keys[8];
    struct rp_updated updated;
    after = model;
    reserved = model;
    switch (op->kind) {
    case RUN:
        if (model_check(&model, op->writer, &op->body.run) == 0) {
            model_run(&after, op->writer, &op->body.run, op->priorities);
            model_reserve(&reserved, op->writer, op->body.run.sequence + op->body.run.count);
        }
        break;
    case CREATE:
        model_create(&after, op->writer, &op->create, 1);
        break;
    case UPDATE:
        model_update(&after, op->entries, 8, &updated);
        break;
    case DRAW:
        if (model_may_draw(&model, &op->sample) == RP_OK) {
            model_draw(&after, &op->sample, keys);
        }
        break;
    case OPEN:
        model_writer_open(&after, op->writer, op->number, 3);
        break;
    case CLOSE:
        model_close(&after, op->writer);
        break;
    default:
        model_reset(&after);
    }
}

/* ---- the script ---- */

static int deferrals_of(uint32_t writer, uint32_t stream) {
    int count = 0;
    for (int i = 0; i < DEFERRED; i++) {
        count += deferred_used[i] && deferred[i].writer == writer
                 && deferred[i].body.run.stream == stream;
    }
    return count;
}

static void compose_run(struct op *op, uint32_t writer) {
    struct model_writer *w = &model.writer[writer];
    uint16_t stream = (uint16_t)roll(w->streams);
    uint16_t flags = roll(5) == 0 ? RP_RUN_END : 0;
    if (model.behind + model.ahead == 0) {
        flags = roll(2) ? RP_RUN_ITEM | RP_RUN_PRIORITY : RP_RUN_ITEM;
    }
    uint16_t pieces = roll(3) == 0 && !deferred_used[1] ? 2 : 1; /* the second piece waits there */
    uint16_t count = pieces > 1 ? 1 : (uint16_t)(1 + roll(3));
    uint64_t room = w->done_through + model.config->window - send_sequence[writer];
    if (deferrals_of(writer, stream)
        == 0) { /* whatever was sent has ended: go on behind what is stored */
        send_step[writer][stream] = w->stream[stream].next_step;
    }
    if (room == 0) { /* send the oldest missing sequence under whatever step comes next */
        send_sequence[writer] = w->done_through;
        send_step[writer][stream] = w->stream[stream].next_step;
        room = 1;
    }
    count = count > room ? (uint16_t)room : count;
    op->kind = RUN;
    op->writer = writer;
    op->body.run = (struct rp_run){
        send_sequence[writer], send_step[writer][stream], stream, flags, count, 0, pieces, 0, 0};
    send_sequence[writer] = send_sequence[writer] + count > w->next_sequence
                                ? send_sequence[writer] + count
                                : w->next_sequence;
    send_step[writer][stream] += count;
    for (int i = 0; i < 8; i++) {
        op->priorities[i] = (double)roll(100) / 8;
    }
    fill_run(&model, writer, &op->body, op->priorities);
    if (pieces == 2) {
        deferred[1] = *op;
        deferred[1].body.run.piece = 1;
        deferred_used[1] = 1;
        fill_run(&model, writer, &deferred[1].body, op->priorities);
    }
}

/* A run: a new one, one held back before, or one sent again. */
static int next_run(struct op *op, uint32_t writer) {
    int i = (int)roll(DEFERRED);
    if (deferred_used[i]
        && (i > 0 || roll(40) == 0)) { /* the first one waits for long: it may lose its place */
        *op = deferred[i];
        deferred_used[i] = roll(4) == 0;
        return 1;
    }
    compose_run(op, writer);
    if (!deferred_used[i] && roll(3) == 0) {
        deferred[i] = *op;
        deferred_used[i] = 1;
        return roll(2) == 0;
    }
    return 1;
}

static void next_op(struct op *op) {
    uint32_t writer = (uint32_t)roll(model.config->writers_max);
    for (uint32_t i = model.config->writers_max; i-- > 0;) {
        /* The first free place is the next to be opened. */
        writer = model.writer[i].session == 0 ? i : writer;
    }
    struct model_writer *w = &model.writer[writer];
    uint16_t stream = (uint16_t)roll(w->streams ? w->streams : 1);
    uint64_t next = w->stream[stream].next_step;
    uint64_t what = roll(100);
    memset(op, 0, sizeof *op);
    op->number = ++numbers;
    op->writer = writer;
    if (w->session == 0) {
        op->kind = OPEN;
        memset(send_step[writer], 0, sizeof send_step[writer]);
        send_sequence[writer] = 0;
    } else if (what < 74) {
        while (!next_run(op, writer)) {
        }
        op->number = numbers;
    } else if (what < 91) {
        uint64_t back = model.ahead + 1 + roll(3);
        op->kind = CREATE;
        op->create = (struct rp_create){.step = next > back ? next - back : 0,
                                        .stream = stream,
                                        .priority = (double)roll(50) / 4};
        op->writer = writer;
    } else if (what < 95) {
        op->kind = UPDATE;
        for (int i = 0; i < 8; i++) {
            op->entries[i] = (struct rp_update_entry){model.head - 1 - roll(model.config->capacity),
                                                      (double)roll(50) / 4};
        }
    } else if (what < 99) {
        op->kind = DRAW;
        op->sample = (struct rp_sample){.count = model.config->fifo ? 2 : 8,
                                        .mode = (uint8_t)roll(2)};
    } else if (roll(4) > 0) {
        op->kind = CLOSE;
        op->number = w->session;
        memset(deferred_used, 0, sizeof deferred_used);
    } else {
        op->kind = RESET;
        memset(deferred_used, 0, sizeof deferred_used);
        memset(send_step, 0, sizeof send_step);
        memset(send_sequence, 0, sizeof send_sequence);
    }
}

/* ---- killing ---- */

static void attach_and_check(int again) {
    if (again && setjmp(death) == 0) { /* the attach itself dies first */
        hits = 0;
        kill_at = 1 + roll(40);
        fixture_attach(&fixture);
    }
    kill_at = 0;
    fixture_attach(&fixture);
    rp_table_check(&fixture.table);
}

static int in_models(void) {
    return !model_differs(&model, &fixture.table) || !model_differs(&reserved, &fixture.table)
           || !model_differs(&after, &fixture.table);
}

/* The walk through all kills of one operation: states it showed, in order. */
struct seen {
    uint32_t states[STATES];
    int count;
    int strangers; /* states that no model names */
};

static void note_state(struct seen *seen, uint32_t state, const struct op *op, uint64_t k) {
    if (seen->count > 0 && seen->states[seen->count - 1] == state) {
        return;
    }
    for (int i = 0; i < seen->count; i++) {
        CHECK(seen->states[i] != state, "%s killed at %llu: back in an earlier state",
              kind_names[op->kind], (unsigned long long)k);
    }
    CHECK(seen->count < STATES);
    seen->states[seen->count++] = state;
    seen->strangers += !in_models();
}

static void kill_once(struct op *op, const uint8_t *before, const struct fixture *handle,
                      uint64_t k, struct seen *seen, uint32_t goal) {
    memcpy(fixture.region + fixture.offset - 8, before, fixture.bytes - fixture.offset + 8);
    fixture.table = handle->table;
    fixture.intent = handle->intent;
    memset(fixture.region, 0, 16);
    hits = 0;
    kill_at = k;
    if (setjmp(death) == 0) {
        perform(&fixture, op);
        CHECK(0, "%s: site %llu was not reached again", kind_names[op->kind],
              (unsigned long long)k);
    }
    kills_of[op->kind]++;
    attach_and_check(roll(8) == 0);
    note_state(seen, state_of(&fixture), op, k);
    hits = 0;
    perform(&fixture, op);
    rp_table_check(&fixture.table);
    CHECK(state_of(&fixture) == goal,
          "%s killed at %llu and repeated: not the state of one unkilled run", kind_names[op->kind],
          (unsigned long long)k);
}

/* A run that is one reservation and one commit. */
static int in_order(const struct op *op) {
    const struct model_writer *w = &model.writer[op->writer];
    const struct rp_run *run = &op->body.run;
    for (uint64_t q = w->done_through; q < w->next_sequence; q++) {
        if (model_known(&w->sequence[q], run->stream)) {
            return 0;
        }
    }
    return run->sequence >= w->next_sequence && run->piece_count == 1
           && run->step == w->stream[run->stream].next_step;
}

static void kill_everywhere(struct op *op, uint8_t *before, uint8_t *done, uint64_t kills_max) {
    struct fixture handle = fixture;
    size_t bytes = fixture.bytes - fixture.offset + 8;
    uint8_t *table = fixture.region + fixture.offset - 8;
    struct seen seen = {{state_of(&fixture)}, 1, 0};
    int simple = op->kind == RUN ? in_order(op) : op->kind != CLOSE;
    memcpy(before, table, bytes);
    foresee(op);
    hits = 0;
    kill_at = 0;
    perform(&fixture, op);
    uint64_t sites = hits;
    uint32_t goal = state_of(&fixture);
    const char *difference = model_differs(&after, &fixture.table);
    CHECK(!difference, "%s, unkilled: %s", kind_names[op->kind], difference);
    memcpy(done, table, bytes);
    struct fixture handle_done = fixture;
    for (uint64_t k = 1; k <= sites; k++) {
        if (sites <= kills_max || roll(sites) < kills_max) {
            kill_once(op, before, &handle, k, &seen, goal);
        }
    }
    most_states[op->kind] = (uint64_t)seen.count > most_states[op->kind] ? (uint64_t)seen.count
                                                                         : most_states[op->kind];
    CHECK(op->kind == RUN || op->kind == CLOSE || seen.count <= 2, "%s showed %d states",
          kind_names[op->kind], seen.count);
    CHECK(!simple || (seen.count <= 3 && seen.strangers == 0), "%s: a state no model names",
          kind_names[op->kind]);
    memcpy(table, done, bytes);
    fixture = handle_done;
    memset(fixture.region, 0, 16);
    model = after;
}

static void take_script(const struct rp_table_config *config, uint64_t seed, int ops,
                        uint64_t kills_max) {
    rp_random_seed(&dice, seed);
    fixture_open(&fixture, config, seed);
    model_open(&model, config, seed);
    memset(deferred_used, 0, sizeof deferred_used);
    uint8_t *before = malloc(fixture.bytes);
    uint8_t *done = malloc(fixture.bytes);
    CHECK(before && done);
    for (int i = 0; i < ops; i++) {
        struct op op;
        next_op(&op);
        kill_everywhere(&op, before, done, kills_max);
    }
    printf("  %d operations, %llu laps, %llu items evicted, %llu steps lost\n", ops,
           (unsigned long long)(model.head / config->capacity),
           (unsigned long long)fixture.counters[RP_COUNT_items_evicted],
           (unsigned long long)fixture.counters[RP_COUNT_steps_lost_place]);
    free(before);
    free(done);
    fixture_close(&fixture);
}

static void print_sites(void) {
    static const char *const files[] = {"intent.c", "store.c",  "table.c",
                                        "writer.c", "anchor.c", "draw.c"};
    unsigned all = 0;
    unsigned hit = 0;
    unsigned killed = 0;
    for (const struct rp_site *site = __start_rp_sites; site < __stop_rp_sites; site++) {
        const char *name = strrchr(site->file, '/');
        int of_table = 0;
        for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
            of_table |= name && strcmp(name + 1, files[i]) == 0;
        }
        all += (unsigned)of_table;
        hit += of_table && site->hits > 0;
        killed += of_table && site->kills > 0;
        if (of_table && site->kills == 0 && getenv("RP_TEST_VERBOSE")) {
            printf("    never killed at %s:%d\n", name ? name + 1 : site->file, site->line);
        }
    }
    printf("  sites: %u, hit %u, killed at %u\n", all, hit, killed);
    for (int kind = 0; kind < KINDS; kind++) {
        printf("  %-7s kills %llu, most states shown %llu\n", kind_names[kind],
               (unsigned long long)kills_of[kind], (unsigned long long)most_states[kind]);
    }
}

/* Given a log that no commit could have written, expect recovery to refuse it and to touch nothing.
 */
static void check_damaged_log(void) {
    static uint64_t region[8 + sizeof(struct rp_intent_log) / 8];
    struct rp_intent intent;
    struct rp_intent_log *log = (struct rp_intent_log *)(void *)&region[8];
    rp_intent_open(&intent, region, sizeof region, log);
    CHECK(rp_intent_recover(&intent) == 0 && rp_intent_room(&intent) == RP_INTENT_WORDS);
    static const uint64_t damaged[][3] = {
        {2, 1, 0}, {1, RP_INTENT_WORDS + 1, 0}, {1, 1, 4}, {1, 1, sizeof region},
        {1, 1, 64}, {1, 1, sizeof region - 8}};
    for (int i = 0; i < 6; i++) {
        log->committed = damaged[i][0];
        log->count = damaged[i][1];
        log->after[0] = (struct rp_after){damaged[i][2], 77};
        CHECK(rp_intent_recover(&intent) == -RP_BAD_REGION && region[0] == 0, "case %d", i);
    }
    log->committed = log->count = 1;
    log->after[0] = (struct rp_after){0, 77};
    CHECK(rp_intent_recover(&intent) == 1 && region[0] == 77 && log->committed == 0);
    check_group("a damaged log is refused, a committed one redone");
}

/* Given a run so far ahead that reserving up to it takes several transactions, killed between them,
 * expect the attach to reserve the rest, so that no other writer's key comes between. */
static void check_long_reservation(const struct rp_table_config *small) {
    struct rp_table_config config = *small;
    struct op op = {
        .kind = RUN,
        .body = {
            .run = {.sequence = 8000, .step = 8000, .count = 1, .piece_count = 1, .size = 16}}};
    config.window = 8192;
    config.capacity = 16 * 8192;
    config.writers_max = 1;
    fixture_open(&fixture, &config, 1);
    CHECK(rp_writer_open(&fixture.table, 7, 1) == 0);
    uint8_t *before = malloc(fixture.bytes);
    CHECK(before);
    memcpy(before, fixture.region, fixture.bytes);
    struct fixture handle = fixture;
    hits = 0;
    kill_at = 0;
    perform(&fixture, &op);
    uint64_t sites = hits;
    uint32_t goal = state_of(&fixture);
    struct rp_table_info info;
    for (int i = 0; i < 12; i++) {
        memcpy(fixture.region, before, handle.bytes);
        fixture = handle;
        hits = 0;
        kill_at = 1 + (uint64_t)i * (sites - 1) / 11;
        if (setjmp(death) == 0) {
            perform(&fixture, &op);
            CHECK(0, "not killed");
        }
        attach_and_check(0);
        rp_table_info(&fixture.table, &info);
        CHECK(info.head == config.capacity || info.head == config.capacity + 8001,
              "reserved in part: head %llu", (unsigned long long)info.head);
        perform(&fixture, &op);
        CHECK(state_of(&fixture) == goal);
    }
    free(before);
    fixture_close(&fixture);
    check_group(
        "a reservation of several transactions, killed between them, is ended by the attach");
}

static const struct rp_column columns[] = {{0, 8, 0}, {8, 5, 1}};
static const struct rp_pick row[] = {{0, 0}, {1, 0}};
static const struct rp_pick stacked[] = {{0, -2}, {0, -1}, {0, 0}, {0, 1}, {0, 2}, {1, -1}, {1, 0}};
static const struct rp_plan plain_plan[] = {{"row", row, 2}};
static const struct rp_plan window_plan[] = {{"stacked", stacked, 7}};

int main(void) {
    uint64_t seed = check_seed(411);
    struct rp_table_config config = {.name = "killed",
                                     .capacity = 48,
                                     .step_bytes = 16,
                                     .columns = columns,
                                     .column_count = 2,
                                     .plans = plain_plan,
                                     .plan_count = 1,
                                     .alpha = 0.6,
                                     .writers_max = 1,
                                     .streams_max = 3,
                                     .window = 3,
                                     .pieces_max = 2};
    check_damaged_log();
    take_script(&config, seed, 400, UINT64_MAX);
    config.plans = window_plan;
    take_script(&config, seed + 1, 400, UINT64_MAX);
    check_group("killed at every site of two short scripts");
    config.capacity = 33;
    config.writers_max = 2;
    config.window = 1;
    take_script(&config, seed + 2, check_rounds(2000), 6);
    config.capacity = 96;
    config.window = 3;
    take_script(&config, seed + 3, check_rounds(2000), 6);
    config.alpha = 0;
    config.fifo = 1;
    config.samples_per_insert = 1;
    config.error_max = 40;
    take_script(&config, seed + 4, check_rounds(2000), 6);
    check_group("killed here and there in three long scripts, one of a queue");
    check_long_reservation(&config);
    print_sites();
    return check_done("test_intent");
}
