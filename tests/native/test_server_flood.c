/* A session that asks for more than it can take holds nobody up, and who asks for all that it may
 * is held up by nothing. Situations read "Given ... Expect ...". */
#include "script.h"
#include "table/store.h"

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

/* ahead: as many before it are not done. */
static void ask_for_batch(struct script_client *client, uint64_t id, uint32_t ahead) {
    struct rp_sample request = script_sample(ITEMS);
    request.under_way = (1ull << ahead) - 1;
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
        uint64_t dropped = script_counter(&script, RP_COUNT_drop_share);
        for (uint32_t i = 0; i < FLOOD; i++) {
            ask_for_batch(&flood, ++id, 0);
        }
        script_put(&script, &other, RP_OP_PING, 0, round, NULL, 0);
        ask_for_batch(&other, round, 0);
        uint32_t pings = 0, batches = 0;
        for (uint32_t turn = 0; turn < FLOOD / RP_BURST + 1; turn++) {
            uint64_t samples = script_counter(&script, RP_COUNT_samples);
            script_turn(&script);
            samples = script_counter(&script, RP_COUNT_samples) - samples;
            CHECK(samples <= drawn + 1, "%" PRIu64 " draws in a turn", samples);
            CHECK(turn > 0 || samples == drawn, "%" PRIu64 " draws", samples);
            pings += answers(&other, RP_OP_PING);
            batches += answers(&other, RP_OP_SAMPLE);
        }
        CHECK(script.port.in_count == 0 && pings == 1 && batches > 0);
        before = script_counter(&script, RP_COUNT_samples) - before;
        dropped = script_counter(&script, RP_COUNT_drop_share) - dropped;
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
        ask_for_batch(&learner, id, RECORDS);
    }
    script_turn(&script);
    struct rp_batch_datagram head;
    memcpy(&head, script_answer(&script, 0).rest, sizeof head);
    CHECK(head.datagram_count > 2 * TAKES, "%u datagrams", head.datagram_count);
    for (uint64_t id = 1; id <= ROUNDS; id++) {
        pull(&learner, id, head.datagram_count, TAKES);
        ask_for_batch(&learner, id + RECORDS, RECORDS - 1);
        script_turn(&script);
        CHECK(answers(&learner, RP_OP_SAMPLE) == TAKES);
    }
    CHECK(script_counter(&script, RP_COUNT_samples) == ROUNDS + RECORDS);
    CHECK(script_counter(&script, RP_COUNT_drop_share) == 0);
    script_close(&script);
    check_group("2 who has all the batches under way that it may is held up by nothing");
}

enum { BATCH_NS = 1000000, BURST = 16, FLOODS = 2, EACH = (SCRIPT_IN_MAX - 1) / FLOODS };

/* A turn of a burst of 16 that takes a millisecond for each batch it draws, `sent_ns` for each
 * datagram it sends, `request_ns` for each it receives, and 2 us for each link that is followed at
 * "main". */
static void timed_turn(uint64_t sent_ns, uint64_t request_ns) {
    uint64_t links = rp_server_table(script.server, 0)->private->work_total;
    uint64_t drawn = script_counter(&script, RP_COUNT_samples);
    uint64_t requests = script_counter(&script, RP_COUNT_datagrams_in);
    script.port.in_most = BURST;
    script_turn(&script);
    drawn = script_counter(&script, RP_COUNT_samples) - drawn;
    requests = script_counter(&script, RP_COUNT_datagrams_in) - requests;
    links = rp_server_table(script.server, 0)->private->work_total - links;
    uint64_t took_ns = BATCH_NS * drawn + sent_ns * script.port.out_count + request_ns * requests
                       + 2000 * links;
    rp_server_end_turn(script.server, took_ns, took_ns);
    script.now_ns += took_ns;
}

enum flood { NEW_BATCHES, ONE_BATCH_AGAIN, ITS_DATAGRAMS, ITEMS_AGAIN };

