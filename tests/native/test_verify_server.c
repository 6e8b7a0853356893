/* Test_verify's, for what is not in a table: sessions, their records, weights. */
#include "verify_world.h"

/* Whose a writer is stands in the region, and once more in the process's memory. */
static void set_owner(struct rp_table_private *table, uint32_t writer, uint64_t session) {
    set(&rp_writer_at(table, writer)->session, session);
    set(&table->owners[writer], session);
}

/* ---- sessions ---- */

static void wrong_sessions(void) {
    struct rp_session *s = &script.server->sessions[0];
    uint64_t rest = s->agreed & ~(uint64_t)UINT32_MAX, size = s->peer[0];
    const char *mtu = "mtu >= RP_MTU_MIN && mtu <= v->server->limits.mtu && mtu % 8 == 0";
    set(&s->connection, s->connection + 1);
    SERVER("session", 0, "(session->connection & (RP_SESSIONS_MAX - 1)) == v->number");
    set(&s->connection, RP_SESSIONS_MAX);
    set_owner(p, 0, RP_SESSIONS_MAX);
    set_owner(rp_server_table(script.server, 1)->private, 0, RP_SESSIONS_MAX);
    set(&script.server->weights->session, RP_SESSIONS_MAX);
    WHOLE;
    set(&script.server->sessions[1].connection, 1);
    SERVER("session", 1, "session->connection >> RP_SESSION_INDEX_BITS != 0");
    set(&s->agreed, rest | RP_MTU_MIN);
    WHOLE;
    set(&s->agreed, rest | (RP_MTU_MIN - 8));
    SERVER("session", 0, mtu);
    set(&s->agreed, rest | config.mtu);
    WHOLE;
    set(&s->agreed, rest | (config.mtu + 8));
    SERVER("session", 0, mtu);
    set(&s->agreed, rest | (config.mtu - 4));
    SERVER("session", 0, mtu);
    const char *idle = "session->idle_ms >= 1 && session->idle_ms <= UINT32_MAX";
    set(&s->idle_ms, UINT32_MAX);
    WHOLE;
    set(&s->idle_ms, 0);
    SERVER("session", 0, idle);
    set(&s->idle_ms, 1ull << 32);
    SERVER("session", 0, idle);
    CHECK(size != 0);
    struct rp_once *once[3] = {&s->sample, &s->update, &s->publish};
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(i != 0 || once[i]->newest == 3);
        set(&s->record_id[0], 0); /* what was drawn is newer else */
        set(&s->record_id[1], 0);
        set(&once[i]->newest, 0);
        set(&once[i]->done, 1);
        if (i > 0) {
            SERVER("session", 0, "once->newest > 0 || once->done == 0");
        } else {
            put_back();
        }
        set(&once[i]->newest, 3);
        set(&once[i]->done, 7);
        WHOLE;
        set(&once[i]->newest, 3);
        set(&once[i]->done, 15);
        SERVER("session", 0,
               "once->newest >= RP_ONCE_WINDOW || once->done >> once->newest == 0");
        set(&once[i]->newest, RP_ONCE_WINDOW);
        set(&once[i]->done, UINT64_MAX);
        WHOLE;
        set(&once[i]->newest, RP_ONCE_WINDOW - 1);
        set(&once[i]->done, UINT64_MAX);
        SERVER("session", 0,
               "once->newest >= RP_ONCE_WINDOW || once->done >> once->newest == 0");
        set(&once[i]->newest, 3);
        set(&once[i]->done, 6);
        if (i < 2) {
            SERVER("session", 0, "!at_once || once->newest == 0 || once->done & 1");
        } else {
            WHOLE; /* a version is assembled before it is done */
        }
    }
}

