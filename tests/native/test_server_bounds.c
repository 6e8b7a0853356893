/* What a server's region takes, whom it may be taken over by, and where its rules for one
 * datagram begin and end. Situations read "Given ... Expect ...".
 */
#include "script.h"
#include "server/serve.h"
#include "table/store.h"

static struct rp_table_config tables[3];
static struct rp_server_config config;
static struct script_push push;

static void configure(void) {
    script_tables(tables);
    tables[2] = tables[1];
    memcpy(tables[2].name, "third", 6);
    config = script_config(tables);
    config.table_count = 3;
}

/* ---- the region ---- */

/* 1. Given more and more sample records, and weights or none. Expect a segment for each part with
 *    room for what lies in it and its seal, none for what is not there, and the state's words to be
 *    of what takes most of it. */
static void situation_segments(void) {
    char error[256];
    configure();
    for (uint32_t records = 1; records <= 64; records++) {
        struct rp_segments s;
        config.records = records;
        CHECK(rp_server_segments(&config, &s, error) == 0 && s.count == 8, "%s", error);
        for (uint32_t i = 0; i < 3; i++) {
            const struct rp_segment *keys = &s.segment[1 + 2 * i], *steps = keys + 1;
            char name[3][RP_SEGMENT_NAME_BYTES];
            snprintf(name[0], sizeof name[0], "table%u.keys", i);
            snprintf(name[1], sizeof name[1], "table%u.steps", i);
            snprintf(name[2], sizeof name[2], "steps of table");
            CHECK(strcmp(keys->name, name[0]) == 0 && strcmp(keys->what, name[0]) == 0);
            CHECK(strcmp(steps->name, name[1]) == 0 && strstr(steps->what, name[2]));
            CHECK(keys->bytes >= tables[i].capacity * 8 + sizeof(struct rp_seal));
            CHECK(steps->bytes
                  >= (uint64_t)tables[i].capacity * tables[i].step_bytes + sizeof(struct rp_seal));
            CHECK(keys->offset + keys->bytes == steps->offset);
        }
        double share = (double)(sizeof(struct rp_record) + 64 * sizeof(struct rp_batch_item))
                       * config.sessions_max * records / (double)s.segment[0].bytes;
        int most = strstr(s.segment[0].what, "sample records") != NULL;
        CHECK(most || share < 0.52, "%u records are %.2f of it", records, share);
        CHECK(!most || share > 0.48, "%u records are %.2f of it", records, share);
        CHECK(share < 1);
    }
    struct rp_region region;
    uint64_t record = (sizeof(struct rp_record) + 64 * sizeof(struct rp_batch_item) + 63) / 64 * 64;
    CHECK(rp_region_layout(&config, &region, error) == 0, "%s", error);
    CHECK(region.state_bytes - region.records - record * config.sessions_max * config.records
          < RP_SEGMENT_ALIGN, "records and no more lie at the state's end");
    struct rp_segments none, some;
    config.weights_max = 0;
    CHECK(rp_server_segments(&config, &none, error) == 0 && none.count == 7);
    config.weights_max = 1;
    CHECK(rp_server_segments(&config, &some, error) == 0 && some.count == 8);
    CHECK(some.segment[7].bytes >= RP_WEIGHTS_SLOTS + sizeof(struct rp_seal));
    for (uint32_t i = 0; i < some.count; i++) {
        CHECK(some.segment[i].offset % RP_SEGMENT_ALIGN == 0);
        CHECK(some.segment[i].bytes > 0 && some.segment[i].bytes % RP_SEGMENT_ALIGN == 0);
    }
    CHECK(some.segment[7].at_need && strcmp(some.segment[7].name, "weights") == 0);
    check_group("1 a region's segments");
}

static int attach(struct script *script, size_t bytes, char error[256]) {
    struct rp_server *server;
    uint8_t entropy[32];
    script_entropy(entropy, 3);
    return rp_server_attach(&server, script->region, bytes, &config, entropy, script->now_ns,
                            error);
}

/* 2. Given configurations that differ in what may not change, or may, and memory that is short.
 *    Expect what differs named with both values, that of the region first. */
