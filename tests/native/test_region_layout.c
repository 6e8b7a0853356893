/* Where a row or a number of this file changes, or a field's meaning does, raise RP_REGION_VERSION.
 *
 * A region outlives its server: the next one reads it by what is pinned here. So that a region of
 * another build is refused, and not read with two fields swapped, each field of each structure that
 * survives has its place, each word that holds several numbers its packing, and a fixed job the
 * bytes that it leaves. What lies in no file belongs to the process: a region does not know it.
 *
 * A change may leave other bytes and mean the same: a draw that takes its random words in another
 * order. Then the numbers of `left` change alone.
 */
#include "base/siphash.h"
#include "pusher.h"

/* ---- each field's place ---- */

struct row {
    const char *structure;
    const char *field; /* null: the whole structure */
    size_t offset, size; /* as this build has them */
    size_t known_offset, known_size;
};

#define FIELD(type, name, offset, size) \
    {#type, #name, offsetof(struct type, name), sizeof ((struct type *)0)->name, offset, size}
#define REST(type, name, offset) /* as many as there are, behind the structure */ \
    {#type, #name, offsetof(struct type, name), 0, offset, 0}
#define WHOLE(type, size) \
    {#type, NULL, 0, sizeof(struct type), 0, size}

static const struct row rows[] = {
/* the region's own header */
    FIELD(rp_region, magic, 0, 8),
    FIELD(rp_region, version, 8, 8),
    FIELD(rp_region, sum, 16, 8),
    FIELD(rp_region, attaches, 24, 8),
    FIELD(rp_region, bytes, 32, 8),
    FIELD(rp_region, incarnation, 40, 8),
    FIELD(rp_region, seed, 48, 8),
    FIELD(rp_region, limits, 56, 40),
    FIELD(rp_region, log, 96, 8),
    FIELD(rp_region, tables, 104, 128),
    FIELD(rp_region, sessions, 232, 8),
    FIELD(rp_region, records, 240, 8),
    FIELD(rp_region, weights, 248, 8),
    FIELD(rp_region, state_bytes, 256, 8),
    FIELD(rp_region, keys, 264, 128),
    FIELD(rp_region, steps, 392, 128),
    FIELD(rp_region, blobs, 520, 8),
    FIELD(rp_region, volatile_part, 528, 8),
    FIELD(rp_region, locals, 536, 128),
    FIELD(rp_region, ending, 664, 8),
    WHOLE(rp_region, 672),
    FIELD(rp_limits, table_count, 0, 4),
    FIELD(rp_limits, sessions_max, 4, 4),
    FIELD(rp_limits, batch_max, 8, 4),
    FIELD(rp_limits, records, 12, 4),
    FIELD(rp_limits, mtu, 16, 4),
    FIELD(rp_limits, receive_budget, 20, 4),
    FIELD(rp_limits, idle_ms, 24, 4),
    FIELD(rp_limits, lapse_ms, 28, 4),
    FIELD(rp_limits, weights_max, 32, 8),
    WHOLE(rp_limits, 40),
    FIELD(rp_seal, magic, 0, 8),
    FIELD(rp_seal, incarnation, 8, 8),
    FIELD(rp_seal, segment, 16, 8),
    FIELD(rp_seal, reserved, 24, 40),
    WHOLE(rp_seal, 64),
    /* the intents */
    FIELD(rp_intent_log, committed, 0, 8),
    FIELD(rp_intent_log, count, 8, 8),
    FIELD(rp_intent_log, after, 16, 262144),
    WHOLE(rp_intent_log, 262160),
    FIELD(rp_after, offset, 0, 8),
    FIELD(rp_after, value, 8, 8),
    WHOLE(rp_after, 16),
    /* a table's state */
    FIELD(rp_table_header, magic, 0, 8),
    FIELD(rp_table_header, bytes, 8, 8),
    FIELD(rp_table_header, facts_crc, 16, 8),
    FIELD(rp_table_header, parts_crc, 24, 8),
    FIELD(rp_table_header, epoch, 32, 8),
    FIELD(rp_table_header, resetting, 40, 8),
    FIELD(rp_table_header, resetting_not, 48, 8),
    FIELD(rp_table_header, head, 56, 8),
    FIELD(rp_table_header, inserted, 64, 8),
    FIELD(rp_table_header, sampled, 72, 8),
    FIELD(rp_table_header, maximum, 80, 8),
    FIELD(rp_table_header, random, 88, 32),
    FIELD(rp_table_header, facts, 120, 512),
    WHOLE(rp_table_header, 632),
    FIELD(rp_random, s, 0, 32),
    WHOLE(rp_random, 32),
    FIELD(rp_table_facts, name, 0, 32),
    FIELD(rp_table_facts, alpha, 32, 8),
    FIELD(rp_table_facts, samples_per_insert, 40, 8),
    FIELD(rp_table_facts, error_min, 48, 8),
    FIELD(rp_table_facts, error_max, 56, 8),
    FIELD(rp_table_facts, min_size, 64, 8),
    FIELD(rp_table_facts, capacity, 72, 4),
    FIELD(rp_table_facts, step_bytes, 76, 4),
    FIELD(rp_table_facts, column_count, 80, 4),
    FIELD(rp_table_facts, plan_count, 84, 4),
    FIELD(rp_table_facts, pick_count, 88, 4),
    FIELD(rp_table_facts, spec_bytes, 92, 4),
    FIELD(rp_table_facts, spec_crc, 96, 4),
    FIELD(rp_table_facts, writers_max, 100, 4),
    FIELD(rp_table_facts, streams_max, 104, 4),
    FIELD(rp_table_facts, window, 108, 4),
    FIELD(rp_table_facts, pieces_max, 112, 4),
    FIELD(rp_table_facts, reach_behind, 116, 4),
    FIELD(rp_table_facts, reach_ahead, 120, 4),
    FIELD(rp_table_facts, fifo, 124, 4),
    FIELD(rp_table_facts, plans, 128, 384),
    WHOLE(rp_table_facts, 512),
    FIELD(rp_plan_facts, name, 0, 32),
    FIELD(rp_plan_facts, pick_first, 32, 4),
    FIELD(rp_plan_facts, pick_count, 36, 4),
    FIELD(rp_plan_facts, item_bytes, 40, 4),
    FIELD(rp_plan_facts, reserved, 44, 4),
    WHOLE(rp_plan_facts, 48),
    FIELD(rp_column, offset, 0, 4),
    FIELD(rp_column, size, 4, 4),
    FIELD(rp_column, pad_first, 8, 4),
    WHOLE(rp_column, 12),
    FIELD(rp_pick, column, 0, 2),
    FIELD(rp_pick, offset, 2, 2),
    WHOLE(rp_pick, 4),
    FIELD(rp_slot, item, 0, 8),
    FIELD(rp_slot, links, 8, 8),
    WHOLE(rp_slot, 16),
    FIELD(rp_writer, session, 0, 8),
    FIELD(rp_writer, streams, 8, 8),
    FIELD(rp_writer, next_sequence, 16, 8),
    FIELD(rp_writer, lost_total, 24, 8),
    FIELD(rp_writer, reserved, 32, 32),
    WHOLE(rp_writer, 64),
    FIELD(rp_entry, key, 0, 8),
    FIELD(rp_entry, step, 8, 8),
    FIELD(rp_entry, facts, 16, 8),
    FIELD(rp_entry, priority, 24, 8),
    REST(rp_entry, pieces, 32),
    WHOLE(rp_entry, 32),
    FIELD(rp_stream, next_step, 0, 8),
    FIELD(rp_stream, head, 8, 8),
    FIELD(rp_stream, abandoned, 16, 8),
    FIELD(rp_stream, depth, 24, 8),
    WHOLE(rp_stream, 32),
    /* sessions */
    FIELD(rp_session, connection, 0, 8),
    FIELD(rp_session, peer, 8, 32),
    FIELD(rp_session, agreed, 40, 8),
    FIELD(rp_session, idle_ms, 48, 8),
    FIELD(rp_session, sample, 56, 16),
    FIELD(rp_session, update, 72, 16),
    FIELD(rp_session, publish, 88, 16),
    FIELD(rp_session, record_id, 104, 512),
    FIELD(rp_session, updated, 616, 1024),
    FIELD(rp_session, published, 1640, 64),
    WHOLE(rp_session, 1704),
    FIELD(rp_peer, size, 0, 4),
    FIELD(rp_peer, bytes, 4, 28),
    WHOLE(rp_peer, 32),
    FIELD(rp_once, newest, 0, 8),
    FIELD(rp_once, done, 8, 8),
    WHOLE(rp_once, 16),
    FIELD(rp_update_words, applied_stale, 0, 8),
    FIELD(rp_update_words, unknown_status, 8, 8),
    WHOLE(rp_update_words, 16),
    /* weights */
    FIELD(rp_weights, newest, 0, 8),
    FIELD(rp_weights, slot, 8, 72),
    FIELD(rp_weights, session, 80, 8),
    FIELD(rp_weights, id, 88, 8),
    FIELD(rp_weights, into, 96, 8),
    FIELD(rp_weights, size, 104, 8),
    FIELD(rp_weights, piece, 112, 8),
    FIELD(rp_weights, crc, 120, 8),
    FIELD(rp_weights, missing, 128, 8),
    FIELD(rp_weights, sum, 136, 8),
    WHOLE(rp_weights, 144),
    FIELD(rp_weights_slot, version, 0, 8),
    FIELD(rp_weights_slot, size, 8, 8),
    FIELD(rp_weights_slot, crc, 16, 8),
    WHOLE(rp_weights_slot, 24),
    /* sample records */
    FIELD(rp_record, table_plan, 0, 8),
    FIELD(rp_record, reserved, 8, 8),
    FIELD(rp_record, head, 16, 48),
    REST(rp_record, items, 64),
    WHOLE(rp_record, 64),
    FIELD(rp_batch, epoch, 0, 8),
    FIELD(rp_batch, total, 8, 8),
    FIELD(rp_batch, head, 16, 8),
    FIELD(rp_batch, drawable, 24, 4),
    FIELD(rp_batch, count, 28, 4),
    FIELD(rp_batch, item_bytes, 32, 4),
    FIELD(rp_batch, uniform, 36, 4),
    FIELD(rp_batch, capacity, 40, 8),
    WHOLE(rp_batch, 48),
    FIELD(rp_batch_item, key, 0, 8),
    FIELD(rp_batch_item, mass, 8, 8),
    FIELD(rp_batch_item, behind, 16, 2),
    FIELD(rp_batch_item, ahead, 18, 2),
    FIELD(rp_batch_item, reserved, 20, 4),
    WHOLE(rp_batch_item, 24),
};

/* Given the structures of a region as this build has them. Expect each field where it is known to
 * be, and no field, and no gap, between two that are known. */
static void places(void) {
    size_t end = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        const char *field = row->field ? row->field : "(whole)";
        CHECK(row->offset == row->known_offset && row->size == row->known_size,
              "%s.%s lies at %zu and has %zu bytes, not at %zu with %zu: raise RP_REGION_VERSION",
              row->structure, field, row->offset, row->size, row->known_offset, row->known_size);
        CHECK(row->field ? row->offset == end : row->size == end,
              "%s: a field before %s has no row", row->structure, field);
        end = row->field ? row->offset + row->size : 0;
    }
    check_group("each field of what survives has its place");
}

/* ---- words that hold several numbers ---- */

/* Given numbers that no two fields share. Expect the words that they have always been packed into,
 * and the states and flags that lie in those words. */
static void packed(void) {
    static const struct rp_session session = {.agreed = 0x0003004400000578};
    CHECK(rp_key_word(2, 0x123456789ab) == 0x00200123456789ab);
    CHECK(rp_item_word(0x1111, 0x2222, 0x3333, 0x4444) == 0x4444333322221111);
    CHECK(rp_links_word(0x11112222, 0x33334444) == 0x3333444411112222);
    CHECK(rp_entry_facts(0x1111, 0x2222, 0x3333, 0x4444) == 0x4444333322221111);
    CHECK(rp_session_mtu(&session) == 0x578 && rp_session_budget(&session) == 0x44);
    CHECK(RP_SLOT_FREE == 0 && RP_SLOT_RESERVED == 1 && RP_SLOT_COMMITTED == 2);
    CHECK(RP_STEP_END == 1 && RP_STEP_ITEM == 2 && RP_STEP_EVICTED == 4);
    CHECK(RP_ENTRY_EMPTY == 1 && RP_ENTRY_PARTIAL == 2 && RP_ENTRY_COMPLETE == 3);
    CHECK(RP_ENTRY_COMMITTED == 4 && RP_ENTRY_LOST == 5);
    CHECK(RP_KEY_BITS == 52 && RP_SESSION_INDEX_BITS == 12 && RP_WEIGHTS_SLOTS == 3);
    CHECK(RP_POWER_ONE == 1 << 26);
    CHECK(RP_REGION_MAGIC == 0x6E6F696765525052 && RP_SEAL_MAGIC == 0x6C61655374676553);
    check_group("words that hold several numbers are packed as ever");
}

/* ---- what a fixed job leaves ---- */

static void publish_piece(struct pusher *p, uint64_t id, uint32_t index) {
    struct {
        struct rp_publish publish;
        uint8_t bytes[1024];
    } body = {.publish = {.size = 2048, .offset = 1024 * index, .piece = 1024}};
    uint8_t blob[2048];
    for (uint32_t i = 0; i < sizeof blob; i++) {
        blob[i] = (uint8_t)(i * 7 + id);
    }
    body.publish.crc = rp_crc32c(0, blob, sizeof blob);
    memcpy(body.bytes, blob + body.publish.offset, sizeof body.bytes);
    CHECK_STATUS(script_ask(&p->script, &p->client, RP_OP_PUBLISH, 0, id, &body, sizeof body),
                 RP_OK);
}

/* Steps, an end, items, a step of which half is here, a batch, an update, and weights of which the
 * second are half here. */
static void job(struct pusher *p) {
    CHECK_STATUS(send_run(p, 1, 1, 0, 0, 0, 10, RP_RUN_ITEM | RP_RUN_PRIORITY), RP_OK);
    script_push_begin(&push, p->epoch[0]);
    script_push_run(&push, 0, 0, 0, 6, RP_RUN_END);
    script_push_create(&push, 0, 2, 3.0);
    CHECK_STATUS(script_push(&p->script, &p->client, 0, 2, &push), RP_OK);
    static const uint64_t half = 5;
    struct rp_run run = {.sequence = 6, .step = 0, .stream = 1, .count = 1, .piece_count = 2,
                         .size = sizeof half};
    script_push_begin(&push, p->epoch[0]);
    script_push_bytes(&push, run, &half);
    CHECK_STATUS(script_push(&p->script, &p->client, 0, 3, &push), RP_OK);
    struct rp_sample sample = script_sample(8);
    CHECK_STATUS(script_ask(&p->script, &p->client, RP_OP_SAMPLE, 1, 1, &sample, sizeof sample),
                 RP_OK);
    struct {
        struct rp_update update;
        struct rp_update_entry entry;
    } update = {{.epoch = p->epoch[1], .count = 1}, {SCRIPT_CAPACITY + 3, 7.0}};
    CHECK_STATUS(script_ask(&p->script, &p->client, RP_OP_UPDATE, 1, 1, &update, sizeof update),
                 RP_OK);
    publish_piece(p, 1, 0);
    publish_piece(p, 1, 1);
    publish_piece(p, 2, 0);
}

/* Given a server with fixed chance, and a job of all that a region holds. Expect each part of the
 * region to have the bytes that this job left when its version was given. */
static void left(void) {
    static const uint8_t key[16] = "what is left";
    static struct pusher p;
    fresh(&p);
    job(&p);
    const struct rp_region *region = (const void *)p.script.region;
    const struct rp_server *server = p.script.server;
    struct rp_table_sizes sizes[2];
    char error[256];
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(rp_table_sizes(&tables[i], &sizes[i], error) == 0, "%s", error);
    }
    struct part {
        const char *name;
        uint64_t at, bytes, known;
    } parts[] = {
        {"state of main", region->tables[0], sizes[0].state, 0x907b885a3f04d429},
        {"keys of main", region->keys[0], sizes[0].keys, 0x64c4d1018403a1bd},
        {"steps of main", region->steps[0], sizes[0].steps, 0x164158c475514a98},
        {"state of rows", region->tables[1], sizes[1].state, 0x33ea63241643e8dc},
        {"keys of rows", region->keys[1], sizes[1].keys, 0xd55c262fafe8e84e},
        {"steps of rows", region->steps[1], sizes[1].steps, 0xabcf40a39c5f4d99},
        {"sessions", region->sessions, 4 * sizeof(struct rp_session), 0xb64f47be59c19b15},
        {"weights", region->weights, region->records - region->weights, 0xf4bc34e1c9a3798e},
        {"records", region->records, 4 * 4 * server->record_bytes, 0x9b065f25ad84f643},
        {"blobs", region->blobs, RP_WEIGHTS_SLOTS * server->weights_stride, 0xaf93c86e1109c69a},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        uint64_t sum = rp_siphash(key, p.script.region + parts[i].at, parts[i].bytes);
        CHECK(sum == parts[i].known, "%s: %#llx", parts[i].name, (unsigned long long)sum);
    }
    script_close(&p.script);
    check_group("a fixed job leaves the bytes it has always left");
}

/* ---- a build whose own memory is larger or smaller ---- */

/* The words of the header that say where the process's own memory lies, `by` further. */
static void own_memory_lies(struct pusher *p, uint64_t by) {
    struct rp_region *region = (void *)p->script.region;
    region->bytes += by;
    for (size_t i = 0; i < RP_TABLES_MAX; i++) {
        region->locals[i] += by;
    }
}

/* Given a region whose header says that the process that made it had more memory of its own behind
 * the files, or less, as a build with other counters would have. Expect it taken over with all its
 * experience, and served. */
static void of_another_process(void) {
    static struct pusher p;
    static const uint64_t further[] = {64, -(uint64_t)64, 1u << 30};
    for (size_t i = 0; i < sizeof further / sizeof *further; i++) {
        fresh(&p);
        job(&p);
        const struct rp_region was = *(const struct rp_region *)p.script.region;
        uint8_t *had = malloc(was.volatile_part);
        memcpy(had, p.script.region, was.volatile_part);
        own_memory_lies(&p, further[i]);
        script_kill(&p.script);
        struct rp_region *region = (void *)p.script.region;
        CHECK(memcmp(region->locals, was.locals, sizeof was.locals) == 0, "this build's own");
        CHECK(region->bytes == was.bytes && region->attaches == was.attaches + 1);
        region->attaches = was.attaches;
        CHECK(memcmp(had, region, was.log) == 0, "the header");
        CHECK(memcmp(had + was.tables[0], p.script.region + was.tables[0],
                     was.volatile_part - was.tables[0]) == 0, "all that lies in files");
        region->attaches++;
        CHECK_STATUS(send_run(&p, 1, 9, 0, 10, 10, 5, RP_RUN_ITEM | RP_RUN_PRIORITY), RP_OK);
        struct rp_sample sample = script_sample(8);
        CHECK_STATUS(script_ask(&p.script, &p.client, RP_OP_SAMPLE, 1, 1, &sample, sizeof sample),
                     RP_OK); /* the batch drawn before, from its record */
        rp_server_check(p.script.server);
        free(had);
        script_close(&p.script);
    }
    check_group("what a process keeps for itself is not a region's: another build's is attached");
}

int main(void) {
    places();
    packed();
    left();
    of_another_process();
    return check_done("test_region_layout");
}
