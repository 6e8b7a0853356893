/* A client opens a session with a real server and every request does what its contract says,
 * over a network that keeps everything and over one that loses, repeats and delays. Situations read
 * "Given ... Expect ...". */
#include "client_world.h"

enum { STREAMS = 2, BATCH = 24 };

static struct rp_table_config tables[2];
static struct rp_server_config config;

static struct world *fresh(uint64_t seed) {
    script_tables(tables);
    tables[0].capacity = 2048;
    tables[0].window = 64;
    tables[1].samples_per_insert = 0;
    config = script_config(tables);
    config.batch_max = 256;
    config.records = 8;
    config.weights_max = 200000;
    return world_open(&config, seed);
}

struct writer {
    struct rp_table_info info;
    struct rp_writer_granted granted;
    uint64_t pushed[STREAMS];
    uint64_t stored[STREAMS];
};

static void writer_open(struct world *world, struct writer *writer, const char *name) {
    int ticket = rp_client_table(world->client, name, &writer->info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &writer->info, STREAMS, &writer->granted,
                              world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    memset(writer->pushed, 0, sizeof writer->pushed);
    memset(writer->stored, 0, sizeof writer->stored);
}

/* A step's two columns say which it is. */
static void step_fill(uint64_t *step, uint64_t stream, uint64_t number) {
    step[0] = stream << 32 | number;
    step[1] = number * number + stream;
}

static uint32_t push(struct world *world, struct writer *writer, uint32_t stream, uint32_t count,
                     uint32_t flags) {
    uint64_t steps[2 * 64];
    double priorities[64];
    for (uint32_t i = 0; i < count; i++) {
        step_fill(steps + 2 * i, stream, writer->pushed[stream] + i);
        priorities[i] = (double)(1 + (writer->pushed[stream] + i) % 7);
    }
    int taken = rp_client_push(world->client, writer->info.number, (uint16_t)stream,
                               (const uint8_t *)steps, count, flags,
                               flags & RP_RUN_PRIORITY ? priorities : NULL);
    CHECK(taken >= 0, "push: %d", taken);
    writer->pushed[stream] += (uint32_t)taken;
    return (uint32_t)taken;
}

/* Every acknowledged step once, in its stream's order, under a key of its own. */
static void ledger_check(struct world *world, struct writer *writer) {
    struct rp_push_key keys[32];
    uint32_t count;
    while ((count = rp_client_ledger(world->client, keys, 32)) > 0) {
        for (uint32_t i = 0; i < count; i++) {
            CHECK(keys[i].table == writer->info.number && keys[i].key != 0);
            CHECK(keys[i].step == writer->stored[keys[i].stream], "step %" PRIu64, keys[i].step);
            writer->stored[keys[i].stream]++;
        }
    }
}

static void settle(struct world *world, struct writer *writer) {
    struct rp_push_state state;
    uint64_t end = world_later(world, 60000);
    do {
        CHECK(world->now_ns < end, "pushes never settle");
        rp_client_flush(world->client, writer->info.number);
        world_step(world, 1000 * WORLD_MS);
        ledger_check(world, writer);
        rp_client_push_state(world->client, writer->info.number, &state);
        CHECK(state.status == 0, "the writer ended with %d", state.status);
    } while (state.messages_open > 0);
    CHECK(state.steps_posted == writer->pushed[0] + writer->pushed[1]);
    CHECK(state.steps_stored == state.steps_posted);
    CHECK(state.items_created + state.items_failed == state.items_posted);
    CHECK(writer->stored[0] == writer->pushed[0] && writer->stored[1] == writer->pushed[1]);
    rp_server_check(world->server);
}

/* ---- batches ---- */

struct batch {
    uint64_t values[512], rewards[512], keys[512], masses[512], totals[512], ages[512];
    uint16_t behind[512], ahead[512];
    uint32_t drawables[512];
    uint8_t valid[512];
    struct rp_landing_column columns[2];
    struct rp_landing landing;
};

static struct rp_landing *batch_open(struct batch *batch) {
    memset(batch, 0xAA, sizeof *batch);
    batch->columns[0] = (struct rp_landing_column){(uint8_t *)batch->values, 8, 0, 8};
    batch->columns[1] = (struct rp_landing_column){(uint8_t *)batch->rewards, 8, 8, 8};
    batch->landing = (struct rp_landing){
        .columns = batch->columns, .column_count = 2, .item_bytes = 16, .keys = batch->keys,
        .masses = batch->masses, .behind = batch->behind, .ahead = batch->ahead,
        .totals = batch->totals, .drawables = batch->drawables, .ages = batch->ages,
        .valid = batch->valid};
    return &batch->landing;
}

static void batch_check(const struct batch *batch, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint64_t stream = batch->values[i] >> 32, number = batch->values[i] & 0xFFFFFFFF;
        CHECK(batch->valid[i] == 1 && batch->masses[i] > 0 && batch->keys[i] > 0);
        CHECK(stream < STREAMS && batch->rewards[i] == number * number + stream);
        CHECK(batch->totals[i] >= batch->masses[i] && batch->drawables[i] > 0);
        CHECK(batch->ages[i] < 1u << 30, "age %" PRIu64, batch->ages[i]);
    }
}

