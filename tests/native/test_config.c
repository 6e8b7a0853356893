/* Each number of a configuration is taken from the least to the most it may be, and refused
 * beyond, in the sentence that says so; what lies in a region's files is laid out as ever.
 */
#include "protocol/compare.h"
#include "script.h"
#include "server/server_state.h"
#include "table/store.h"

#include <math.h>

static struct rp_table_config tables[2];
static struct rp_server_config config;

static void fresh(void) {
    script_tables(tables);
    config = script_config(tables);
}

/* ---- the server ---- */

static void asked(int line, const char *refused) {
    char error[256] = "of something before";
    struct rp_region region;
    int status = rp_region_layout(&config, &region, error);
    CHECK(status == (refused ? -RP_BAD_ARGUMENT : 0) && strcmp(error, refused ? refused : "") == 0,
          "line %d: %d \"%s\"", line, status, error);
    fresh();
}

#define TAKEN asked(__LINE__, NULL)
#define REFUSED(sentence) asked(__LINE__, sentence)

/* Given each of its numbers at its bounds and one beyond. */
static void server_numbers(void) {
    struct number {
        uint32_t *word;
        uint64_t least, most;
        const char *sentence; /* with the value and the bounds */
    } numbers[] = {
        {&config.batch_max, 1, RP_BATCH_MAX,
         "batch_max is %llu, but must lie between %llu and %llu"},
        {&config.records, 1, RP_RECORDS_MAX, "records is %llu, but must lie between %llu and %llu"},
        {&config.mtu, RP_MTU_MIN, RP_MTU_MAX, "mtu is %llu, but must lie between %llu and %llu"},
        {&config.idle_ms, 1, UINT32_MAX, "idle_ms is %llu, but must lie between %llu and %llu"},
        {&config.lapse_ms, 1, UINT32_MAX / 1000,
         "lapse_ms is %llu, but must lie between %llu and %llu"},
        {&config.receive_budget, 4, 1 << 24,
         "receive_budget is %llu, but must lie between %llu (one datagram a session) and %llu"},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct number *n = &numbers[i];
        uint64_t values[] = {n->least, n->most, n->least - 1, n->most + 1};
        for (uint32_t j = 0; j < 4; j++) {
            char said[256];
            snprintf(said, sizeof said, n->sentence, (unsigned long long)values[j],
                     (unsigned long long)n->least, (unsigned long long)n->most);
            if (values[j] <= UINT32_MAX) {
                fresh();
                *n->word = (uint32_t)values[j];
                asked((int)i, j < 2 ? NULL : said);
            }
        }
    }
    config.sessions_max = 1;
    TAKEN;
    config.sessions_max = config.receive_budget = RP_SESSIONS_MAX;
    TAKEN;
    config.sessions_max = 0;
    REFUSED("sessions_max is 0, but must lie between 1 and 4096");
    config.sessions_max = RP_SESSIONS_MAX + 1;
    REFUSED("sessions_max is 4097, but must lie between 1 and 4096");
    config.weights_max = 0;
    TAKEN;
    config.weights_max = RP_BLOB_BYTES_MAX;
    TAKEN;
    config.weights_max = (uint64_t)RP_BLOB_BYTES_MAX + 1;
    REFUSED("weights_max is 1073741825, but must lie between 0 and 1073741824");
    config.mtu = 1404;
    REFUSED("mtu is 1404, but must be a multiple of 8");
    config.table_count = 0;
    REFUSED("table_count is 0, but must lie between 1 and 16");
    config.table_count = 17;
    REFUSED("table_count is 17, but must lie between 1 and 16");
    check_group("the server's numbers");
}

