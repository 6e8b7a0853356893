/* A region with one wrong bit is refused in a sentence, or serves what nobody could tell
 * wrong; it never ends a server.
 *
 * A server that has done some of everything is copied, one bit of one word of it is turned, and the
 * copy is attached to. Words are chosen field by field, so that the small ones are met as often as
 * the large. Where the attach succeeds, the field is one of those that stand alone (below, each
 * with its reason), and requests of every kind are served on it. The tally is printed.
 *
 * A bit of a step's bytes, or of its checksum, is served, and found when steps are verified.
 */
#include "script.h"
#include "server/server_state.h"
#include "table/store.h"

enum { FLIPS = 3000, FIELDS_MAX = 64 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script script;
static struct script_client client, other;
static uint64_t epochs[2];
static struct rp_random dice;

/* ---- a server that has done some of everything ---- */

static uint64_t request_id = 1000;

/* Pieces 0 .. 3 of one publication, 4 .. 7 of the next. */
static void publish_piece(uint32_t index) {
    static struct {
        struct rp_publish publish;
        uint8_t bytes[1000];
    } body;
    static uint8_t blob[3500];
    uint32_t offset = 1000 * (index % 4);
    uint32_t size = sizeof blob - offset < 1000 ? (uint32_t)sizeof blob - offset : 1000;
    for (uint32_t i = 0; i < sizeof blob; i++) {
        blob[i] = (uint8_t)(i * 7 + i / 256);
    }
    memcpy(body.bytes, blob + offset, size);
    body.publish = (struct rp_publish){
        .size = sizeof blob, .offset = offset, .piece = 1000, .crc = rp_crc32c(0, blob, 3500)};
    script_ask(&script, &other, RP_OP_PUBLISH, 0, 1 + (index >= 4), &body,
               (uint32_t)sizeof body.publish + size);
}

static void push_rows(uint16_t table, uint16_t stream, uint64_t sequence, uint64_t step,
                      uint16_t count, uint16_t flags) {
    static struct script_push push;
    script_push_begin(&push, epochs[table]);
    script_push_run(&push, stream, sequence, step, count, flags);
    if (table == 0 && step >= 8) {
        for (uint64_t i = step - 6; i < step - 2; i++) {
            script_push_create(&push, stream, i, (double)(i % 4));
        }
    }
    script_push(&script, &client, table, ++request_id, &push);
}

static void ask_everything(void) {
    struct rp_sample request = script_sample(8);
    static struct {
        struct rp_update update;
        struct rp_update_entry entries[4];
    } body;
    request.under_way = 0xF; /* so that several records are kept */
    for (uint16_t table = 0; table < 2; table++) {
        request.plan = (uint16_t)(table == 0);
        script_ask(&script, &client, RP_OP_SAMPLE, table, ++request_id, &request, sizeof request);
        body.update = (struct rp_update){.epoch = epochs[table], .count = 4};
        for (uint64_t i = 0; i < 4; i++) {
            body.entries[i] = (struct rp_update_entry){520 + 7 * i, 2.5};
        }
        script_ask(&script, &client, RP_OP_UPDATE, table, ++request_id, &body, sizeof body);
    }
    script_ask(&script, &client, RP_OP_STATS, 0, ++request_id, NULL, 0);
}

static void make_server(void) {
    script_tables(tables);
    config = script_config(tables);
    script_open(&script, &config);
    client = script_client(1);
    other = script_client(2);
    script_connect(&script, &client);
    script_connect(&script, &other);
    for (uint16_t i = 0; i < 2; i++) {
        epochs[i] = script_writer(&script, &client, i, 2).epoch;
    }
    for (uint64_t i = 0; i < 80; i++) { /* both rings go round */
        uint16_t end = i % 6 == 5 ? RP_RUN_END : 0;
        push_rows(0, i % 2, 10 * i, 10 * (i / 2), 10, end);
        push_rows(1, 0, 10 * i, 10 * i, 10, RP_RUN_ITEM | RP_RUN_PRIORITY);
        ask_everything();
    }
    push_rows(0, 0, 804, 404, 4, 0); /* steps that wait for earlier ones */
    for (uint32_t i = 0; i < 6; i++) {
        publish_piece(i % 4 + (i >= 4 ? 4 : 0));
    }
    publish_piece(0);
    CHECK(script.server->weights->missing == 2, "two pieces of the second are there");
    rp_server_check(script.server);
}

/* ---- fields ---- */

struct field {
    const char *name;
    const char *alone; /* why a wrong word of it may be served; null: it may not */
    uint64_t offset;   /* of `count` pieces, `stride` apart, `bytes` each */
    uint64_t stride;
    uint64_t bytes;
    uint64_t count;
    uint32_t refused, served;
};

static struct field fields[FIELDS_MAX];
static uint32_t field_count;

static void field(const char *name, const void *first, uint64_t bytes, uint64_t stride,
                  uint64_t count, const char *alone) {
    CHECK(field_count < FIELDS_MAX && bytes % 8 == 0);
    uint64_t offset = (uint64_t)((const uint8_t *)first - script.region);
    fields[field_count++] = (struct field){.name = name, .alone = alone, .offset = offset,
                                           .stride = stride, .bytes = bytes, .count = count};
}

#define ONE(name, word, alone) field(name, &(word), sizeof(word), 0, 1, alone)

static void region_fields(struct rp_region *r) {
    const struct rp_intent_log *log = (void *)(script.region + r->log);
    const char *taken = "the configuration's are taken";
    field("region: magic to checksum", r, 24, 0, 1, NULL);
    ONE("region: attaches", r->attaches, "a number that rises");
    ONE("region: ending", r->ending, "a session that is no more");
    ONE("region: bytes", r->bytes, "each attach writes its own");
    field("region: incarnation, seed", &r->incarnation, 16, 0, 1, NULL);
    field("region: sessions .. records", &r->limits, 16, 0, 1, NULL);
    field("region: mtu .. lapse_ms", &r->limits.mtu, 16, 0, 1, taken);
    field("region: weights_max and offsets", &r->limits.weights_max,
          offsetof(struct rp_region, locals) - offsetof(struct rp_region, limits.weights_max), 0, 1,
          NULL);
    field("region: the process's offsets", r->locals, sizeof r->locals, 0, 1,
          "each attach writes its own");
    ONE("log: committed", log->committed, "what it holds is what was done last");
    field("log: count and words", &log->count, 8 + 64 * 16, 0, 1, "read after a kill alone");
}

static void seal_fields(void) {
    static struct rp_segments segments;
    char error[256];
    CHECK(rp_server_segments(&config, &segments, error) == 0, "%s", error);
    for (uint32_t i = 1; i < segments.count; i++) {
        const struct rp_segment *s = &segments.segment[i];
        field(s->name, script.region + s->offset + s->bytes - sizeof(struct rp_seal),
              sizeof(struct rp_seal), 0, 1, NULL);
    }
}

static void table_fields(const struct rp_table *table) {
    const struct rp_table_private *p = table->private;
    struct rp_table_header *h = table->header;
    struct rp_table_facts *f = &h->facts;
    struct rp_writer *w = rp_writer_at(p, 0);
    field("table: magic to checksums", h, 32, 0, 1, NULL);
    ONE("table: epoch", h->epoch, "drawn by chance");
    field("table: reset, head", &h->resetting, 24, 0, 1, NULL);
    field("table: inserted, sampled", &h->inserted, 16, 0, 1, "counts");
    ONE("table: maximum", h->maximum, "a priority");
    ONE("table: generator", h->random, "drawn by chance");
    field("table: name, alpha", f, offsetof(struct rp_table_facts, samples_per_insert), 0, 1,
          NULL);
    field("table: limiter", &f->samples_per_insert, 32, 0, 1, "the configuration's is taken");
    field("table: facts, columns, picks, spec", &f->capacity,
          (uint64_t)((uint8_t *)p->slots - (uint8_t *)&f->capacity) / 64 * 64 - 64, 0, 1,
          "zeros between parts");
    field("keys", p->keys, 8, 8, p->capacity, "an episode's only step, no item and the newest");
    field("items", &p->slots[0].item, 8, 16, p->capacity,
          "the depth of a row whose earlier ones are gone, the end of a closed stream");
    field("links", &p->slots[0].links, 8, 16, p->capacity, "back to what is gone");
    field("leaves", p->leaves, 8, 8, p->capacity, "priorities");
    ONE("writer: session", w->session, NULL);
    ONE("writer: streams", w->streams, "more streams than were granted");
    ONE("writer: next sequence", w->next_sequence, "a number of windows more");
    field("writer: entries' keys", &rp_entry_at(p, 0, 0)->key, 8, p->entry_words * 8, p->window,
          "committed or lost alike are done");
    field("writer: entries", &rp_entry_at(p, 0, 0)->step, p->entry_words * 8 - 8,
          p->entry_words * 8, p->window, "unused where nothing waits; numbers and priorities");
    ONE("stream: next step", rp_stream_at(p, 0, 0)->next_step, "a number that rises");
    ONE("stream: head", rp_stream_at(p, 0, 0)->head, "an earlier step that is gone");
    ONE("stream: abandoned", rp_stream_at(p, 0, 0)->abandoned, "a number that rises");
    ONE("stream: depth", rp_stream_at(p, 0, 0)->depth, NULL);
    field("sums", p->sums, (uint64_t)p->capacity * 4 / 8 * 8, 0, 1, "compared when asked");
    field("steps", p->steps, (uint64_t)p->capacity * p->step_bytes, 0, 1, "payload");
}

static void session_fields(void) {
    struct rp_server *server = script.server;
    struct rp_session *s = &server->sessions[0];
    struct rp_record *record = rp_region_record(server, 0, s->record_id[0] == 0);
    struct rp_weights *weights = server->weights;
    ONE("session: connection", s->connection, NULL);
    field("session: peer", s->peer, sizeof s->peer, 0, 1, "an address");
    ONE("session: agreed", s->agreed, "another mtu or budget that is legal");
    ONE("session: idle_ms", s->idle_ms, "another time of silence that is legal");
    field("session: numbered requests", &s->sample, 3 * sizeof s->sample, 0, 1,
          "which of the last 64 are done");
    field("session: records", s->record_id, sizeof s->record_id, 0, 1, "another number");
    field("session: answers kept", s->updated, sizeof s->updated + sizeof s->published, 0, 1,
          "numbers");
    ONE("record: table and plan", record->table_plan, "a plan whose items are as large");
    ONE("record: reserved", record->reserved, NULL);
    ONE("record: head", record->head, "numbers of a batch");
    field("record: items", record->items, 24 * 8, 0, 1, "keys and priorities");
    ONE("weights: newest", weights->newest, NULL);
    field("weights: slots", weights->slot, sizeof weights->slot, 0, 1,
          "versions, checksums: compared by who pulls");
    field("weights: assembly", &weights->session, 64, 0, 1, "dropped");
    field("weights: bitmap", server->weights_bitmap, 8, 0, 1, "dropped; beyond its pieces");
    field("weights: bytes", server->weights_bytes, 3 * server->weights_stride, 0, 1,
          "compared by who pulls");
}

/* ---- turning bits ---- */

static void copy_region(const struct script *whole) {
    script = *whole;
    script.unchecked = 1;
    script.region = aligned_alloc(64, (script.bytes + 63) / 64 * 64);
    memcpy(script.region, whole->region, script.bytes);
}

/* Does the sentence end in a remedy? No caller adds one. */
static int says_what_to_do(const char *error) {
    static const char *const ends[] = {"start with a new region", "start with a new one",
                                       "name another region"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t from = strlen(error) - strlen(ends[i]);
        if (strlen(error) > strlen(ends[i]) && strcmp(error + from, ends[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

/* 1: the copy was taken over; 0: it was refused in a sentence, and is gone. */
static int attach_copy(void) {
    char error[256] = "";
    uint8_t entropy[32];
    script_entropy(entropy, 9);
    int status = rp_server_attach(&script.server, script.region, script.bytes, &config, entropy,
                                  script.now_ns, error);
    if (status < 0) {
        CHECK(status == -RP_BAD_REGION && says_what_to_do(error), "%d \"%s\"", status, error);
        free(script.region);
    }
    return status == 0;
}

/* Both rings go round once more, with creates, draws of every plan and updates on the way. */
static void go_round(void) {
    for (uint64_t i = 0; i < 60; i++) {
        uint16_t stream = i % 2;
        uint64_t step = (stream == 0 ? 404 : 400) + 10 * (i / 2);
        push_rows(0, stream, 804 + 10 * i, step, 10, i % 6 == 5 ? RP_RUN_END : 0);
        push_rows(1, 0, 810 + 10 * i, 810 + 10 * i, 10, RP_RUN_ITEM | RP_RUN_PRIORITY);
        ask_everything();
    }
}

/* 1: the damaged copy was served, and all held: also when the rings had gone round, and in another
 * server that took the region over. */
static int attach_damaged(uint64_t offset, uint32_t bit, const struct script *whole) {
    copy_region(whole);
    script.region[offset + bit / 8] ^= (uint8_t)(1u << bit % 8);
    if (!attach_copy()) {
        return 0;
    }
    struct script_client kept[2] = {client, other};
    ask_everything();
    push_rows(0, 0, 800, 400, 4, 0);
    push_rows(1, 0, 800, 800, 10, RP_RUN_ITEM);
    publish_piece(6);
    go_round();
    for (uint32_t i = 0; i < 2; i++) {
        rp_tree_check(&rp_server_table(script.server, i)->tree);
    }
    client = kept[0];
    other = kept[1];
    script_forget(&script);
    CHECK(attach_copy(), "the next server refuses what this one took");
    script_forget(&script);
    free(script.region);
    return 1;
}

static void turn_bits(void) {
    script_forget(&script);
    const struct script whole = script;
    uint32_t refused = 0;
    for (uint32_t i = 0; i < FLIPS; i++) {
        struct field *f = &fields[i % field_count];
        uint64_t piece = f->offset + f->stride * rp_random_below(&dice, f->count);
        uint64_t at = piece + 8 * rp_random_below(&dice, f->bytes / 8);
        uint32_t bit = (uint32_t)rp_random_below(&dice, 64);
        int served = attach_damaged(at, bit, &whole);
        CHECK(!served || f->alone, "%s: bit %u at %" PRIu64 " was served", f->name, bit, at);
        f->served += served;
        f->refused += !served;
        refused += !served;
    }
    script = whole;
    for (uint32_t i = 0; i < field_count; i++) {
        printf("    %4u refused %4u served  %-36s %s\n", fields[i].refused, fields[i].served,
               fields[i].name, fields[i].served ? fields[i].alone : "");
    }
    printf("  %d bits turned: %u refused, %u served, no server ended\n", FLIPS, refused,
           FLIPS - refused);
}

/* ---- words that one bit does not reach ---- */

static void *in_copy(const struct script *whole, const void *word) {
    return script.region + ((const uint8_t *)word - whole->region);
}

/* Given a stream whose newest step is gone, so that no row tells how deep it is. Expect any depth
 * that a row may have to be taken, and no larger one. */
static void depth_of_a_gone_row(void) {
    static const struct {
        uint64_t depth;
        int taken;
    } cases[] = {{1, 1}, {UINT16_MAX, 1}, {UINT16_MAX + 1, 0}};
    const struct script whole = script;
    const struct rp_table_private *p = rp_server_table(whole.server, 0)->private;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        copy_region(&whole);
        struct rp_stream *stream = in_copy(&whole, rp_stream_at(p, 0, 0));
        stream->head = p->capacity; /* the ring's first key: overwritten since */
        stream->depth = cases[i].depth;
        int taken = attach_copy();
        CHECK(taken == cases[i].taken, "depth %" PRIu64, cases[i].depth);
        if (taken) {
            free(script.region);
        }
    }
    script = whole;
}

/* Given a generator of which one word alone is not zero, each in turn. Expect it taken; and the one
 * state that would draw zeros for ever refused. */
static void states_of_the_generator(void) {
    const struct script whole = script;
    const struct rp_table_header *header = rp_server_table(whole.server, 0)->header;
    for (int word = 0; word <= 4; word++) {
        copy_region(&whole);
        struct rp_random *random = in_copy(&whole, &header->random);
        memset(random, 0, sizeof *random);
        if (word < 4) {
            random->s[word] = 1;
        }
        int taken = attach_copy();
        CHECK(taken == (word < 4), "word %d", word);
        if (taken) {
            free(script.region);
        }
    }
    script = whole;
}

/* ---- an assembly that is half finished ---- */

/* The copy's publication begins anew, and is whole with its last piece. */
static void publish_again(void) {
    struct script_client kept = other;
    uint64_t newest = script.server->weights->newest;
    for (uint32_t i = 4; i < 8; i++) {
        CHECK(script.server->weights->newest == newest);
        publish_piece(i);
    }
    CHECK(script.server->weights->newest == newest + 1);
    rp_server_check(script.server);
    other = kept;
}

/* Given one wrong bit in each word of an assembly in turn, in its bitmap and in its bytes. Expect
 * the region taken over without the assembly, which is counted, and the publication possible. Its
 * id and the checksum it has to come to are known to its publisher alone. */
static void damaged_assemblies(void) {
    const struct script whole = script;
    struct rp_weights *w = whole.server->weights;
    const uint8_t *bytes = whole.server->weights_bytes + w->into * whole.server->weights_stride;
    const void *words[] = {&w->session, &w->into, &w->size, &w->piece, &w->missing, &w->sum,
                           whole.server->weights_bitmap, bytes, bytes + 1992};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        for (uint32_t bit = 0; bit < (i == 6 ? 4 : 64); bit++) {
            copy_region(&whole);
            uint64_t *word = in_copy(&whole, words[i]);
            *word ^= 1ull << bit;
            CHECK(attach_copy(), "word %zu, bit %u", i, bit);
            CHECK(script.server->weights->session == 0, "word %zu, bit %u", i, bit);
            CHECK(script_counter(&script, RP_COUNT_weights_dropped) == 1);
            publish_again();
            script_forget(&script);
            free(script.region);
        }
    }
    copy_region(&whole);
    CHECK(attach_copy() && script.server->weights->missing == 2);
    CHECK(script_counter(&script, RP_COUNT_weights_dropped) == 0, "a good one goes on");
    free(script.region);
    script = whole;
}

/* Given a commit to be done again that names a word of the header. Expect it refused and the header
 * left as it was; but for the words that change, whose redo is harmless. */
static void redo_of_header(void) {
    const struct script whole = script;
    const struct rp_region *header = (const void *)whole.region;
    struct rp_intent_log *log;
    for (uint64_t at = 0; at < sizeof *header; at += 8) {
        for (uint32_t bit = 0; bit < 64; bit += 3) {
            copy_region(&whole);
            log = (void *)(script.region + header->log);
            log->committed = 1;
            log->count = 2; /* the first of them changes nothing */
            log->after[0] = (struct rp_after){offsetof(struct rp_region, magic), header->magic};
            log->after[1].offset = at;
            memcpy(&log->after[1].value, whole.region + at, 8);
            log->after[1].value ^= 1ull << bit;
            uint8_t *copy = script.region;
            uint8_t had[sizeof *header];
            memcpy(had, copy, sizeof had);
            struct rp_region changed = *header;
            memcpy((uint8_t *)&changed + at, &log->after[1].value, 8);
            int may = changed.magic == header->magic && changed.version == header->version
                && rp_region_sum(&changed) == changed.sum && changed.bytes == header->bytes
                && memcmp(changed.locals, header->locals, sizeof changed.locals) == 0;
            char error[256] = "";
            uint8_t entropy[32];
            script_entropy(entropy, 9);
            int status = rp_server_attach(&script.server, copy, script.bytes, &config, entropy,
                                          script.now_ns, error);
            CHECK(status == (may ? 0 : -RP_BAD_REGION), "word %" PRIu64 ": %d %s", at, status,
                  error);
            CHECK(may || (strstr(error, "log is damaged") && memcmp(copy, had, sizeof had) == 0));
            free(copy);
        }
    }
    script = whole;
    check_group("a redo of what never changes in the header is refused before it is done");
}

static int attach_with(uint32_t mtu) {
    struct rp_server_config wants = config;
    char error[256] = "";
    uint8_t entropy[32];
    script_entropy(entropy, 9);
    wants.mtu = mtu;
    int status = rp_server_attach(&script.server, script.region, script.bytes, &wants, entropy,
                                  script.now_ns, error);
    CHECK(status == 0 || strstr(error, "agreed on datagrams of 1400 bytes, this port takes 512:"),
          "%d %s", status, error);
    return status == 0;
}

/* Given a server that died between the commit and the redo of a session's beginning, or end, and a
 * port whose datagrams are too small for it. Expect what is said of a session that is there, the
 * region left as it was, and served where they are large enough; nothing said of one that ends. */
static void redo_of_session(void) {
    const struct script whole = script;
    const struct rp_region *header = (const void *)whole.region;
    uint64_t at = header->sessions
        + (other.connection & (RP_SESSIONS_MAX - 1)) * sizeof(struct rp_session);
    uint8_t *had = malloc(header->state_bytes);
    CHECK(had != NULL);
    for (int ends = 0; ends < 2; ends++) {
        copy_region(&whole);
        struct rp_session *sessions = (void *)(script.region + header->sessions);
        struct rp_session *session = (void *)(script.region + at);
        struct rp_intent_log *log = (void *)(script.region + header->log);
        sessions[client.connection & (RP_SESSIONS_MAX - 1)].agreed ^= 1400 ^ 512;
        log->committed = 1;
        log->count = 2;
        log->after[0] = (struct rp_after){at + offsetof(struct rp_session, connection), 0};
        if (ends) {
            log->after[1].offset = header->weights + offsetof(struct rp_weights, session);
            log->after[1].value = 0;
        } else {
            log->after[0].value = session->connection;
            log->after[1].offset = at + offsetof(struct rp_session, agreed);
            log->after[1].value = session->agreed;
            session->connection = session->agreed = 0;
        }
        memcpy(had, script.region, header->state_bytes);
        for (int time = 0; time < 2 && !ends; time++) {
            CHECK(!attach_with(512) && memcmp(had, script.region, header->state_bytes) == 0);
        }
        CHECK(attach_with(ends ? 512 : 1400));
        CHECK(rp_server_sessions(script.server) == (ends ? 1 : 2));
        free(script.region);
    }
    free(had);
    script = whole;
    check_group("a session that only the redo begins or ends is compared as it will be");
}

/* Given headers that differ in one word. Expect each bit of their sums to be turned by some: none
 * that is always set, or never. */
static void sum_of_header(void) {
    struct rp_region header = *(const struct rp_region *)(const void *)script.region;
    uint64_t all = UINT64_MAX, any = 0;
    for (uint64_t i = 0; i < 200; i++) {
        header.incarnation = i;
        all &= rp_region_sum(&header);
        any |= rp_region_sum(&header);
    }
    CHECK(all == 0 && any == UINT64_MAX, "%" PRIx64 ", %" PRIx64, all, any);
    check_group("all of a header's sum depends on it");
}

/* ---- steps ---- */

/* Given one turned bit, of a step's bytes or of its checksum. Expect it told where the slot's step
 * is stored, by its key, and nothing told where nothing reads that slot. */
static void turn_step_bit(struct rp_table *table, const char *name, uint8_t *byte, uint32_t slot) {
    const struct rp_table_private *p = table->private;
    uint64_t key = rp_key_of(p->keys[slot]);
    int stored = rp_state_of(p->keys[slot]) == RP_SLOT_COMMITTED;
    char error[256] = "", said[64];
    uint8_t bit = (uint8_t)(1u << rp_random_below(&dice, 8));
    *byte ^= bit;
    int status = rp_server_verify_steps(script.server, error);
    CHECK(status == (stored ? -RP_BAD_REGION : 0), "slot %u: %d \"%s\"", slot, status, error);
    snprintf(said, sizeof said, "table %s: 1 of ", name);
    CHECK(!stored || strstr(error, said), "\"%s\"", error);
    snprintf(said, sizeof said, "the first has key %" PRIu64 ";", key);
    CHECK(!stored || strstr(error, said), "\"%s\"", error);
    *byte ^= bit;
}

static void turn_step_bits(void) {
    uint32_t stored = 0;
    for (uint32_t i = 0; i < 2; i++) {
        struct rp_table *table = rp_server_table(script.server, i);
        const struct rp_table_private *p = table->private;
        for (uint32_t slot = 0; slot < p->capacity; slot++) {
            uint64_t at = (uint64_t)slot * p->step_bytes + rp_random_below(&dice, p->step_bytes);
            turn_step_bit(table, tables[i].name, &p->steps[at], slot);
            uint8_t *sum = (uint8_t *)&p->sums[slot];
            turn_step_bit(table, tables[i].name, sum + rp_random_below(&dice, 4), slot);
            stored += rp_state_of(p->keys[slot]) == RP_SLOT_COMMITTED;
        }
        /* chunks find what the whole finds, once */
        struct rp_damage damage = {0};
        p->steps[0] ^= 1;
        p->steps[(size_t)p->step_bytes * (p->capacity - 1)] ^= 1;
        for (uint32_t at = 0, chunk = 1; at < p->capacity; chunk = chunk % 7 + 1) {
            at = rp_table_verify_steps(table, at, chunk, &damage);
        }
        uint32_t both = (rp_state_of(p->keys[0]) == RP_SLOT_COMMITTED)
            + (rp_state_of(p->keys[p->capacity - 1]) == RP_SLOT_COMMITTED);
        CHECK(damage.damaged == both && damage.steps <= p->capacity);
        p->steps[0] ^= 1;
        p->steps[(size_t)p->step_bytes * (p->capacity - 1)] ^= 1;
    }
    CHECK(stored > 100);
    printf("  %u steps stored: each one's turned bit is found by its checksum\n", stored);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    rp_random_seed(&dice, check_seed(11));
    make_server();
    region_fields(script.server->region);
    seal_fields();
    table_fields(rp_server_table(script.server, 0));
    session_fields();
    turn_step_bits();
    turn_bits();
    depth_of_a_gone_row();
    states_of_the_generator();
    damaged_assemblies();
    redo_of_header();
    redo_of_session();
    sum_of_header();
    script_close(&script);
    return check_done("test_damage");
}