static int sample(struct world *world, uint32_t table, uint32_t count, struct batch *batch,
                  uint64_t ms) {
    struct rp_sample request = {.count = count};
    int ticket = rp_client_sample(world->client, (uint16_t)table, &request, NULL,
                                  batch_open(batch), ms ? world_later(world, ms) : 0);
    return world_wait(world, ticket);
}

/* ---- situations ---- */

/* 1. Given a new client. Expect a session, the limits, and small requests answered. */
static void situation_open(void) {
    struct world *world = fresh(1);
    struct rp_opened limits;
    struct rp_table_info info;
    uint64_t counters[RP_COUNTER_COUNT];
    uint32_t sessions, told = 9;
    struct rp_fact facts[RP_FACTS_MAX];
    CHECK(rp_client_state(world->client) == 0 && rp_client_mtu(world->client) == 0);
    world_connect(world);
    rp_client_limits(world->client, &limits);
    CHECK(limits.table_count == 2 && rp_client_mtu(world->client) == WORLD_MTU);
    CHECK(rp_client_incarnation(world->client) == rp_server_incarnation(world->server));
    CHECK(rp_client_session(world->client) == limits.session && limits.session != 0);
    uint64_t later = world_later(world, 1000);
    CHECK(world_wait(world, rp_client_table(world->client, "nobody", &info, later))
          == -RP_UNKNOWN_TABLE);
    int status = world_wait(world, rp_client_table_number(world->client, 1, &info, later));
    CHECK(status == 0, "status %d", status);
    CHECK(strcmp((const char *)info.name, "rows") == 0 && info.step_bytes == SCRIPT_STEP);
    CHECK(world_wait(world, rp_client_ping(world->client, later)) == 0);
    CHECK(world_wait(world, rp_client_stats(world->client, counters, &sessions, later)) == 0);
    CHECK(sessions == 1 && counters[RP_COUNT_sessions_opened] == 1);
    CHECK(world_wait(world, rp_client_facts(world->client, facts, &told, later)) == 0);
    CHECK(told == RP_FACTS_MAX, "all of them, some a datagram: %u", told);
    for (uint32_t i = 0; i < told; i++) {
        CHECK(facts[i].value == i + 1 && facts[i].kind == RP_FACT_OUT);
        CHECK(strcmp((const char *)facts[i].name, "fact") == 0);
    }
    int ticket = rp_client_ping(world->client, later);
    CHECK(world_wait(world, ticket) == 0 && rp_client_poll(world->client, ticket) < 0);
    CHECK(world_wait(world, rp_client_close(world->client, later)) == 0);
    CHECK(rp_client_state(world->client) == -RP_CLOSED && rp_server_sessions(world->server) == 0);
    CHECK(rp_client_ping(world->client, later) == -RP_CLOSED);
    world_close(world);
    check_group("1 open, ask, close");
}

/* 2. Given no server. Expect TIMEOUT for the client, and for its requests. */
static void situation_refused(void) {
    struct world *world = fresh(2);
    world->deaf = 1;
    int ticket = rp_client_ping(world->client, world_later(world, 100));
    CHECK(world_wait(world, ticket) == -RP_TIMEOUT);
    world_run(world, 6000 * WORLD_MS);
    CHECK(rp_client_state(world->client) == -RP_TIMEOUT);
    CHECK(rp_client_deadline(world->client) == UINT64_MAX);
    world_close(world);
    check_group("2 nobody answers");
}

/* 3. Given steps of two streams in turn, with priorities. Expect each acknowledged once, under
 *    rising keys, and batches of them with every column right, over any split into datagrams. */