static void situation_differences(void) {
    struct script script;
    char error[256];
    configure();
    script_open(&script, &config);
    struct script_client client = script_client(1);
    client.mtu = 1400;
    script_connect(&script, &client);
    const struct rp_region *region = (const void *)script.region;
    CHECK(attach(&script, (size_t)region->bytes - 1, error) == -RP_BAD_REGION);
    CHECK(strstr(error, "shorter than"), "%s", error);
    CHECK(attach(&script, (size_t)region->state_bytes - 1, error) == -RP_BAD_REGION);
    CHECK(strstr(error, "shorter than"), "%s", error);
    memcpy(tables[1].name, "bows", 5);
    CHECK(attach(&script, script.bytes, error) == -RP_BAD_REGION);
    CHECK(strstr(error, "a table named \"rows\", this configuration says \"bows\""), "%s", error);
    configure();
    config.table_count = 2;
    CHECK(attach(&script, script.bytes, error) == -RP_BAD_REGION);
    CHECK(strstr(error, "table count 3, this configuration says 2"), "%s", error);
    configure();
    config.mtu = 1000;
    CHECK(attach(&script, script.bytes, error) == -RP_BAD_REGION);
    CHECK(strstr(error, "datagrams of 1400 bytes, this port takes 1000: say ?mtu=1400"), "%s",
          error);
    configure();
    config.receive_budget = 65;
    tables[1].error_min = -2;
    tables[1].error_max = 30;
    tables[2].error_max = 40;
    uint8_t entropy[32];
    script_entropy(entropy, 4);
    CHECK(rp_server_attach(&script.server, script.region, script.bytes, &config, entropy,
                           script.now_ns, error) == 0, "%s", error);
    static const char *const said[] = {
        "receive_budget 64 -> 65", ", error_min of table rows 0 -> -2",
        ", error_max of table rows 20 -> 30", ", error_max of table third 20 -> 40"};
    for (size_t i = 0; i < 4; i++) {
        CHECK(strstr(rp_server_changes(script.server), said[i]), "%s",
              rp_server_changes(script.server));
    }
    for (uint16_t i = 1; i < 3; i++) {
        const struct rp_table_facts *facts = &rp_server_table(script.server, i)->header->facts;
        CHECK(facts->error_min == tables[i].error_min && facts->error_max == tables[i].error_max);
    }
    script_close(&script);
    check_group("2 what differs, in words");
}

static void spec_differs(struct script *script, const char *spec, uint32_t bytes,
                         const char *had, const char *wants) {
    char error[256], said[256];
    tables[0].spec = spec;
    tables[0].spec_bytes = bytes;
    snprintf(said, sizeof said,
             "columns that are \"%.38s\" of table main, this configuration says \"%.38s\":", had,
             wants);
    CHECK(attach(script, script->bytes, error) == -RP_BAD_REGION);
    CHECK(strstr(error, said), "\"%s\" and not \"%s\"", error, said);
}

/* Given specs that differ somewhere, or of which one goes on. Expect both to be told from a little
 * before that on. */
static void situation_specs(void) {
    static const char had[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.....";
    static const uint32_t places[] = {0, 5, 11, 12, 13, 40};
    struct script script;
    char wants[sizeof had];
    configure();
    tables[0].spec = had;
    tables[0].spec_bytes = sizeof had - 1;
    script_open(&script, &config);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint32_t from = places[i] < 12 ? 0 : places[i] - 12;
        memcpy(wants, had, sizeof had);
        wants[places[i]] = '!';
        spec_differs(&script, wants, sizeof had - 1, had + from, wants + from);
    }
    spec_differs(&script, had, 62, had + 50, "OPQRSTUVWXYZ");
    script_close(&script);
    check_group("2b specs, where they differ");
}

/* ---- one datagram ---- */

/* 3. Given bodies of every length, one byte behind them set. Expect that byte to be seen wherever
 *    it stands, and a longer body refused. */
