/* What a server measures is what happened: each request once, in the bucket its time lies in,
 * each wait with its length, ages as in the batch, and sessions by place.
 *
 * Oracle: tallies kept beside the requests, and a bucket found by walking the bounds. */
#include "base/random.h"
#include "script.h"

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct script script;
static struct script_push push;
static struct rp_measures told;

/* Into memory that held something else. Places that are not there have no state. */
static void look(void) {
    static const struct rp_session_state none;
    memset(&told, 0xff, sizeof told);
    rp_server_measure(script.server, script.now_ns, &told);
    for (uint32_t i = config.sessions_max; i < RP_SESSIONS_METERED; i++) {
        CHECK(memcmp(&told.states[i], &none, sizeof none) == 0, "place %u", i);
    }
    CHECK(told.fact_count == 0 && told.dropped_in == 0 && told.dropped_out == 0);
}

static void fresh(void) {
    script_tables(tables);
    config = script_config(tables);
    script_open(&script, &config);
}

static uint64_t total(const struct rp_histogram *histogram) {
    uint64_t sum = 0;
    for (int i = 0; i < RP_BUCKETS; i++) {
        sum += histogram->counts[i];
    }
    return sum;
}

static int walked(uint64_t value) {
    int bucket = 0;
    while (value > rp_histogram_bound(bucket)) {
        bucket++;
    }
    return bucket;
}

/* 1. Given values around every power of two, and small ones. Expect the bucket whose bounds they
 * lie between, and bounds that rise. */
static void situation_buckets(void) {
    for (int i = 1; i < RP_BUCKETS; i++) {
        CHECK(rp_histogram_bound(i) > rp_histogram_bound(i - 1));
        CHECK(rp_histogram_bound(i) / 2 <= rp_histogram_bound(i - 1), "%d", i);
    }
    CHECK(rp_histogram_bound(RP_BUCKETS - 1) == UINT64_MAX);
    for (uint64_t value = 0; value < 5000; value++) {
        CHECK((int)rp_histogram_bucket(value) == walked(value), "%" PRIu64, value);
    }
    for (int bit = 2; bit < 64; bit++) {
        for (uint64_t near = 0; near < 5; near++) {
            uint64_t value = (1ull << bit) + near - 2;
            CHECK((int)rp_histogram_bucket(value) == walked(value), "%" PRIu64, value);
            value += 1ull << (bit - 1);
            CHECK((int)rp_histogram_bucket(value) == walked(value), "%" PRIu64, value);
        }
    }
    check_group("1 buckets and their bounds");
}

/* 2. Given turns of many requests, some refused, some damaged, each turn with a time. Expect each
 * request that was opened once in its operation's bucket of that time; a time told twice: once. */
static void situation_operations(void) {
    static const uint8_t operations[] = {RP_OP_PING, RP_OP_STATS, RP_OP_TABLE, RP_OP_SAMPLE};
    static struct rp_histogram expected[RP_OPERATIONS];
    struct rp_random random;
    rp_random_seed(&random, check_seed(11));
    fresh();
    struct script_client client = script_client(1);
    script_connect(&script, &client);
    rp_server_end_turn(script.server, 77, 77); /* of the turn that served OPEN */
    expected[RP_OP_OPEN].sum = 77;
    expected[RP_OP_OPEN].counts[walked(77)] = 1;
    uint64_t requests = 1;
    for (int turn = 0; turn < 300; turn++) {
        uint32_t count = 1 + (uint32_t)rp_random_below(&random, 40);
        uint64_t took = rp_random_next(&random) >> rp_random_below(&random, 64) >> 20;
        for (uint32_t i = 0; i < count; i++) {
            static const uint8_t damaged[64];
            uint8_t operation = operations[rp_random_below(&random, sizeof operations)];
            uint8_t body[40] = {0}; /* a refused SAMPLE counts too */
            script_put(&script, &client, operation, 0, requests + 1, body, sizeof body);
            script_put_raw(&script, &client.peer, damaged, i % 2 * sizeof damaged);
            expected[operation].sum += took;
            expected[operation].counts[walked(took)]++;
            requests++;
            if (script.port.in_count >= RP_BURST - 2) {
                break;
            }
        }
        script_turn(&script);
        rp_server_end_turn(script.server, took, took);
        rp_server_end_turn(script.server, took, took);
    }
    look();
    uint64_t sum = 0;
    for (int i = 0; i < RP_OPERATIONS; i++) {
        CHECK(memcmp(&told.operations[i], &expected[i], sizeof *expected) == 0, "%s",
              rp_operation_name(i));
        sum += total(&told.operations[i]);
    }
    CHECK(sum == requests);
    script_close(&script);
    check_group("2 each request once, under its operation and its turn's time");
}