static void situation_push_sample(uint64_t seed, uint32_t shake) {
    struct world *world = fresh(seed);
    struct writer writer;
    static struct batch batch;
    world->lose = world->repeat = world->late = shake;
    world_connect(world);
    writer_open(world, &writer, "rows");
    for (uint32_t i = 0; i < 60; i++) {
        uint32_t stream = i % STREAMS, count = 1 + i % 9;
        uint64_t target = writer.pushed[stream] + count;
        while (writer.pushed[stream] < target) {
            push(world, &writer, stream, (uint32_t)(target - writer.pushed[stream]),
                 RP_RUN_ITEM | RP_RUN_PRIORITY);
            world_step(world, WORLD_MS);
            ledger_check(world, &writer);
        }
    }
    settle(world, &writer);
    for (uint32_t count = 1; count <= 256; count = count * 3 + 1) {
        int status = sample(world, 1, count, &batch, 20000);
        CHECK(status == 0, "sample: %d", status);
        batch_check(&batch, count);
    }
    world_close(world);
}

/* 4. Given several batches at once, and updates of their priorities. Expect all to land; results
 *    that add up; the last of a duplicate to win. */
static void situation_update(uint64_t seed, uint32_t shake) {
    struct world *world = fresh(seed);
    struct writer writer;
    static struct batch batches[3];
    static uint64_t keys[512];
    static double priorities[512];
    world->lose = world->repeat = world->late = shake;
    world_connect(world);
    writer_open(world, &writer, "rows");
    while (writer.pushed[0] < 200) {
        push(world, &writer, 0, 8, RP_RUN_ITEM);
        world_step(world, WORLD_MS);
    }
    settle(world, &writer);
    int tickets[3];
    for (uint32_t i = 0; i < 3; i++) {
        struct rp_sample request = {.count = 100, .mode = RP_SAMPLE_STRATIFIED};
        tickets[i] = rp_client_sample(world->client, 1, &request, NULL, batch_open(&batches[i]),
                                      world_later(world, 20000));
    }
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(world_wait(world, tickets[i]) == 0);
        batch_check(&batches[i], 100);
    }
    uint32_t count = 0;
    for (uint64_t key = writer.info.capacity; count < 190; key++, count++) {
        keys[count] = key;
        priorities[count] = 9;
    }
    memcpy(keys + count, keys, sizeof keys[0] * 190);
    for (uint32_t i = 0; i < 190; i++) {
        priorities[count + i] = (double)(i % 2);
    }
    struct rp_updated result = {0};
    for (uint32_t i = 0; i < 5; i++) {
        int ticket = rp_client_update(world->client, 1, writer.info.epoch, keys, priorities,
                                      2 * count, &result, world_later(world, 20000));
        CHECK(world_wait(world, ticket) == 0);
        CHECK(result.applied == 190 && result.stale == 0 && result.unknown == 0,
              "%u %u %u", result.applied, result.stale, result.unknown);
    }
    struct rp_sample request = {.count = 190, .mode = RP_SAMPLE_KEYS};
    int ticket = rp_client_sample(world->client, 1, &request, keys, batch_open(&batches[0]),
                                  world_later(world, 20000));
    CHECK(world_wait(world, ticket) == 0);
    for (uint32_t i = 0; i < 190; i++) {
        CHECK(batches[0].masses[i] == (i % 2 ? (uint64_t)1 << 26 : 0));
        CHECK(batches[0].keys[i] == keys[i]);
        CHECK(batches[0].values[i] == i, "item %u", i);
    }
    priorities[7] = -1;
    CHECK(rp_client_update(world->client, 1, writer.info.epoch, keys, priorities, 190, &result, 0)
          == -RP_BAD_PRIORITY);
    ticket = rp_client_update(world->client, 1, 12345, keys, priorities, 5, &result,
                              world_later(world, 20000));
    CHECK(world_wait(world, ticket) == 0 && result.stale == 5);
    world_close(world);
}

/* 5. Given episodes with windows. Expect items once their window is stored, creates that came too
 *    early to be tried again, and closing rows to be told. */