/* A PUSH of creates for items that are there, far from each other: each is looked for. */
static void begin_creates(uint64_t epoch) {
    script_push_begin(&push, epoch);
    for (uint32_t i = 0; i < 16; i++) {
        script_push_create(&push, 0, 10 + 150 * (i % 2), 1.0);
    }
}

/* 200 steps of a writer of its own at "main", and these items. */
static uint64_t store_steps(struct script_client *client) {
    uint64_t epoch = script_writer(&script, client, 0, 2).epoch;
    for (uint64_t i = 0; i < 200; i += 8) {
        script_push_begin(&push, epoch);
        script_push_run(&push, 0, i, i, 8, 0);
        CHECK_STATUS(script_push(&script, client, 0, 1 + i, &push), RP_OK);
    }
    begin_creates(epoch);
    CHECK_STATUS(script_push(&script, client, 0, 999, &push), RP_OK);
    return epoch;
}

static void ask_of(struct script_client *client, enum flood flood, uint64_t id) {
    struct rp_pull pull = {.batch = 1, .first = 0, .count = 8};
    if (flood == ITS_DATAGRAMS) {
        script_put(&script, client, RP_OP_PULL, 0, 1, &pull, sizeof pull);
    } else if (flood == ITEMS_AGAIN) {
        script_put(&script, client, RP_OP_PUSH, 0, id, push.body, push.size);
    } else {
        ask_for_batch(client, flood == NEW_BATCHES ? id : 1, 0);
    }
}

/* 3. Given two sessions that each ask for 125 of the largest batches, or so often for one they
 *    have, or its datagrams, or for items that are there, in a port whose bursts are of 16; and
 *    behind them a PING. Expect it answered after three turns' work for them, not sixteen, and both
 *    served anew in each round. */
static void situation_time(enum flood flood, uint64_t sent_ns) {
    struct script_client other, floods[FLOODS];
    fresh(&other);
    for (uint8_t i = 0; i < FLOODS; i++) {
        floods[i] = small_client((uint8_t)(2 + i), 32);
        ask_for_batch(&floods[i], 1, 0);
        script_turn(&script);
        if (flood == ITEMS_AGAIN) {
            begin_creates(store_steps(&floods[i]));
        }
    }
    for (uint64_t round = 1; round <= 3; round++) {
        for (uint64_t i = 0; i < EACH * FLOODS; i++) {
            ask_of(&floods[i % FLOODS], flood, 2 + i + 1000 * round);
        }
        script_put(&script, &other, RP_OP_PING, 0, round, NULL, 0);
        uint64_t begun_ns = script.now_ns;
        uint32_t served[FLOODS] = {0};
        do {
            timed_turn(sent_ns, 1000);
            for (uint32_t i = 0; i < FLOODS; i++) {
                served[i] += answers(&floods[i], RP_OP_SAMPLE) + answers(&floods[i], RP_OP_PUSH);
            }
        } while (answers(&other, RP_OP_PING) == 0 && script.port.in_count > 0);
        uint64_t waited_ns = script.now_ns - begun_ns;
        CHECK(waited_ns <= 35 * BATCH_NS, "%" PRIu64 " ns", waited_ns);
        CHECK(script.port.in_count == 0);
        CHECK(served[0] > 8 && served[1] > 8, "%u and %u answers", served[0], served[1]);
        rp_server_check(script.server);
        script.now_ns += 50000000;
    }
    script_close(&script);
}

/* 4. Given learners that ask for so many batches in each turn, in a port that is never empty, of
 *    turns whose other requests take a millisecond. Expect no request dropped where their batches
 *    take half of the time, or two thirds; where they would take more, about two thirds. */