static void names(void) {
    memset(tables[1].name, 'n', RP_NAME_BYTES - 1);
    tables[1].name[RP_NAME_BYTES - 1] = 0;
    TAKEN;
    memset(tables[1].name, 'n', RP_NAME_BYTES);
    REFUSED("table 1 needs a name of 1 to 31 bytes");
    tables[0].name[0] = 0;
    REFUSED("table 0 needs a name of 1 to 31 bytes");
    memcpy(tables[1].name, "main", 5);
    REFUSED("tables 0 and 1 are both named \"main\"");
    check_group("tables' names");
}

/* ---- a table ---- */

static struct rp_column columns[RP_COLUMNS_MAX + 1];
static struct rp_pick picks[RP_PICKS_MAX + 1];
static struct rp_plan plans[RP_PLANS_MAX + 1];

/* One whose columns, picks and plans may be written to. */
static struct rp_table_config *loose(void) {
    struct rp_table_config *table = &tables[0];
    fresh();
    memset(columns, 0, sizeof columns);
    for (uint32_t i = 0; i <= RP_COLUMNS_MAX; i++) {
        columns[i] = (struct rp_column){.offset = 8 * i, .size = 8};
    }
    memset(picks, 0, sizeof picks);
    for (uint32_t i = 0; i <= RP_PLANS_MAX; i++) {
        plans[i] = (struct rp_plan){.picks = picks, .pick_count = 1};
        snprintf(plans[i].name, sizeof plans[i].name, "p%u", i);
    }
    table->columns = columns;
    table->plans = plans;
    table->plan_count = 1;
    return table;
}

static void table_columns(void) {
    struct rp_table_config *t = loose();
    t->column_count = RP_COLUMNS_MAX;
    t->step_bytes = 8 * RP_COLUMNS_MAX;
    TAKEN;
    t = loose();
    t->column_count = RP_COLUMNS_MAX + 1;
    t->step_bytes = 8 * RP_COLUMNS_MAX + 8;
    REFUSED("table main: 65 columns, expected 1 to 64");
    loose()->column_count = 0;
    REFUSED("table main: 0 columns, expected 1 to 64");
    loose();
    columns[1].size = 0;
    REFUSED("table main: column 1 covers bytes 8 to 8 of a step of 16 bytes");
    loose();
    columns[1].size = 9;
    REFUSED("table main: column 1 covers bytes 8 to 17 of a step of 16 bytes");
    loose();
    columns[0].size = 9;
    REFUSED("table main: columns 0 and 1 overlap");
    loose();
    columns[0].offset = 8;
    columns[1].offset = 0;
    TAKEN;
    loose();
    columns[0].offset = 8;
    columns[1] = (struct rp_column){.offset = 0, .size = 9};
    REFUSED("table main: columns 0 and 1 overlap");
    check_group("a table's columns");
}

static void table_plans(void) {
    loose()->plan_count = RP_PLANS_MAX;
    TAKEN;
    loose()->plan_count = RP_PLANS_MAX + 1;
    REFUSED("table main: 9 plans, expected 1 to 8");
    loose()->plan_count = 0;
    REFUSED("table main: 0 plans, expected 1 to 8");
    loose();
    plans[0].name[0] = 0;
    REFUSED("a plan: a name has 1 to 31 bytes");
    loose();
    plans[0].pick_count = RP_PICKS_MAX;
    TAKEN;
    loose();
    plans[0].pick_count = RP_PICKS_MAX + 1;
    REFUSED("plan p0: 4097 picks, expected 1 to 4096");
    loose();
    plans[0].pick_count = 0;
    REFUSED("plan p0: 0 picks, expected 1 to 4096");
    loose();
    picks[0].column = 2;
    REFUSED("plan p0: pick 0 names column 2 of 2");
    for (int sign = -1; sign <= 1; sign += 2) {
        loose()->capacity = 2048;
        picks[0].offset = (int16_t)(sign * RP_REACH_MAX);
        TAKEN;
        loose()->capacity = 2048;
        picks[0].offset = (int16_t)(sign * (RP_REACH_MAX + 1));
        REFUSED(sign < 0 ? "plan p0: pick 0 reaches -1025 steps, the limit is 1024"
                         : "plan p0: pick 0 reaches 1025 steps, the limit is 1024");
    }
    struct rp_table_config *t = loose(); /* items of 2^30 bytes, and of 2^30 + 2^18 */
    t->step_bytes = columns[0].size = 1 << 18;
    t->column_count = 1;
    plans[0].pick_count = 1 << 12;
    TAKEN;
    t = loose();
    t->step_bytes = columns[0].size = (1 << 18) + 8;
    t->column_count = 1;
    plans[0].pick_count = 1 << 12;
    REFUSED("plan p0: an item of 1073774592 bytes");
    check_group("its plans");
}