static void situation_create(uint64_t seed, uint32_t shake) {
    struct world *world = fresh(seed);
    struct writer writer;
    struct rp_push_state state;
    world->lose = world->repeat = world->late = shake;
    world_connect(world);
    writer_open(world, &writer, "main");
    for (uint32_t i = 0; i < 20; i++) {
        while (push(world, &writer, 0, 5, i % 4 == 3 ? RP_RUN_END : 0) == 0) {
            world_step(world, WORLD_MS);
        }
        for (uint32_t k = 0; k < 5; k++) {
            while (rp_client_create(world->client, 0, 0, 5 * i + k, 1.0, 0) == -RP_FULL) {
                world_step(world, WORLD_MS);
            }
        }
    }
    CHECK(rp_client_create(world->client, 0, 0, 100, 1.0, 0) == -RP_BAD_ARGUMENT);
    settle(world, &writer);
    rp_client_push_state(world->client, 0, &state);
    CHECK(state.items_created == 95 && state.items_failed == 5, "%" PRIu64, state.items_created);
    struct rp_table_info info;
    int ticket = rp_client_table(world->client, "main", &info, world_later(world, 20000));
    CHECK(world_wait(world, ticket) == 0 && info.count == 95);
    world_close(world);
}

/* 6. Given weights and a spec. Expect the same bytes back, and the version with every answer. */
static void situation_blob(uint64_t seed, uint32_t shake) {
    struct world *world = fresh(seed);
    static uint8_t weights[150001], back[150001];
    uint64_t version = 0, size = 0, told = 0;
    world->lose = world->repeat = world->late = shake;
    world_connect(world);
    for (uint32_t i = 0; i < sizeof weights; i++) {
        weights[i] = (uint8_t)(i * i / 7);
    }
    int ticket = rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 0, back, sizeof back, &size,
                                &version, world_later(world, 30000));
    CHECK(world_wait(world, ticket) == -RP_NO_WEIGHTS);
    for (uint32_t i = 1; i <= 2; i++) {
        ticket = rp_client_publish(world->client, weights, sizeof weights - i, &told,
                                   world_later(world, 60000));
        CHECK(world_wait(world, ticket) == 0 && told == i);
        ticket = rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 0, back, sizeof back, &size,
                                &version, world_later(world, 60000));
        CHECK(world_wait(world, ticket) == 0 && version == i && size == sizeof weights - i);
        CHECK(memcmp(weights, back, size) == 0);
        CHECK(rp_client_weights_version(world->client) == i);
    }
    ticket = rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 0, back, 100, &size, &version,
                            world_later(world, 30000));
    CHECK(world_wait(world, ticket) == -RP_TOO_LARGE && size == sizeof weights - 2);
    ticket = rp_client_blob(world->client, RP_BLOB_SPEC, 0, 0, back, sizeof back, &size, &version,
                            world_later(world, 30000));
    CHECK(world_wait(world, ticket) == 0 && size == sizeof script_spec - 1);
    CHECK(memcmp(back, script_spec, size) == 0);
    world_close(world);
}

/* 7. Given an empty table. Expect a sample to wait and to be released by a push; not to wait where
 *    it must not; to say what it waited for when its time is over. */
static void situation_blocked(uint64_t seed, uint32_t shake) {
    struct world *world = fresh(seed);
    struct writer writer;
    struct rp_blocked blocked;
    static struct batch batch;
    world->lose = world->repeat = world->late = shake;
    world_connect(world);
    writer_open(world, &writer, "rows");
    CHECK(sample(world, 1, 8, &batch, 0) == -RP_BLOCKED);
    struct rp_sample request = {.count = 8};
    int ticket = rp_client_sample(world->client, 1, &request, NULL, batch_open(&batch),
                                  world_later(world, 5000));
    world_run(world, 1000 * WORLD_MS);
    CHECK(rp_client_poll(world->client, ticket) == RP_PENDING);
    rp_client_blocked(world->client, ticket, &blocked);
    CHECK(blocked.by_size == 1 && blocked.need == 1);
    push(world, &writer, 0, 20, RP_RUN_ITEM);
    settle(world, &writer);
    CHECK(world_wait(world, ticket) == 0);
    batch_check(&batch, 8);
    world_close(world);
}

/* 8. Given a limiter that lets inserts run 20 items ahead. Expect the writer to stop, and to go on
 *    while batches are drawn, until everything is stored. */