static void push_rows(struct script_client *client, uint64_t epoch, uint64_t first,
                      uint16_t count) {
    script_push_begin(&push, epoch);
    script_push_run(&push, 0, first, first, count, RP_RUN_ITEM);
    CHECK_STATUS(script_push(&script, client, 1, 100 + first, &push), RP_OK);
}

/* 3. Given a SAMPLE that waits 7 ms for items. Expect it waiting, then one wait of 7 ms; of two
 * that wait when their session closes: gone. */
static void situation_waits(void) {
    fresh();
    struct script_client writer = script_client(1), reader = script_client(2);
    script_connect(&script, &writer);
    script_connect(&script, &reader);
    uint64_t epoch = script_writer(&script, &writer, 1, 2).epoch;
    struct rp_sample request = script_sample(3);
    CHECK_STATUS(script_ask(&script, &reader, RP_OP_SAMPLE, 1, 1, &request, sizeof request),
                 RP_BLOCKED);
    look();
    CHECK(told.tables[1].samples_waiting == 1 && told.tables[0].samples_waiting == 0);
    CHECK(told.tables[1].holds_samples == 1 && told.tables[1].holds_inserts == 0);
    CHECK(total(&told.samples_waited) == 0);
    script_later(&script, 7);
    push_rows(&writer, epoch, 0, 10);
    look();
    CHECK(told.tables[1].samples_waiting == 0 && told.tables[1].holds_samples == 0);
    CHECK(told.samples_waited.sum == 7000000 && total(&told.samples_waited) == 1);
    CHECK(told.samples_waited.counts[walked(7000000)] == 1);
    push_rows(&writer, epoch, 10, 10);
    script_push_begin(&push, epoch);
    script_push_run(&push, 0, 20, 20, 5, RP_RUN_ITEM);
    CHECK_STATUS(script_push(&script, &writer, 1, 500, &push), RP_BLOCKED);
    look();
    CHECK(told.tables[1].pushes_waiting == 1);
    CHECK_STATUS(script_ask(&script, &writer, RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
    look();
    CHECK(told.tables[1].pushes_waiting == 0 && total(&told.pushes_waited) == 1);
    script_close(&script);
    check_group("3 waiting, and how long");
}

/* 4. Given batches after many steps. Expect the ages of every fourth item, as the batch has them;
 * none for items named by key. */
static void situation_ages(void) {
    static struct script_batch batch;
    static struct rp_histogram expected;
    fresh();
    struct script_client client = script_client(1);
    script_connect(&script, &client);
    uint64_t epoch = script_writer(&script, &client, 1, 2).epoch;
    struct rp_sample request = script_sample(10);
    for (uint64_t id = 1; id <= 30; id++) {
        push_rows(&client, epoch, (id - 1) * 10, 10);
        CHECK_STATUS(script_ask(&script, &client, RP_OP_SAMPLE, 1, id, &request, sizeof request),
                     RP_OK);
        script_collect(&script, id, client.mtu, request.count, 16, &batch);
        for (uint32_t i = 0; i < request.count; i += RP_AGES_EVERY) {
            uint64_t age = batch.head.head - 1 - batch.items[i].key;
            CHECK(age < 10 * id);
            expected.sum += age;
            expected.counts[walked(age)]++;
        }
    }
    struct {
        struct rp_sample request;
        uint64_t keys[2];
    } named = {script_sample(2), {batch.items[0].key, batch.items[1].key}};
    named.request.mode = RP_SAMPLE_KEYS;
    CHECK_STATUS(script_ask(&script, &client, RP_OP_SAMPLE, 1, 99, &named, sizeof named), RP_OK);
    look();
    CHECK(memcmp(&told.tables[1].ages, &expected, sizeof expected) == 0);
    CHECK(total(&told.tables[1].ages) == 30 * 3 && told.tables[1].info.sampled == 30 * 10);
    CHECK(total(&told.tables[0].ages) == 0);
    script_close(&script);
    check_group("4 ages at sampling");
}

/* 5. Given two sessions, a refusal, a repeated packet, and one that closes and whose place is
 * taken. Expect what each place did, added up over its sessions. */
static void situation_sessions(void) {
    fresh();
    struct script_client first = script_client(1), second = script_client(2);
    script_connect(&script, &first);
    script_connect(&script, &second);
    uint64_t epoch = script_writer(&script, &first, 1, 2).epoch;
    push_rows(&first, epoch, 0, 12);
    struct rp_sample request = script_sample(5);
    CHECK_STATUS(script_ask(&script, &second, RP_OP_SAMPLE, 1, 1, &request, sizeof request), RP_OK);
    request.plan = 9;
    script_ask(&script, &second, RP_OP_SAMPLE, 1, 2, &request, sizeof request);
    struct {
        struct rp_update head;
        struct rp_update_entry entry;
    } stale = {{.epoch = epoch + 1, .count = 1}, {.key = 1, .priority = 1.0}};
    CHECK_STATUS(script_ask(&script, &first, RP_OP_UPDATE, 1, 1, &stale, sizeof stale),
                 RP_STALE_EPOCH);
    second.packet--;
    script_put(&script, &second, RP_OP_PING, 0, 3, NULL, 0);
    CHECK(script_turn(&script) == 0);
    script_later(&script, 40);
    look();
    const struct rp_session_meter *writer = &told.meters[0], *reader = &told.meters[1];
    CHECK(writer->requests == 3 && writer->steps == 12 && writer->items == 0);
    CHECK(writer->answers == 4, "OPEN's is one");
    CHECK(reader->requests == 2 && reader->items == 5 && reader->steps == 0);
    CHECK(reader->refused == 1 && reader->dropped == 1);
    CHECK(writer->refused == 1 && writer->dropped == 0, "an UPDATE's refusal is recorded, and one");
    uint64_t strangers = 2 * (RP_HEADER_BYTES + sizeof(struct rp_hello))
                         + 2 * (RP_HEADER_BYTES + sizeof(struct rp_open));
    uint64_t repeated = RP_HEADER_BYTES + RP_REQUEST_BODY_MIN;
    CHECK(writer->bytes_in + reader->bytes_in + strangers + repeated
          == script_counter(&script, RP_COUNT_bytes_in));
    uint64_t cookies = 2 * (RP_ANSWER_BYTES + sizeof(struct rp_cookie));
    CHECK(writer->bytes_out + reader->bytes_out + cookies
          == script_counter(&script, RP_COUNT_bytes_out));
    CHECK(writer->bytes_out > 0 && writer->bytes_out < reader->bytes_out);
    CHECK(told.states[0].open && told.states[1].open && !told.states[2].open);
    CHECK(told.states[1].silence_ns == 40000000 && told.sessions == 2);
    struct script_client third = script_client(3), more[] = {script_client(4), script_client(5)};
    script_connect(&script, &more[0]); /* then the place that is closed is the only free one */
    script_connect(&script, &more[1]);
    CHECK_STATUS(script_ask(&script, &second, RP_OP_CLOSE, 0, 1, NULL, 0), RP_OK);
    script_connect(&script, &third);
    script_ask(&script, &third, RP_OP_PING, 0, 1, NULL, 0);
    look();
    CHECK(told.meters[1].requests == 4 && told.meters[1].items == 5 && told.states[1].open);
    script_kill(&script);
    look();
    CHECK(told.meters[0].requests == 0 && told.states[0].open && told.sessions == 4);
    script_close(&script);
    check_group("5 sessions by place");
}

/* 6. Given more sessions than there are places with numbers of their own. Expect the rest in the
 * last. */
static void situation_many_sessions(void) {
    enum { COUNT = RP_SESSIONS_METERED + 10 };
    script_tables(tables);
    config = script_config(tables);
    config.sessions_max = COUNT;
    config.receive_budget = COUNT;
    script_open(&script, &config);
    for (uint8_t i = 0; i < COUNT; i++) {
        struct script_client client = script_client(i + 1);
        script_connect(&script, &client);
        script_ask(&script, &client, RP_OP_PING, 0, 1, NULL, 0);
    }
    look();
    for (int i = 0; i < RP_SESSIONS_METERED; i++) {
        CHECK(told.meters[i].requests == 1 && told.states[i].open);
    }
    CHECK(told.meters[RP_SESSIONS_METERED].requests == 10 && told.sessions == COUNT);
    script_close(&script);
    check_group("6 places beyond share one");
}

int main(void) {
    situation_buckets();
    situation_operations();
    situation_waits();
    situation_ages();
    situation_sessions();
    situation_many_sessions();
    return check_done("test_meter");
}
