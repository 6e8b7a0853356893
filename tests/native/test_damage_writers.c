/* Every bit of what a table knows of its writers, turned one after another: the writers' words,
 * their streams', and the entries around the newest. The copy is attached to; where that is taken,
 * both rings go round, with creates, draws of every plan, and the steps that waited; and another
 * server has to take over what this one leaves. Nothing ends a server.
 *
 * The streams go on side by side, as lockstep environments push, so that their newest steps lie
 * side by side too and are of one depth: a wrong bit names another stream's.
 */
#include "script.h"
#include "server/server_state.h"
#include "table/store.h"

enum { ROUNDS = 30, ENTRIES = 8 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script script;
static struct script_client client;
static uint64_t epochs[2];
static uint64_t id = 1000;
static uint32_t taken, refused;

/* ---- a server with two streams in each table, side by side, and steps that wait ---- */

static void pieces(uint16_t table, uint16_t stream, uint64_t sequence, uint64_t step,
                   uint16_t piece) {
    static struct script_push push;
    uint64_t bytes = 7;
    struct rp_run run = {.sequence = sequence, .step = step, .stream = stream, .count = 1,
                         .piece = piece, .piece_count = 2, .size = sizeof bytes};
    script_push_begin(&push, epochs[table]);
    script_push_bytes(&push, run, &bytes);
    script_push(&script, &client, table, ++id, &push);
}

/* A step of both streams in one message, from the sequence and steps that the server is at. */
static void go_on(uint16_t table, uint32_t round) {
    static struct script_push push;
    struct rp_table *t = rp_server_table(script.server, table);
    int writer = rp_writer_find(t, client.connection);
    if (writer < 0) {
        return; /* the damage was in whose it is */
    }
    uint64_t sequence = rp_writer_next(t, writer);
    uint16_t flags = table == 1 ? RP_RUN_ITEM : round % 29 == 28 ? RP_RUN_END : 0;
    script_push_begin(&push, epochs[table]);
    for (uint16_t i = 0; i < 2; i++) {
        uint64_t step = rp_stream_at(t->private, (uint32_t)writer, i)->next_step;
        script_push_run(&push, i, sequence + i, step, 1, flags);
    }
    for (uint16_t i = 0; table == 0 && i < 2; i++) {
        uint64_t step = rp_stream_at(t->private, (uint32_t)writer, i)->next_step;
        for (uint64_t back = 2; back < 4 && step > 4; back++) {
            script_push_create(&push, i, step - back, 1.0 + round % 5);
        }
    }
    script_push(&script, &client, table, ++id, &push);
}

static void draw(uint16_t table, uint16_t plan) {
    struct rp_sample request = script_sample(32);
    request.plan = plan;
    script_ask(&script, &client, RP_OP_SAMPLE, table, ++id, &request, sizeof request);
}

static void make_server(void) {
    static struct script_push push;
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    config = script_config(tables);
    script_open(&script, &config);
    client = script_client(1);
    script_connect(&script, &client);
    for (uint16_t table = 0; table < 2; table++) {
        epochs[table] = script_writer(&script, &client, table, 2).epoch;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            go_on(table, round);
        }
        uint64_t first = 2 * ROUNDS; /* half there; behind it two that wait, two that are missing,
                                      * and three pieces of two */
        pieces(table, 0, first, ROUNDS, 0);
        script_push_begin(&push, epochs[table]);
        script_push_run(&push, 0, first + 1, ROUNDS + 1, 2,
                        table == 1 ? RP_RUN_ITEM | RP_RUN_PRIORITY : 0);
        script_push(&script, &client, table, ++id, &push);
        pieces(table, 1, first + 4, ROUNDS + 1, 0);
        pieces(table, 1, first + 4, ROUNDS + 1, 1);
        pieces(table, 1, first + 5, ROUNDS + 2, 1);
    }
    rp_server_check(script.server);
}

/* ---- one bit ---- */

static int attach(uint8_t salt) {
    char error[256] = "";
    uint8_t entropy[32];
    script_entropy(entropy, salt);
    int status = rp_server_attach(&script.server, script.region, script.bytes, &config, entropy,
                                  script.now_ns, error);
    CHECK(status == 0 || status == -RP_BAD_REGION, "%d %s", status, error);
    return status == 0;
}

/* What was missing comes, then the ring goes round. */
static void work(uint16_t table) {
    static struct script_push push;
    uint64_t first = 2 * ROUNDS;
    pieces(table, 0, first, ROUNDS, 1);
    script_push_begin(&push, epochs[table]);
    script_push_run(&push, 1, first + 3, ROUNDS, 1, table == 1 ? RP_RUN_ITEM : 0);
    script_push(&script, &client, table, ++id, &push);
    pieces(table, 1, first + 5, ROUNDS + 2, 0);
    for (uint32_t round = ROUNDS; round < ROUNDS + SCRIPT_CAPACITY / 2 + 20; round++) {
        go_on(table, round);
        if (round % 8 == 0) {
            draw(table, table == 0 ? round / 8 % 2 : 0);
        }
    }
}

static void turn(const struct script *whole, const uint64_t *word, uint32_t bit) {
    struct script_client kept = client;
    uint64_t at = (uint64_t)((const uint8_t *)word - whole->region);
    script = *whole;
    script.unchecked = 1;
    script.region = aligned_alloc(64, (script.bytes + 63) / 64 * 64);
    memcpy(script.region, whole->region, script.bytes);
    script.region[at + bit / 8] ^= (uint8_t)(1u << bit % 8);
    if (attach(9)) {
        work(0);
        work(1);
        script_forget(&script);
        CHECK(attach(10), "word %" PRIu64 ", bit %u: the next server refuses it", at, bit);
        taken++;
    } else {
        refused++;
    }
    free(script.region);
    client = kept;
}

static void turn_all(const struct script *whole, const void *first, size_t bytes) {
    for (size_t word = 0; word < bytes / 8; word++) {
        for (uint32_t bit = 0; bit < 64; bit++) {
            turn(whole, (const uint64_t *)first + word, bit);
        }
    }
}

int main(void) {
    make_server();
    script_forget(&script);
    const struct script whole = script;
    for (uint16_t table = 0; table < 2; table++) {
        const struct rp_table_private *p = rp_server_table(whole.server, table)->private;
        const struct rp_writer *writer = rp_writer_at(p, 0);
        turn_all(&whole, writer, sizeof *writer);
        turn_all(&whole, rp_stream_at(p, 0, 0), 2 * sizeof(struct rp_stream));
        for (uint64_t s = 2 * ROUNDS - 2; s < 2 * ROUNDS - 2 + ENTRIES; s++) {
            turn_all(&whole, rp_entry_at(p, 0, s), p->entry_words * sizeof(uint64_t));
        }
    }
    script = whole;
    rp_server_check(script.server);
    CHECK(refused > taken / 2 && taken > 0);
    printf("  %u bits refused, %u taken and served\n", refused, taken);
    check_group("every bit of writers, streams and entries");
    script_close(&script);
    return check_done("test_damage_writers");
}