static void situation_exact(void) {
    _Alignas(8) uint8_t body[128];
    for (uint32_t need = 0; need <= 64; need++) {
        uint32_t size = (need + 7) & ~7u;
        size = size > RP_REQUEST_BODY_MIN ? size : RP_REQUEST_BODY_MIN;
        struct rp_message message = {.size = (uint16_t)size};
        struct rp_view view = {.message = &message, .body = body};
        memset(body, 0, sizeof body);
        memset(body, 0xff, need);
        CHECK(rp_serve_exact(&view, need) == 0, "%u bytes", need);
        for (uint32_t at = need; at < size; at++) {
            body[at] = 1;
            CHECK(rp_serve_exact(&view, need) == -RP_BAD_RESERVED, "byte %u behind %u", at, need);
            body[at] = 0;
        }
        message.size = (uint16_t)(size + 8);
        CHECK(rp_serve_exact(&view, need) == -RP_BAD_SIZE);
    }
    check_group("3 what stands behind a body");
}

/* 4. Given a datagram whose headers have one reserved byte set, its sum right. Expect it dropped
 *    and counted. */
static void situation_reserved(void) {
    static const uint32_t reserved[] = {5, 6, 7, 28, 31, 32, 35, 36, 39, 41};
    static const uint8_t zeros[16];
    struct script script;
    configure();
    script_open(&script, &config);
    struct script_client client = script_client(1);
    script_connect(&script, &client);
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        uint64_t before = script_counter(&script, RP_COUNT_drop_reserved);
        script_put(&script, &client, RP_OP_PING, 0, 1, NULL, 0);
        struct script_datagram *datagram = &script.port.in[script.port.in_count - 1];
        datagram->data[reserved[i]] = 1;
        uint32_t crc = rp_crc32c(rp_crc32c(0, datagram->data, 24), zeros, 16);
        crc = rp_crc32c(crc, datagram->data + 40, datagram->size - 40);
        memcpy(datagram->data + 24, &crc, sizeof crc);
        CHECK(script_turn(&script) == 0, "byte %u", reserved[i]);
        CHECK(script_counter(&script, RP_COUNT_drop_reserved) == before + 1, "byte %u",
              reserved[i]);
    }
    script_close(&script);
    check_group("4 reserved bytes of the headers");
}

/* 5. Given a writer that has sent nothing, and a run so far ahead as may be, or one further. Expect
 *    the one stored, the other dropped and counted. */
static void situation_far(void) {
    enum { MOST = SCRIPT_WINDOW / 16 + 4 };
    for (uint32_t more = 0; more < 2; more++) {
        struct script script;
        configure();
        tables[1].samples_per_insert = 0; /* steps may wait */
        script_open(&script, &config);
        struct script_client client = script_client(1);
        script_connect(&script, &client);
        script_push_begin(&push, script_writer(&script, &client, 1, 1).epoch);
        script_push_run(&push, 0, MOST + more, MOST + more, 1, 0);
        script_put(&script, &client, RP_OP_PUSH, 1, 1, push.body, push.size);
        script_turn(&script);
        CHECK(rp_writer_next(rp_server_table(script.server, 1), 0) == (more ? 0 : MOST + 1));
        CHECK(script_counter(&script, RP_COUNT_drop_far) == more);
        script_close(&script);
    }
    check_group("5 a run that came too early");
}

/* ---- sessions ---- */

/* 6. Given a server that nobody spoke to for long. Expect a HELLO's cookie to be of this time. */
static void situation_cookie(void) {
    struct script script;
    configure();
    script_open(&script, &config);
    for (uint32_t i = 1; i <= 3; i++) {
        struct script_client client = script_client((uint8_t)i);
        script_later(&script, 1000000);
        struct script_answer answer = script_hello(&script, &client);
        uint64_t cookie = SCRIPT_READ(answer, struct rp_cookie).cookie;
        CHECK_STATUS(script_say_open(&script, &client, cookie), RP_OK);
    }
    script_close(&script);
    check_group("6 a cookie after a long silence");
}

/* 7. Given three tables with a limiter, a push and a draw that wait at each. Expect the draw of a
 *    third session to wait when it is asked for again, and every push let on when there is room. */