static void table_limits(void) {
    struct limit {
        uint32_t *word;
        uint32_t most;
        const char *few, *many;
    } limits[] = {
        {&tables[0].streams_max, RP_STREAMS_MAX, "table main: 0 streams, expected 1 to 4096",
         "table main: 4097 streams, expected 1 to 4096"},
        {&tables[0].window, RP_WINDOW_MAX, "table main: a window of 0, expected 1 to 65536",
         "table main: a window of 65537, expected 1 to 65536"},
        {&tables[0].writers_max, RP_SESSIONS_MAX, "table main: 0 writers, expected 1 to 4096",
         "table main: 4097 writers, expected 1 to 4096"},
        {&tables[0].pieces_max, RP_PIECES_MAX, "table main: 0 pieces, expected 1 to 16384",
         "table main: 16385 pieces, expected 1 to 16384"},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        for (uint32_t j = 0; j < 4; j++) {
            loose()->capacity = 1 << 22;
            uint32_t most = limits[i].most;
            *limits[i].word = j == 0 ? 1 : j == 1 ? most : j == 2 ? 0 : most + 1;
            asked((int)i, j < 2 ? NULL : j == 2 ? limits[i].few : limits[i].many);
        }
    }
    loose()->step_bytes = 0;
    REFUSED("table main: a step of 0 bytes, expected a multiple of 8 up to 4194304");
    loose()->step_bytes = 20;
    REFUSED("table main: a step of 20 bytes, expected a multiple of 8 up to 4194304");
    loose()->step_bytes = RP_STEP_BYTES_MAX;
    TAKEN;
    loose()->step_bytes = RP_STEP_BYTES_MAX + 8;
    REFUSED("table main: a step of 4194312 bytes, expected a multiple of 8 up to 4194304");
    static char spec[RP_SPEC_BYTES_MAX + 1];
    loose()->spec = spec;
    tables[0].spec_bytes = RP_SPEC_BYTES_MAX;
    TAKEN;
    loose()->spec = spec;
    tables[0].spec_bytes = RP_SPEC_BYTES_MAX + 1;
    REFUSED("table main: a spec of 65537 bytes, the limit is 65536");
    check_group("its limits");
}