static void situation_busy(uint32_t learners, uint32_t each_turn, int too_many) {
    struct script_client pusher, learner[FLOODS];
    enum { TURNS = 400 };
    fresh(&pusher);
    for (uint8_t i = 0; i < learners; i++) {
        learner[i] = small_client((uint8_t)(2 + i), 1);
    }
    uint64_t begun_ns = script.now_ns;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        for (uint32_t i = 0; i < learners * each_turn; i++) {
            ask_for_batch(&learner[i % learners], (uint64_t)turn * each_turn + i + 1, 0);
        }
        while (script.port.in_count < 2 * BURST) {
            script_put(&script, &pusher, RP_OP_PING, 0, 1, NULL, 0);
        }
        timed_turn(0, BATCH_NS / BURST);
    }
    uint64_t served = script_counter(&script, RP_COUNT_samples);
    uint64_t dropped = script_counter(&script, RP_COUNT_drop_share);
    double share = (double)(served * BATCH_NS) / (double)(script.now_ns - begun_ns);
    CHECK((dropped > 0) == too_many, "%" PRIu64 " dropped", dropped);
    CHECK(too_many ? share > 0.6 && share < 0.8 : served > learners * each_turn * (TURNS - 2),
          "%" PRIu64 " batches, %f of the time", served, share);
    script_close(&script);
}

/* 5. Given a PUSH that waits, of a session that has had more than its part, and a port that is
 *    never empty. Expect it to go on as its turn comes: its work was asked for before. */
static void situation_waiting(void) {
    struct script_client pusher = script_client(1), learner = script_client(2);
    script_tables(tables);
    config = script_config(tables);
    script_open(&script, &config);
    script_connect(&script, &pusher);
    script_connect(&script, &learner);
    uint64_t epoch = script_writer(&script, &pusher, 1, 2).epoch;
    for (uint64_t i = 0; i < 3; i++) {
        script_push_begin(&push, epoch);
        script_push_run(&push, 0, 8 * i, 8 * i, 8, 0);
        for (uint64_t k = 0; k < 8; k++) {
            script_push_create(&push, 0, 8 * i + k, 1.0);
        }
        CHECK_STATUS(script_push(&script, &pusher, 1, 1 + i, &push), i < 2 ? RP_OK : RP_BLOCKED);
    }
    struct rp_shares *shares = &script.server->shares;
    script.server->lines[0].account.used_ns = shares->used_ns = 1000000000;
    script.server->lines[0].account.window = shares->window;
    shares->sharers = 2;
    shares->debt_end_ns = script.now_ns + 10000000;
    struct rp_sample request = script_sample(16);
    script_put(&script, &learner, RP_OP_SAMPLE, 1, 1, &request, sizeof request);
    script_put(&script, &pusher, RP_OP_PUSH, 1, 9, push.body, push.size);
    script_put(&script, &learner, RP_OP_PING, 0, 1, NULL, 0);
    script.port.in_most = 2;
    script_turn(&script);
    CHECK(script_counter(&script, RP_COUNT_drop_share) == 1, "the one that comes now is dropped");
    CHECK(script_counter(&script, RP_COUNT_items_created) == 24, "the one that waited is stored");
    CHECK(answers(&learner, RP_OP_SAMPLE) > 0 && answers(&pusher, RP_OP_PUSH) == 1);
    script_close(&script);
    check_group("5 what waits is not refused as its turn comes");
}

/* The session of place 0 has had all of the time of late, and this is how long its debt lasts. */
static void in_debt(uint64_t debt_ns) {
    struct rp_shares *shares = &script.server->shares;
    script.server->lines[0].account.used_ns = shares->used_ns = 1000000000;
    script.server->lines[0].account.window = shares->window = script.now_ns / 100000000;
    shares->sharers = 2;
    shares->debt_end_ns = script.now_ns + debt_ns;
}

/* A request, and a PING behind it that is left in the port. */
static void ask_and_leave(struct script_client *client, uint16_t op, const void *body,
                          uint32_t size) {
    static uint64_t pings;
    script_put(&script, client, op, 1, 1, body, size);
    script_put(&script, client, RP_OP_PING, 0, ++pings, NULL, 0);
    script.port.in_most = 1;
    script_turn(&script);
}