static void wrong_records(void) {
    struct rp_session *s = &script.server->sessions[0];
    CHECK(s->record_id[2] == 3);
    struct rp_record *r = rp_region_record(script.server, 0, 2);
    set(&s->record_id[config.records], 1);
    SERVER("session", 0, "i < server->limits.records || id == 0");
    set(&s->record_id[RP_RECORDS_MAX - 1], 1);
    SERVER("session", 0, "i < server->limits.records || id == 0");
    set(&s->record_id[2], 4);
    SERVER("session", 0, "id <= session->sample.newest");
    set(&s->record_id[2], s->record_id[0]);
    SERVER("session", 0, "id == 0 || session->record_id[j] != id");
    set(&s->record_id[2], 2);
    SERVER("session", 0, "id == 0 || session->record_id[j] != id");
    set(&r->table_plan, 2);
    SERVER("session", 0, "number < server->limits.table_count && record->reserved == 0");
    set(&r->reserved, 1);
    SERVER("session", 0, "number < server->limits.table_count && record->reserved == 0");
    set(&r->table_plan, 1 | 1 << 16);
    SERVER("session", 0, "plan < rp_table_plan_count(table)");
    struct rp_batch head = r->head;
    const char *count = "record->head.count >= 1 && record->head.count <= server->limits.batch_max";
    for (uint32_t i = 0; i < 7; i++) {
        r->head.count = i == 0 ? 0 : i == 1 ? config.batch_max : i == 2 ? config.batch_max + 1
                                                                          : head.count;
        r->head.item_bytes += i == 3;
        r->head.capacity += i == 4;
        r->head.drawable = i == 5 ? head.capacity : i == 6 ? head.capacity + 1 : head.drawable;
        if (i == 1 || i == 5) {
            WHOLE;
        } else {
            SERVER("session", 0,
                   i < 3    ? count
                   : i == 3 ? "record->head.item_bytes == rp_table_item_bytes(table, "
                              "(uint32_t)plan)"
                   : i == 4 ? "record->head.capacity == rp_table_capacity(table)"
                            : "record->head.drawable <= record->head.capacity");
        }
        r->head = head;
    }
}

/* Given a batch of windows whose record names other rows than its items have: which no attach can
 * tell from a batch drawn before an episode went on. Expect each served as overwritten, but the one
 * that needs no other row. */
static void other_windows(void) {
    enum { COUNT = 8, ITEM_BYTES = 32, ID = 10 };
    static const struct {
        int behind, ahead;
    } change[] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}, {0, 3}, {-1, 3}, {-1, -2}};
    static struct script_batch batch;
    struct rp_sample request = script_sample(COUNT);
    request.plan = 1;
    uint32_t place = 0; /* of this one: those before it are done */
    CHECK_STATUS(script_ask(&script, &client, RP_OP_SAMPLE, 0, ID, &request, sizeof request),
                 RP_OK);
    struct rp_record *record = rp_region_record(script.server, 0, place);
    CHECK(record->head.count == COUNT);
    struct rp_batch_item drawn[COUNT];
    memcpy(drawn, record->items, sizeof drawn);
    for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
        for (uint32_t j = 0; j < COUNT; j++) {
            CHECK(drawn[j].behind == 1 && drawn[j].ahead == 2, "item %u", j);
            record->items[j].behind = (uint16_t)(drawn[j].behind + change[i].behind);
            record->items[j].ahead = (uint16_t)(drawn[j].ahead + change[i].ahead);
        }
        memset(&batch, 0, sizeof batch);
        script_ask(&script, &client, RP_OP_SAMPLE, 0, ID, &request, sizeof request);
        script_collect(&script, ID, client.mtu, COUNT, ITEM_BYTES, &batch);
        for (uint32_t j = 0; j < COUNT; j++) {
            int alone = record->items[j].behind == 0 && record->items[j].ahead == 0;
            CHECK(batch.overwritten[j] == !alone, "change %zu, item %u", i, j);
            CHECK((batch.values[j][2] == 0) == !alone);
        }
    }
    memcpy(record->items, drawn, sizeof drawn);
}

static void wrong_writers(void) {
    struct rp_writer *writer = rp_writer_at(p, 0);
    set_owner(p, 0, writer->session + RP_SESSIONS_MAX);
    SERVER("the session of writer", 0,
           "session == 0 || session == server->region->ending || rp_session_find(server, session) "
           "!= RP_NOBODY");
    set_owner(p, 0, writer->session + RP_SESSIONS_MAX);
    set(&script.server->region->ending, writer->session);
    WHOLE;
    set_owner(p, 1, writer->session);
    SERVER("the session of writer", 1,
           "session == 0 || rp_writer_find(table, session) == (int)v->number");
}

/* ---- weights ---- */