static void table_numbers(void) {
    loose()->capacity = 16 * 2 * SCRIPT_WINDOW;
    TAKEN;
    loose()->capacity = 16 * 2 * SCRIPT_WINDOW - 1;
    REFUSED("table main: a capacity of 511 steps; the smallest legal one is 512 (16 times window "
            "16 times writers 2, and no less than a whole item's window), the largest 2147483648");
    for (uint32_t one_less = 0; one_less < 2; one_less++) { /* a window of 1000 + 1 + 700, and 32 */
        loose()->capacity = 1733 - one_less;
        plans[0].pick_count = 2;
        picks[0].offset = -1000;
        picks[1].offset = 700;
        asked(__LINE__, one_less ? "table main: a capacity of 1732 steps; the smallest legal one "
                                   "is 1733 (16 times window 16 times writers 2, and no less than "
                                   "a whole item's window), the largest 2147483648"
                                 : NULL);
    }
    loose()->min_size = 512 - 2 * SCRIPT_WINDOW;
    TAKEN;
    loose()->min_size = 512 - 2 * SCRIPT_WINDOW + 1;
    REFUSED("table main: a minimum size of 481 items, but 512 steps hold at most 480");
    loose()->alpha = 8;
    TAKEN;
    loose()->alpha = 8.5;
    REFUSED("table main: alpha is 8.5, expected 0 to 8");
    loose()->alpha = -0.5;
    REFUSED("table main: alpha is -0.5, expected 0 to 8");
    loose()->samples_per_insert = -1;
    REFUSED("table main: -1 samples per insert, expected 0 (no limiter) to 1e9");
    loose()->samples_per_insert = 2e9;
    REFUSED("table main: 2e+09 samples per insert, expected 0 (no limiter) to 1e9");
    double cases[][4] = { /* rate, width that is enough, one that is not, what is asked for */
        {1e9, 2e9, 1.9e9, 2e9}, {4, 8, 7.5, 8}, {1, 2, 1.5, 2}, {0.25, 2, 1.5, 2}};
    for (uint32_t i = 0; i < 8; i++) {
        char said[256];
        const double *c = cases[i / 2];
        loose()->samples_per_insert = c[0];
        tables[0].error_min = -1;
        tables[0].error_max = c[1 + i % 2] - 1;
        snprintf(said, sizeof said,
                 "table main: the limiter's error may lie in -1 to %g; a width below 2 * max(1, "
                 "samples per insert) = %g can block both sides for ever", c[2] - 1, c[3]);
        asked((int)i, i % 2 ? said : NULL);
    }
    loose()->samples_per_insert = 1;
    tables[0].error_min = -INFINITY;
    tables[0].error_max = 1;
    REFUSED("table main: the limiter's error may lie in -inf to 1; a width below 2 * max(1, "
            "samples per insert) = 2 can block both sides for ever");
    check_group("its numbers");
}

/* ---- what lies in the files ---- */

/* Given tables of several shapes. Expect the sizes that their files have had from the first: where
 * one has to change, RP_REGION_VERSION does too. */
static void sizes_of_files(void) {
    struct shape {
        uint32_t capacity, step_bytes, writers, streams, window, pieces;
        size_t state, keys, steps;
    } shapes[] = {
        {512, 16, 2, 4, 16, 1, 14528, 6144, 8192},
        {513, 24, 2, 4, 16, 2, 14976, 6272, 12352},
        {1000, 16, 3, 1, 7, 64, 26048, 12032, 16000},
        {1000, 16, 3, 1, 7, 65, 26240, 12032, 16000},
        {4096, 8192, 1, 64, 256, 8, 111488, 49152, 33554432},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct shape *s = &shapes[i];
        struct rp_table_sizes sizes;
        char error[256];
        loose()->capacity = s->capacity;
        tables[0].step_bytes = s->step_bytes;
        tables[0].writers_max = s->writers;
        tables[0].streams_max = s->streams;
        tables[0].window = s->window;
        tables[0].pieces_max = s->pieces;
        CHECK(rp_table_sizes(&tables[0], &sizes, error) == 0, "%s", error);
        CHECK(sizes.state == s->state && sizes.keys == s->keys && sizes.steps == s->steps,
              "shape %zu: %zu, %zu, %zu", i, sizes.state, sizes.keys, sizes.steps);
    }
    check_group("the sizes of a table's files");
}

/* Given one configuration. Expect the numbers that a build lays the files out by, or knows a region
 * by, to be those written down: where one has to change, RP_REGION_VERSION does too. */