/* Dropped while the session is in debt, answered and charged so much as it is repeated. */
static void paid_for(struct script_client *client, uint16_t op, const void *body, uint32_t size,
                     uint64_t work) {
    const struct rp_shares *shares = &script.server->shares;
    uint64_t dropped = script_counter(&script, RP_COUNT_drop_share);
    in_debt(30000000);
    ask_and_leave(client, op, body, size);
    CHECK(answers(client, op) == 0 && shares->work == 0);
    CHECK(script_counter(&script, RP_COUNT_drop_share) == ++dropped);
    script_turn(&script);
    in_debt(0);
    ask_and_leave(client, op, body, size);
    CHECK(answers(client, op) == 1 && shares->work == work, "op %u: %" PRIu64, op, shares->work);
    CHECK(script_counter(&script, RP_COUNT_drop_share) == dropped);
    script_turn(&script);
}

/* 6. Given requests of a session that has had more than its part, while others wait. Expect each
 *    dropped, and served as it is repeated when the debt is paid: a draw for each key of an UPDATE,
 *    found or not, and each item of a batch by keys, eight for each datagram. An UPDATE that was
 *    applied is answered, whatever the debt. */
static void situation_paid(void) {
    struct script_client learner;
    fresh(&learner);
    uint64_t epoch = rp_table_epoch(rp_server_table(script.server, 1));
    static struct {
        struct rp_update update;
        struct rp_update_entry entries[3];
    } update;
    static struct {
        struct rp_sample sample;
        uint64_t keys[2];
    } sample;
    update.update = (struct rp_update){.epoch = epoch, .count = 3};
    for (uint64_t i = 0; i < 3; i++) { /* the last is no item */
        update.entries[i] = (struct rp_update_entry){SCRIPT_CAPACITY + (i < 2 ? i : 500), 3.0};
    }
    sample.sample = script_sample(2);
    sample.sample.mode = RP_SAMPLE_KEYS;
    struct rp_blob_request blob = {.count = 1, .kind = RP_BLOB_SPEC};
    paid_for(&learner, RP_OP_UPDATE, &update, sizeof update, 3);
    CHECK(script_counter(&script, RP_COUNT_priorities_applied) == 2);
    in_debt(30000000);
    ask_and_leave(&learner, RP_OP_UPDATE, &update, sizeof update);
    CHECK(script_counter(&script, RP_COUNT_updates_repeated) == 1);
    script_turn(&script);
    paid_for(&learner, RP_OP_SAMPLE, &sample, sizeof sample, 2 + 8);
    paid_for(&learner, RP_OP_BLOB, &blob, sizeof blob, 8);
    script_close(&script);
    check_group("6 what is dropped beyond a share, and what is charged");
}

/* The client of place 0 repeats what waits for longer than a place lasts, in debt each time. */
static void repeat_in_debt(struct script_client *client, uint16_t op, uint64_t id, const void *body,
                           uint32_t size) {
    for (uint32_t i = 0; i < 5; i++) {
        script_later(&script, 800);
        in_debt(30000000);
        script_put(&script, client, op, 1, id, body, size);
        script_put(&script, client, RP_OP_PING, 0, 1, NULL, 0);
        script.port.in_most = 1;
        script_turn(&script);
        script_turn(&script);
    }
    CHECK(script_counter(&script, RP_COUNT_drop_share) == 5);
    script.port.in_most = 0;
    in_debt(0);
}

/* 7. Given a SAMPLE that waits before another's, and then a PUSH that waits, of a session in debt,
 *    so that no repeat of theirs is looked at. Expect it to have its place, and the SAMPLE the
 *    items that come first. */
