/* A session that asks for more than it can take holds nobody up, and who asks for all that it may
 * is held up by nothing. Situations read "Given ... Expect ...". */
#include "script.h"

enum { ITEMS = 64, RECORDS = 4, FLOOD = 250 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script script;
static struct script_push push;

/* Tables of which "rows" has no limiter and `ITEMS` rows. */
static void fresh(struct script_client *writer) {
    script_tables(tables);
    tables[1].samples_per_insert = tables[1].error_min = tables[1].error_max = 0.0;
    config = script_config(tables);
    config.batch_max = ITEMS;
    config.records = RECORDS;
    script_open(&script, &config);
    *writer = script_client(1);
    script_connect(&script, writer);
    uint64_t epoch = script_writer(&script, writer, 1, 2).epoch;
    for (uint64_t i = 0; i < ITEMS; i += 8) {
        script_push_begin(&push, epoch);
        script_push_run(&push, 0, i, i, 8, RP_RUN_ITEM | RP_RUN_PRIORITY);
        CHECK_STATUS(script_push(&script, writer, 1, 100 + i, &push), RP_OK);
    }
}

static void ask_for_batch(struct script_client *client, uint64_t id) {
    struct rp_sample request = script_sample(ITEMS);
    script_put(&script, client, RP_OP_SAMPLE, 1, id, &request, sizeof request);
}

/* A client at another address, of datagrams of 512 bytes, that takes few at once. */
static struct script_client small_client(uint8_t number, uint16_t takes) {
    struct script_client client = script_client(number);
    client.mtu = 512;
    client.receive_budget = takes;
    script_connect(&script, &client);
    return client;
}

/* How many answers of this operation the turn had for the client. */
static uint32_t answers(const struct script_client *client, uint8_t op) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < script.port.out_count; i++) {
        const struct script_datagram *out = &script.port.out[i];
        found += memcmp(&out->peer, &client->peer, sizeof client->peer) == 0
                 && script_answer(&script, i).view.message->op == (op | RP_ANSWER);
    }
    return found;
}

/* 1. Given hundreds of requests for the largest batch, of a session that takes a datagram of each
 *    and asks for no more, or all of each at once; and behind them a PING and a SAMPLE of another
 *    one. Expect no turn with more draws for it than the session has records, and one; each other
 *    request dropped and counted; the PING and the SAMPLE answered in the turn they come up. */
static void situation_flood(uint16_t takes) {
    struct script_client other, flood;
    fresh(&other);
    flood = small_client(2, takes);
    uint64_t id = 0, drawn = RECORDS + 1;
    for (uint64_t round = 1; round <= 3; round++) {
        uint64_t before = script_counter(&script, RP_COUNT_samples);
        uint64_t dropped = script_counter(&script, RP_COUNT_drop_no_room);
        for (uint32_t i = 0; i < FLOOD; i++) {
            ask_for_batch(&flood, ++id);
        }
        script_put(&script, &other, RP_OP_PING, 0, round, NULL, 0);
        ask_for_batch(&other, round);
        uint32_t pings = 0, batches = 0;
        for (uint32_t turn = 0; turn < FLOOD / RP_BURST + 1; turn++) {
            uint64_t samples = script_counter(&script, RP_COUNT_samples);
            script_turn(&script);
            samples = script_counter(&script, RP_COUNT_samples) - samples;
            CHECK(samples <= drawn + 1, "%" PRIu64 " draws in a turn", samples);
            pings += answers(&other, RP_OP_PING);
            batches += answers(&other, RP_OP_SAMPLE);
        }
        CHECK(script.port.in_count == 0 && pings == 1 && batches > 0);
        before = script_counter(&script, RP_COUNT_samples) - before;
        dropped = script_counter(&script, RP_COUNT_drop_no_room) - dropped;
        CHECK(before > 2 * drawn, "%" PRIu64 " draws: each turn begins anew", before);
        CHECK(dropped == FLOOD + 1 - before, "%" PRIu64 " dropped", dropped);
        rp_server_check(script.server);
    }
    script_close(&script);
}

/* Pulls a batch to its end, as far as the client takes it in one go. */
static void pull(struct script_client *client, uint64_t id, uint32_t datagrams, uint32_t takes) {
    for (uint32_t first = takes; first < datagrams; first += takes) {
        struct rp_pull wanted = {.batch = id, .first = first, .count = takes};
        script_put(&script, client, RP_OP_PULL, 0, id, &wanted, sizeof wanted);
        script_turn(&script);
        CHECK(answers(client, RP_OP_SAMPLE) > 0, "batch %" PRIu64 " is on record", id);
    }
}

/* 2. Given a client that has as many of the largest batches under way as there are records, and
 *    asks for the next as it has one, all at once. Expect none of them dropped. */
static void situation_lawful(void) {
    struct script_client writer, learner;
    enum { ROUNDS = 100, TAKES = 3 };
    fresh(&writer);
    learner = small_client(2, TAKES);
    for (uint64_t id = 1; id <= RECORDS; id++) {
        ask_for_batch(&learner, id);
    }
    script_turn(&script);
    struct rp_batch_datagram head;
    memcpy(&head, script_answer(&script, 0).rest, sizeof head);
    CHECK(head.datagram_count > 2 * TAKES, "%u datagrams", head.datagram_count);
    for (uint64_t id = 1; id <= ROUNDS; id++) {
        pull(&learner, id, head.datagram_count, TAKES);
        ask_for_batch(&learner, id + RECORDS);
        script_turn(&script);
        CHECK(answers(&learner, RP_OP_SAMPLE) == TAKES);
    }
    CHECK(script_counter(&script, RP_COUNT_samples) == ROUNDS + RECORDS);
    CHECK(script_counter(&script, RP_COUNT_drop_no_room) == 0);
    script_close(&script);
    check_group("2 who has all the batches under way that it may is held up by nothing");
}

int main(void) {
    situation_flood(1);
    situation_flood(32);
    check_group("1 a flood of requests for batches is drawn as far as its session has records");
    situation_lawful();
    return check_done("test_server_flood");
}