static void wrong_weights(void) {
    struct rp_weights *w = script.server->weights;
    uint64_t *bitmap = script.server->weights_bitmap, most = config.weights_max;
    uint32_t taken = w->slot[0].version ? 0 : 1, into = (uint32_t)w->into;
    const char *sums = "missing == weights->missing && missing > 0 && sum == weights->sum";
    CHECK(w->session && w->slot[taken].version && w->missing == 1 && into != taken);
    set(&w->slot[taken].size, most);
    WHOLE;
    set(&w->slot[taken].size, most + 1);
    SERVER("weights", taken, "slot->version == 0 || slot->size <= v->server->limits.weights_max");
    set(&w->slot[taken].crc, UINT32_MAX);
    WHOLE;
    set(&w->slot[taken].crc, (uint64_t)UINT32_MAX + 1);
    SERVER("weights", taken, "slot->version == 0 || slot->crc <= UINT32_MAX");
    set(&w->newest, w->newest + 1);
    SERVER("weights", RP_WEIGHTS_SLOTS, "newest == weights->newest");
    for (uint32_t i = 0; i < RP_WEIGHTS_SLOTS; i++) {
        if (i != taken && i != into) {
            set(&w->slot[i].version, w->newest);
            SERVER("weights", i > taken ? i : taken,
                   "slot->version == 0 || slot->version != weights->slot[j].version");
        }
    }
    const char *where =
        "weights->into < RP_WEIGHTS_SLOTS && weights->slot[weights->into].version == 0";
    set(&w->into, RP_WEIGHTS_SLOTS);
    SERVER("weights", RP_WEIGHTS_SLOTS, where);
    set(&w->into, taken);
    SERVER("weights", RP_WEIGHTS_SLOTS, where);
    const char *size = "weights->size > 0 && weights->size <= server->limits.weights_max";
    set(&w->size, 0);
    SERVER("weights", RP_WEIGHTS_SLOTS, size);
    set(&w->size, most + 1);
    SERVER("weights", RP_WEIGHTS_SLOTS, size);
    const char *piece = "weights->piece > 0 && weights->piece % 8 == 0";
    set(&w->piece, 0);
    SERVER("weights", RP_WEIGHTS_SLOTS, piece);
    set(&w->piece, 1004);
    SERVER("weights", RP_WEIGHTS_SLOTS, piece);
    set(&w->piece, 8);
    SERVER("weights", RP_WEIGHTS_SLOTS, "pieces <= rp_weights_pieces_max(&server->limits)");
    set(&w->missing, 2);
    SERVER("weights", RP_WEIGHTS_SLOTS, sums);
    set(&w->sum, w->sum + 1);
    SERVER("weights", RP_WEIGHTS_SLOTS, sums);
    set(bitmap, *bitmap & ~2ull);
    SERVER("weights", RP_WEIGHTS_SLOTS, sums);
    set(bitmap, *bitmap & ~2ull);
    set(&w->missing, 2);
    SERVER("weights", RP_WEIGHTS_SLOTS, sums);
    set(&w->size, 70 * 8); /* 70 pieces, of which the last one is missing */
    set(&w->piece, 8);
    set(&w->missing, 1);
    set(&bitmap[0], UINT64_MAX);
    set(&bitmap[1], (1u << 5) - 1);
    uint64_t sum = 0;
    const uint8_t *bytes = script.server->weights_bytes + into * script.server->weights_stride;
    for (uint32_t i = 0; i < 69; i++) {
        sum ^= rp_crc32c_share(rp_crc32c(0, bytes + 8 * i, 8), 8 * (69 - i));
    }
    set(&w->sum, sum);
    WHOLE;
    set(&w->session, w->session + RP_SESSIONS_MAX);
    SERVER("weights", RP_WEIGHTS_SLOTS,
           "rp_session_find(server, weights->session) != RP_NOBODY");
    set(&w->session, 0); /* no assembly: its words say nothing */
    set(&w->piece, 0);
    WHOLE;
}

/* Given wrong words in every place that no session has. Expect the attach to go on, and so the next
 * one, behind a session that was opened there and drew. */
static void free_places(void) {
    struct rp_sample request = script_sample(4);
    struct script_client other = script_client(2);
    char error[256] = "";
    uint8_t entropy[32];
    script_entropy(entropy, 7);
    for (uint32_t i = 1; i < config.sessions_max; i++) {
        struct rp_session *session = &script.server->sessions[i];
        CHECK(session->connection == 0);
        memset(session->record_id, 1, sizeof session->record_id);
        for (uint32_t j = 0; j < config.records; j++) {
            rp_region_record(script.server, i, j)->reserved = 1;
        }
    }
    for (uint32_t attach = 0; attach < 2; attach++) {
        int status = rp_server_attach(&script.server, script.region, script.bytes, &config,
                                      entropy, script.now_ns, error);
        CHECK(status == 0, "attach %u: %s", attach, error);
        if (attach == 0) {
            script_connect(&script, &other);
            CHECK_STATUS(
                script_ask(&script, &other, RP_OP_SAMPLE, 1, 1, &request, sizeof request), RP_OK);
        }
    }
}

int main(void) {
    make_server();
    wrong_sessions();
    wrong_records();
    wrong_writers();
    wrong_weights();
    check_group("sessions, records and weights");
    printf("  %u cases\n", cases);
    rp_server_check(script.server);
    other_windows();
    check_group("a batch whose windows are others");
    free_places();
    check_group("places that no session has");
    script_close(&script);
    return check_done("test_verify_server");
}