static void situation_limiter(uint64_t seed, uint32_t shake) {
    script_tables(tables);
    config = script_config(tables);
    struct world *world = world_open(&config, seed);
    struct writer writer;
    struct rp_push_state state;
    static struct batch batch;
    world->lose = world->repeat = world->late = shake;
    world_connect(world);
    writer_open(world, &writer, "rows");
    uint64_t goal = 100;
    for (uint32_t i = 0; writer.pushed[0] < goal; i++) {
        CHECK(i < 10000, "the writer never goes on");
        uint64_t left = goal - writer.pushed[0];
        push(world, &writer, 0, left < 4 ? (uint32_t)left : 4, RP_RUN_ITEM);
        rp_client_flush(world->client, 1);
        world_run(world, 2 * WORLD_MS);
        rp_client_push_state(world->client, 1, &state);
        if (state.need > 0) {
            int status = sample(world, 1, 4, &batch, 20000);
            CHECK(status == 0, "sample: %d", status);
            batch_check(&batch, 4);
        }
    }
    while (rp_client_push_state(world->client, 1, &state), state.messages_open > 0) {
        int status = sample(world, 1, 2, &batch, 100);
        CHECK(status == 0 || status == -RP_BLOCKED || status == -RP_TIMEOUT);
        rp_client_flush(world->client, 1);
        world_run(world, 5 * WORLD_MS);
    }
    settle(world, &writer);
    CHECK(shake > 0 || rp_client_counters(world->client)[RP_COUNT_pushes_blocked] > 0);
    world_close(world);
}

/* 9. Given a server that starts empty again. Expect a new session; the writer to end with what was
 *    stored, in doubt and never sent; samples to go on; a writer asked for anew to work. */
static void situation_restart(void) {
    struct world *world = fresh(9);
    struct writer writer;
    static struct batch batch;
    uint64_t stored, in_doubt, lost;
    world_connect(world);
    writer_open(world, &writer, "rows");
    push(world, &writer, 0, 30, RP_RUN_ITEM);
    settle(world, &writer);
    push(world, &writer, 0, 6, RP_RUN_ITEM);
    rp_client_flush(world->client, 1);
    world->deaf = 1;
    world_run(world, 5 * WORLD_MS);
    push(world, &writer, 1, 3, RP_RUN_ITEM);
    world->deaf = 0;
    world_server(world, &config, 77);
    struct rp_sample request = {.count = 8};
    int ticket = rp_client_sample(world->client, 1, &request, NULL, batch_open(&batch),
                                  world_later(world, 20000));
    world_run(world, 100 * WORLD_MS);
    struct rp_push_state state;
    rp_client_push_state(world->client, 1, &state);
    CHECK(state.status == -RP_SERVER_RESTARTED && state.messages_open == 0);
    rp_client_loss(world->client, 1, &stored, &in_doubt, &lost);
    CHECK(stored == 30 && in_doubt == 6 && lost == 3, "%" PRIu64 " %" PRIu64 " %" PRIu64, stored,
          in_doubt, lost);
    uint64_t step[2] = {0, 0};
    CHECK(rp_client_push(world->client, 1, 0, (const uint8_t *)step, 1, 0, NULL)
          == -RP_SERVER_RESTARTED);
    CHECK(rp_client_state(world->client) == 1);
    CHECK(rp_client_poll(world->client, ticket) == RP_PENDING);
    writer_open(world, &writer, "rows");
    push(world, &writer, 1, 30, RP_RUN_ITEM);
    settle(world, &writer);
    CHECK(world_wait(world, ticket) == 0);
    batch_check(&batch, 8);
    world_close(world);
    check_group("9 a restarted server");
}

/* 10. Given a session in silence. Expect it kept alive; cut off for too long, and its place taken:
 *     expired, and opened again. */
static void situation_idle(void) {
    struct world *world = fresh(10);
    world_connect(world);
    uint64_t session = rp_client_session(world->client);
    world_run(world, 120000 * WORLD_MS);
    CHECK(world_wait(world, rp_client_ping(world->client, world_later(world, 1000))) == 0);
    CHECK(rp_client_session(world->client) == session);
    CHECK(rp_client_counters(world->client)[RP_COUNT_reconnects] == 0);
    world_close(world);
    check_group("10 kept alive");
}

/* 11. Given a client whose address changes. Expect it to echo the cookie, and to go on. */
static void situation_moved(void) {
    struct world *world = fresh(11);
    struct writer writer;
    world_connect(world);
    writer_open(world, &writer, "rows");
    push(world, &writer, 0, 30, RP_RUN_ITEM);
    memset(world->ports[1].base.address.bytes, 9, 4);
    settle(world, &writer);
    CHECK(rp_client_counters(world->client)[RP_COUNT_reconnects] == 0);
    CHECK(rp_server_counters(world->server)[RP_COUNT_address_changed] > 0);
    world_close(world);
    check_group("11 a new address");
}

/* Flushes and turns for `duration_ns`: no turn may leave the client due at once, and the turns
 * there are must be those of datagrams and of timers that grow, not of a client that spins. */