static void situation_tables(void) {
    struct script script;
    struct script_client clients[3];
    struct rp_sample request = script_sample(1);
    request.under_way = UINT64_MAX;
    configure();
    for (uint32_t t = 0; t < 3; t++) {
        tables[t].plan_count = 1;
        tables[t].min_size = 1;
        tables[t].samples_per_insert = 1;
        tables[t].error_min = -22;
        tables[t].error_max = 10;
    }
    script_open(&script, &config);
    for (uint8_t i = 0; i < 3; i++) {
        clients[i] = script_client((uint8_t)(i + 1));
        script_connect(&script, &clients[i]);
    }
    for (uint16_t t = 0; t < 3; t++) {
        for (uint32_t i = 0; i < 3; i++) { /* asked for twice: it waits, and was not answered */
            for (uint32_t again = 0; again < 2; again++) {
                CHECK_STATUS(script_ask(&script, &clients[i], RP_OP_SAMPLE, t, 1 + t, &request,
                                        sizeof request), RP_BLOCKED);
            }
        }
    }
    for (uint16_t t = 0; t < 3; t++) {
        struct script_client *writer = &clients[t];
        uint64_t epoch = script_writer(&script, writer, t, 1).epoch;
        for (uint32_t i = 0; i < 2; i++) {
            script_push_begin(&push, epoch);
            script_push_run(&push, 0, 8 * i, 8 * i, 8, RP_RUN_ITEM);
            uint16_t status = script_push(&script, writer, t, 100 + i, &push).status;
            CHECK(status == (i ? RP_BLOCKED : RP_OK), "table %u: %s", t, rp_status_name(status));
        }
        request = script_sample(5);
        request.under_way = UINT64_MAX;
        script_put(&script, &clients[(t + 1) % 3], RP_OP_SAMPLE, t, 50 + t, &request,
                   sizeof request);
        int let = 0;
        for (uint32_t turns = 0; turns < 3; turns++) {
            script_turn(&script);
            for (uint32_t i = 0; i < script.port.out_count; i++) {
                struct script_answer answer = script_answer(&script, i);
                let |= answer.view.message->op == (RP_OP_PUSH | RP_ANSWER)
                       && answer.view.message->id == 101 && answer.status == RP_OK;
            }
        }
        CHECK(let, "the push at table %u was not let on", t);
        request = script_sample(1);
        request.under_way = UINT64_MAX;
    }
    script_close(&script);
    check_group("7 who waits at each table");
}

/* 8. Given a draw that waits at one table while its session draws so many at another that its
 *    number is older than those that are remembered. Expect it to wait still, and no other of that
 *    age. */
static void situation_old(void) {
    struct script script;
    struct script_client clients[3];
    struct rp_sample one = script_sample(1), many = script_sample(15);
    configure();
    tables[2].samples_per_insert = 0;
    script_open(&script, &config);
    for (uint8_t i = 0; i < 3; i++) {
        clients[i] = script_client((uint8_t)(i + 1));
        script_connect(&script, &clients[i]);
    }
    struct script_client *c = &clients[2];
    script_push_begin(&push, script_writer(&script, c, 2, 1).epoch);
    script_push_run(&push, 0, 0, 0, 8, RP_RUN_ITEM);
    CHECK_STATUS(script_push(&script, c, 2, 1, &push), RP_OK);
    CHECK_STATUS(script_ask(&script, c, RP_OP_SAMPLE, 1, 2, &many, sizeof many), RP_BLOCKED);
    for (uint64_t id = 3; id < 3 + 2 * RP_ONCE_WINDOW; id++) {
        one.under_way = id < 3 + RP_TOLD_OF ? 1ull << (id - 3) : 0; /* that one */
        CHECK_STATUS(script_ask(&script, c, RP_OP_SAMPLE, 2, id, &one, sizeof one), RP_OK);
    }
    CHECK_STATUS(script_ask(&script, c, RP_OP_SAMPLE, 1, 2, &many, sizeof many), RP_BLOCKED);
    CHECK_STATUS(script_ask(&script, c, RP_OP_SAMPLE, 1, 1, &many, sizeof many), RP_FORGOTTEN);
    script_close(&script);
    check_group("8 a draw that waits for long");
}

/* 9. Given three tables of different capacities, at the least lap, the largest, others between.
 *    Expect each to begin with a key of its first slot, and so far from every other that no key is
 *    ever in two of them. */