static void known_numbers(void) {
    static const uint64_t facts[2] = {0xe876335d, 0xf73009ec}, parts[2] = {0xb5f2c07f, 0xc6a9d93c};
    static struct script script;
    struct rp_region region;
    char error[256];
    fresh();
    CHECK(rp_region_layout(&config, &region, error) == 0, "%s", error);
    region.incarnation = 1;
    int wide = RP_SEGMENT_ALIGN == 65536; /* the layout of machines whose pages are larger */
    CHECK(region.version == 15
          && rp_region_sum(&region) == (wide ? 0x5a64f9c14af4b3c4 : 0xf47a33ddd957ab44),
          "sum %#llx", (unsigned long long)rp_region_sum(&region));
    CHECK(region.volatile_part == (wide ? 655360 : 430080), "%llu",
          (unsigned long long)region.volatile_part);
    script_open(&script, &config);
    for (uint32_t i = 0; i < 2; i++) {
        const struct rp_table_header *header = rp_server_table(script.server, i)->header;
        CHECK(header->facts_crc == facts[i] && header->parts_crc == parts[i],
              "table %u: %#llx, %#llx", i, (unsigned long long)header->facts_crc,
              (unsigned long long)header->parts_crc);
    }
    script_close(&script);
    check_group("the numbers that a region is known by");
}

/* Given the same configuration. Expect the process's own memory to have the size written down here,
 * so that no part of it grows or shrinks unseen. No file depends on it: a counter changes it, and
 * then the numbers alone. */
static void sizes_of_the_process(void) {
    static const size_t local[2] = {315392, 315328};
    static struct script script;
    struct rp_region region;
    struct rp_table_sizes sizes;
    char error[256];
    fresh();
    CHECK(rp_region_layout(&config, &region, error) == 0, "%s", error);
    CHECK(region.bytes - region.volatile_part == 873728, "%llu",
          (unsigned long long)(region.bytes - region.volatile_part));
    script_open(&script, &config);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(rp_table_sizes(&tables[i], &sizes, error) == 0, "%s", error);
        CHECK(sizes.local == local[i], "table %u: %zu", i, sizes.local);
        const struct rp_table *table = rp_server_table(script.server, i);
        const uint8_t *end = (const uint8_t *)table->private + sizes.local;
        for (int w = 0; w < 2; w++) { /* the copies lie at the end, one behind the other */
            CHECK(rp_writer_held(table, w) == end - (2 - w) * RP_HELD_BYTES);
        }
    }
    script_close(&script);
    check_group("the sizes of the process's own memory");
}

/* Given a header that another build may have left: one part of the files is elsewhere, and the sum
 * is right. Expect it refused and left as it was, and the region's own taken. */
static void laid_out_otherwise(void) {
    static struct script script;
    struct rp_server *server;
    char error[256];
    uint8_t entropy[32] = {1};
    fresh();
    script_open(&script, &config);
    struct rp_region *region = (void *)script.region, own = *region;
    uint64_t *words[] = {&region->log, &region->sessions, &region->records, &region->weights,
                         &region->state_bytes, &region->tables[2], &region->keys[0],
                         &region->keys[1], &region->steps[0], &region->steps[1], &region->blobs,
                         &region->volatile_part};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        *words[i] -= 64;
        region->sum = rp_region_sum(region);
        struct rp_region other = *region;
        CHECK(rp_server_attach(&server, script.region, script.bytes, &config, entropy, 1, error)
              == -RP_BAD_REGION, "word %zu", i);
        CHECK(strncmp(error, "the region was laid out by another build", 40) == 0, "word %zu: %s",
              i, error);
        CHECK(memcmp(region, &other, sizeof other) == 0);
        *region = own;
    }
    script_kill(&script);
    script_close(&script);
    check_group("a region that another build laid out");
}

/* Given sizes that fill no page. Expect each file of a region to begin at a page, behind the one
 * before it. */
static void places_of_files(void) {
    struct rp_segments segments;
    char error[256];
    fresh();
    tables[0].capacity = 513;
    tables[0].step_bytes = tables[1].step_bytes = 24;
    config.weights_max = 20001;
    CHECK(rp_server_segments(&config, &segments, error) == 0, "%s", error);
    CHECK(segments.count == 6);
    for (uint32_t i = 0; i < segments.count; i++) {
        const struct rp_segment *at = &segments.segment[i];
        CHECK(at->offset % RP_SEGMENT_ALIGN == 0 && at->bytes > 0, "%s", at->name);
        CHECK(i == 0 || at->offset == at[-1].offset + at[-1].bytes, "%s", at->name);
    }
    check_group("each file begins at a page");
}