static void flushed_rests(struct world *world, uint64_t duration_ns, uint32_t turns_max) {
    uint32_t turns = 0;
    for (uint64_t end = world->now_ns + duration_ns; world->now_ns < end; turns++) {
        rp_client_flush(world->client, 1);
        world_turn(world);
        CHECK(rp_client_deadline(world->client) > world->now_ns, "due at once after a turn");
        world_advance(world, end - world->now_ns);
    }
    CHECK(turns <= turns_max, "%u turns", turns);
}

/* 12. Given a writer that is flushed again and again: with a partial message and no answer, with
 *     nothing to send, and held back by its limiter. Expect the client to sleep between timers. */
static void situation_flushed(void) {
    script_tables(tables);
    config = script_config(tables);
    struct world *world = world_open(&config, 12);
    struct writer writer;
    struct rp_push_state state;
    world_connect(world);
    writer_open(world, &writer, "rows");
    world->deaf = 1;
    push(world, &writer, 0, 5, RP_RUN_ITEM);
    flushed_rests(world, 1000 * WORLD_MS, 50);
    push(world, &writer, 0, 3, RP_RUN_ITEM);
    flushed_rests(world, 1000 * WORLD_MS, 50);
    world->deaf = 0;
    settle(world, &writer);
    flushed_rests(world, 10000 * WORLD_MS, 20);
    for (uint32_t i = 0; i < 25; i++) {
        push(world, &writer, 0, 4, RP_RUN_ITEM);
        rp_client_flush(world->client, 1);
        world_run(world, 2 * WORLD_MS);
    }
    rp_client_push_state(world->client, 1, &state);
    CHECK(state.need > 0 && state.messages_open > 0);
    flushed_rests(world, 10000 * WORLD_MS, 200);
    world_close(world);
    check_group("12 a flushed writer rests");
}

/* 13. Given a card with several queues, whose hash is known or not, and a client that begins at a
 *     wrong one and whose address then changes twice. Expect it to move and to go on in the same
 *     session; where it cannot move at all, to give up in so many words. */
static void situation_misdirected(uint64_t seed, uint32_t permille) {
    struct world *world = fresh(seed);
    struct writer writer;
    world->lose = world->late = world->repeat = permille;
    world->queues = 7;
    world->names_port = permille == 0 || permille % 2;
    world_connect(world);
    writer_open(world, &writer, "rows");
    for (uint32_t i = 0; i < 3; i++) {
        push(world, &writer, 0, 30, RP_RUN_ITEM);
        memset(world->ports[1].base.address.bytes, (int)(3 + 40 * i), 4);
        settle(world, &writer);
    }
    const uint64_t *counters = rp_client_counters(world->client);
    CHECK(world->ports[1].base.address.bytes[0] % 7 == 0);
    CHECK(counters[RP_COUNT_reconnects] == 0 && counters[RP_COUNT_rebinds] >= 4);
    CHECK(permille > 0 || counters[RP_COUNT_rebinds] == 4);
    CHECK(rp_server_counters(world->server)[RP_COUNT_wrong_queue] >= counters[RP_COUNT_rebinds]);
    world->stuck = 1;
    memset(world->ports[1].base.address.bytes, 1, 4);
    int ticket = rp_client_ping(world->client, world_later(world, 60000));
    CHECK(world_wait(world, ticket) == -RP_WRONG_QUEUE);
    CHECK(rp_client_state(world->client) == -RP_WRONG_QUEUE);
    world_close(world);
}

static void shaken(const char *what, void (*situation)(uint64_t, uint32_t), uint64_t seed) {
    situation(seed, 0);
    for (uint64_t i = 0; i < 12; i++) {
        situation(seed + 100 * i, 30 + 25 * (uint32_t)i);
    }
    check_group(what);
}

int main(void) {
    uint64_t seed = check_seed(3);
    situation_open();
    situation_refused();
    shaken("3 push and sample", situation_push_sample, seed);
    shaken("4 several batches, updates", situation_update, seed + 1);
    shaken("5 creates", situation_create, seed + 2);
    shaken("6 weights, spec", situation_blob, seed + 3);
    shaken("7 a sample that waits", situation_blocked, seed + 4);
    shaken("8 a writer that waits", situation_limiter, seed + 5);
    situation_restart();
    situation_idle();
    situation_moved();
    situation_flushed();
    shaken("13 a card with several queues", situation_misdirected, seed + 6);
    return check_done("test_client");
}