static void situation_apart(void) {
    static const uint32_t laps[] = {1, 2, 4711, 1u << 31, UINT32_MAX};
    for (uint32_t i = 0; i < sizeof laps / sizeof *laps; i++) {
        struct script script;
        uint64_t end = 0;
        configure();
        tables[1].capacity = 1 << 16;
        config.first_lap = laps[i];
        script_open(&script, &config);
        for (uint32_t t = 0; t < 3; t++) {
            struct rp_table_info info;
            rp_table_info(&script.server->tables[t], &info);
            CHECK(info.head > 0 && info.head % info.capacity == 0);
            CHECK(t == 0 || info.head - end > UINT64_C(1) << 46, "table %u, lap %u", t, laps[i]);
            end = info.head;
        }
        CHECK(end < UINT64_C(1) << 51);
        script_close(&script);
    }
    check_group("9 keys of two tables are never alike");
}

/* 10. Given one id for the samples of two tables: the first waits, the second is drawn, or
 *     withdrawn, then the first one's turn would come. Expect the first to wait no more, and its
 *     repeat answered with the batch that was drawn, under the table it is of, or FORGOTTEN. */
static void situation_two_tables(void) {
    for (int drawn = 0; drawn < 2; drawn++) {
        struct script script;
        struct script_client client = script_client(1);
        struct rp_sample sample = script_sample(2);
        struct rp_cancel cancel = {.request = 5, .op = RP_OP_SAMPLE};
        configure();
        script_open(&script, &config);
        script_connect(&script, &client);
        CHECK_STATUS(script_ask(&script, &client, RP_OP_SAMPLE, 1, 5, &sample, sizeof sample),
                     RP_BLOCKED);
        for (uint16_t table = 2; table > 0; table--) {
            uint64_t epoch = script_writer(&script, &client, table, 1).epoch;
            script_push_begin(&push, epoch);
            script_push_run(&push, 0, 0, 0, 4, RP_RUN_ITEM);
            CHECK_STATUS(script_push(&script, &client, table, 10 + table, &push), RP_OK);
            CHECK(script.port.out_count == 1, "nobody is answered but the PUSH");
            if (table == 2 && drawn) {
                script_ask(&script, &client, RP_OP_SAMPLE, 2, 5, &sample, sizeof sample);
            } else if (table == 2) {
                script_ask(&script, &client, RP_OP_CANCEL, 2, 5, &cancel, sizeof cancel);
            }
        }
        struct script_answer answer =
            script_ask(&script, &client, RP_OP_SAMPLE, 1, 5, &sample, sizeof sample);
        CHECK_STATUS(answer, drawn ? RP_OK : RP_FORGOTTEN);
        CHECK(answer.view.message->table == (drawn ? 2 : 1));
        CHECK(script_counter(&script, RP_COUNT_samples) == (uint64_t)drawn);
        script_close(&script);
    }
    check_group("10 one id at two tables");
}

/* 11. Given runs of one step and of two for sequences that are reserved and empty, their steps at
 *     the end of all numbers. Expect what reaches beyond it refused, and a region that another
 *     process takes over, whatever was stored. */
static void situation_last_step(void) {
    for (uint64_t step = RP_KEY_MASK - 2; step <= RP_KEY_MASK + 1; step++) {
        for (uint32_t count = 1; count <= 2; count++) {
            struct script script;
            struct script_client client = script_client(1);
            configure();
            script_open(&script, &config);
            script_connect(&script, &client);
            uint64_t epoch = script_writer(&script, &client, 0, 2).epoch;
            for (uint64_t sequence = 0; sequence <= 3; sequence += 3) { /* reserves 1 and 2 */
                script_push_begin(&push, epoch);
                script_push_run(&push, 0, sequence, sequence, 1, 0);
                CHECK_STATUS(script_push(&script, &client, 0, 1 + sequence, &push), RP_OK);
            }
            script_push_begin(&push, epoch);
            script_push_run(&push, 0, 1, step, count, 0);
            CHECK_STATUS(script_push(&script, &client, 0, 9, &push),
                         step + count - 1 > RP_KEY_MASK ? RP_BAD_STEP : RP_OK);
            script_kill(&script);
            script_close(&script);
        }
    }
    check_group("11 no step beyond the last number is stored");
}

int main(void) {
    situation_segments();
    situation_differences();
    situation_specs();
    situation_exact();
    situation_reserved();
    situation_far();
    situation_cookie();
    situation_tables();
    situation_old();
    situation_apart();
    situation_two_tables();
    situation_last_step();
    return check_done("test_server_bounds");
}