/* Bytes of the sample records that a configuration asks for. */
static uint64_t record_bytes(void) {
    uint64_t each = sizeof(struct rp_record) + config.batch_max * sizeof(struct rp_batch_item);
    return config.sessions_max * (config.records + UINT64_C(1)) * ((each + 63) / 64 * 64);
}

/* Given records that take just half of the file `state`, and then more. Expect it to be named by
 * them when they take more than half, not before: whoever has no room for it is told so. */
static void name_of_state(void) {
    struct rp_segments segments;
    char error[256];
    int found = 0;
    for (uint32_t i = 0; i < 16 * RP_BATCH_MAX && !found; i++) {
        fresh();
        config.sessions_max = 1 + i % 16;
        config.records = 15;
        config.batch_max = 1 + i / 16;
        CHECK(rp_server_segments(&config, &segments, error) == 0, "%s", error);
        found = 2 * record_bytes() == segments.segment[0].bytes;
    }
    CHECK(found);
    CHECK(strcmp(segments.segment[0].what, "items and their priorities") == 0);
    config.records = 31;
    CHECK(rp_server_segments(&config, &segments, error) == 0, "%s", error);
    CHECK(2 * record_bytes() > segments.segment[0].bytes);
    CHECK(strncmp(segments.segment[0].what, "sample records: ", 16) == 0);
    check_group("what the state is named by");
}

static uint64_t bytes_with_weights(uint64_t weights_max) {
    struct rp_segments segments;
    char error[256];
    config.weights_max = weights_max;
    CHECK(rp_server_segments(&config, &segments, error) == 0, "%s", error);
    return segments.bytes;
}

/* Given weights of one byte more than fills their lines of memory. Expect every slot to have the
 * whole next line for that byte. */
static void room_for_weights(void) {
    fresh();
    for (uint64_t lines = 1; lines <= RP_SEGMENT_ALIGN / 64; lines++) {
        CHECK(bytes_with_weights(64 * lines + 1) == bytes_with_weights(64 * (lines + 1)));
    }
    check_group("the last byte of the weights has a place");
}

/* Given more changes than their text has room for. Expect it cut there, and nothing behind it
 * touched. */
static void many_changes(void) {
    struct rp_comparison comparison = {.what = " of a table"};
    for (uint32_t i = 0; i < 12; i++) {
        rp_compare_change(&comparison, "samples_per_insert", i, i + 1);
    }
    CHECK(strlen(comparison.changes) == RP_COMPARE_BYTES - 1);
    CHECK(comparison.error[0] == 0, "%s", comparison.error);
    check_group("changes end where their room ends");
}

/* Given seeds one apart. Expect the second table of the one to draw as the first of the other. */
static void seeds(void) {
    static struct script one, other;
    fresh();
    script_open(&one, &config);
    config.seed++;
    script_open(&other, &config);
    const struct rp_random *random[] = {&rp_server_table(one.server, 0)->header->random,
                                        &rp_server_table(one.server, 1)->header->random,
                                        &rp_server_table(other.server, 0)->header->random};
    CHECK(memcmp(random[1], random[2], sizeof *random[0]) == 0);
    CHECK(memcmp(random[0], random[1], sizeof *random[0]) != 0);
    script_close(&one);
    script_close(&other);
    check_group("a table's seed");
}

int main(void) {
    fresh();
    server_numbers();
    names();
    table_columns();
    table_plans();
    table_limits();
    table_numbers();
    sizes_of_files();
    known_numbers();
    sizes_of_the_process();
    laid_out_otherwise();
    places_of_files();
    name_of_state();
    room_for_weights();
    many_changes();
    seeds();
    return check_done("test_config");
}