static void situation_places(enum rp_wait_kind kind) {
    struct script_client first = script_client(1), second = script_client(2);
    uint64_t next = 1;
    script_tables(tables);
    tables[1].min_size = kind == RP_WAIT_SAMPLE ? 4 : tables[1].min_size;
    config = script_config(tables);
    script_open(&script, &config);
    script_connect(&script, &first);
    script_connect(&script, &second);
    uint64_t epoch = script_writer(&script, &first, 1, 2).epoch, vain = 0;
    struct rp_sample request = script_sample(4);
    if (kind == RP_WAIT_SAMPLE) {
        CHECK_STATUS(script_ask(&script, &first, RP_OP_SAMPLE, 1, 1, &request, sizeof request),
                     RP_BLOCKED);
        CHECK_STATUS(script_ask(&script, &second, RP_OP_SAMPLE, 1, 1, &request, sizeof request),
                     RP_BLOCKED);
        repeat_in_debt(&first, RP_OP_SAMPLE, 1, &request, sizeof request);
        script_push_begin(&push, epoch);
        script_push_run(&push, 0, 0, 0, 4, RP_RUN_ITEM | RP_RUN_PRIORITY);
        script_put(&script, &first, RP_OP_PUSH, 1, 9, push.body, push.size);
        script_turn(&script);
        CHECK(answers(&first, RP_OP_SAMPLE) > 0 && answers(&second, RP_OP_SAMPLE) == 0);
    } else {
        for (int status = RP_OK; status == RP_OK; next++) {
            CHECK(next < 8, "nothing holds it back");
            script_push_begin(&push, epoch);
            script_push_run(&push, 0, 8 * next - 8, 8 * next - 8, 8, 0);
            for (uint64_t k = 0; next > 1 && k < 8; k++) { /* of the PUSH before: looked for */
                script_push_create(&push, 0, 8 * next - 9 - k, 1.0);
            }
            vain = rp_table_vain(rp_server_table(script.server, 1));
            status = script_push(&script, &first, 1, next, &push).status;
        }
        vain = rp_table_vain(rp_server_table(script.server, 1)) - vain;
        CHECK(vain > 0, "what it looked for is charged");
        repeat_in_debt(&first, RP_OP_PUSH, next - 1, push.body, push.size);
        script_ask(&script, &first, RP_OP_PUSH, 1, next - 1, push.body, push.size);
        CHECK(script_counter(&script, RP_COUNT_waits_lapsed) == 0);
    }
    script_close(&script);
}

/* 8. Given more PUSHes of creates in vain than a turn has work for, in a port that they empty.
 *    Expect a turn to follow about as many links as it draws items for a session, and to drop the
 *    others, though nobody else waits. */
static void situation_vain(void) {
    struct script_client client;
    fresh(&client);
    begin_creates(store_steps(&client));
    const struct rp_table *table = rp_server_table(script.server, 0);
    uint64_t before = rp_table_vain(table), most = ITEMS * (RECORDS + 1);
    script_put(&script, &client, RP_OP_PUSH, 0, 2000, push.body, push.size);
    script_turn(&script);
    uint64_t each = rp_table_vain(table) - before, needed = most / each + 1;
    CHECK(each > 0 && needed < RP_BURST - 8, "%" PRIu64 " links each", each);
    before = rp_table_vain(table);
    for (uint64_t i = 0; i < needed + 8; i++) {
        script_put(&script, &client, RP_OP_PUSH, 0, 3000 + i, push.body, push.size);
    }
    script_turn(&script);
    uint64_t spent = rp_table_vain(table) - before;
    CHECK(spent >= most && spent < most + each && script.port.in_count == 0, "%" PRIu64, spent);
    CHECK(script_counter(&script, RP_COUNT_drop_share) == 8);
    script_close(&script);
    check_group("8 what a turn follows in vain has a bound, whoever waits");
}

int main(void) {
    situation_flood(1);
    situation_flood(32);
    check_group("1 a flood of requests for batches is drawn as far as its session has records");
    situation_lawful();
    situation_time(NEW_BATCHES, 4000);
    situation_time(ONE_BATCH_AGAIN, 100000);
    situation_time(ITS_DATAGRAMS, 100000);
    situation_time(ITEMS_AGAIN, 1000);
    check_group("3 two floods hold a PING up for three turns");
    situation_busy(1, 1, 0);
    situation_busy(1, 2, 0);
    situation_busy(2, 1, 0);
    situation_busy(1, 4, 1);
    situation_busy(2, 4, 1);
    check_group("4 two thirds of the time are the learners', where others wait");
    situation_waiting();
    situation_paid();
    situation_places(RP_WAIT_SAMPLE);
    situation_places(RP_WAIT_PUSH);
    check_group("7 a place is kept by a repeat that is dropped");
    situation_vain();
    return check_done("test_server_flood");
}
