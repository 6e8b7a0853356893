/* A writer that is asked for again, that is full, that ends while it is held back, and what
 * is remembered of steps that nobody asked for yet: each step counts once, in order, whatever comes
 * between. Situations read "Given ... Expect ...". */
#include "client/client_parts.h"
#include "client_world.h"

enum { MAIN = 0, ROWS = 1, ROW = 16 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct rp_table_info info;

static void defaults(void) {
    config = world_config(tables);
}

static void writer(struct world *world, const char *table, uint16_t streams) {
    static struct rp_writer_granted granted;
    int ticket = rp_client_table(world->client, table, &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &info, streams, &granted, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0 && granted.epoch == info.epoch);
}

static struct world *fresh(uint64_t seed, const struct rp_client_options *options) {
    struct world *world = world_open(&config, seed);
    world_client(world, options);
    world_connect(world);
    return world;
}

/* Steps `from` on of a stream; how many were taken. */
static uint32_t push(struct world *world, uint16_t table, uint16_t stream, uint64_t from,
                     uint32_t count, uint32_t flags) {
    static uint64_t steps[2 * 4096];
    CHECK(count <= 4096);
    for (uint32_t i = 0; i < count; i++) {
        steps[2 * i] = from + i;
        steps[2 * i + 1] = 7 * (from + i);
    }
    int taken = rp_client_push(world->client, table, stream, (const uint8_t *)steps, count, flags,
                               NULL);
    CHECK(taken >= 0 && (uint32_t)taken <= count, "push: %d", taken);
    return (uint32_t)taken;
}

static struct rp_push_state state_of(const struct world *world, uint16_t table) {
    struct rp_push_state state;
    rp_client_push_state(world->client, table, &state);
    return state;
}

static void settle(struct world *world, uint16_t table) {
    uint64_t end = world_later(world, 60000);
    while (rp_client_flush(world->client, table), state_of(world, table).messages_open > 0) {
        CHECK(world->now_ns < end, "pushes never settle");
        CHECK(state_of(world, table).status == 0, "%d", state_of(world, table).status);
        world_step(world, WORLD_MS);
    }
}

static const struct rp_push *push_asked(struct world *world) {
    const struct world_datagram *datagram = world_find(&world->ports[0], RP_OP_PUSH, 0);
    CHECK(datagram != NULL, "no PUSH is under way");
    return (const void *)(datagram->data + RP_HEADER_BYTES);
}

/* 1. Given a writer with steps stored that is asked for again, with more streams than the server
 *    gave it. Expect it to go on where it was, with those it has. */
static void situation_again(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(1, &options);
    writer(world, "rows", 1);
    CHECK(push(world, ROWS, 0, 0, 3, RP_RUN_ITEM) == 3);
    settle(world, ROWS);
    writer(world, "rows", 2);
    CHECK(push(world, ROWS, 0, 3, 2, RP_RUN_ITEM) == 2);
    CHECK(rp_client_push(world->client, ROWS, 1, (const uint8_t *)tables, 1, 0, NULL)
          == -RP_BAD_STREAM);
    rp_client_flush(world->client, ROWS);
    world_client_turn(world);
    const struct rp_run *run = (const void *)(push_asked(world) + 1);
    CHECK(run->stream == 0 && run->step == 3 && run->count == 2);
    settle(world, ROWS);
    CHECK(state_of(world, ROWS).steps_stored == 5 && state_of(world, ROWS).items_created == 5);
    world_close(world);
    check_group("1 a writer that is asked for again");
}

/* 2. Given a bound on steps that are not acknowledged, and some that are not. Expect what is left
 *    of it to be taken, and nothing more until answers come. */
static void situation_bound(void) {
    struct rp_client_options options = world_options();
    options.unacknowledged_max = 10;
    struct world *world = fresh(2, &options);
    writer(world, "rows", 1);
    world->deaf = 1;
    CHECK(push(world, ROWS, 0, 0, 6, 0) == 6 && push(world, ROWS, 0, 6, 6, 0) == 4);
    CHECK(push(world, ROWS, 0, 10, 1, 0) == 0 && state_of(world, ROWS).steps_posted == 10);
    world->deaf = 0;
    settle(world, ROWS);
    CHECK(push(world, ROWS, 0, 10, 11, 0) == 10);
    settle(world, ROWS);
    CHECK(state_of(world, ROWS).steps_stored == 20);
    world_close(world);
    check_group("2 the bound on what is not acknowledged");
}

/* 3. Given posts of more steps than there are messages for. Expect as many taken as were told, and
 *    each step stored once. */
static void situation_full(void) {
    enum { STEPS = 4000 };
    struct rp_client_options options = world_options();
    options.messages_max = 4;
    options.unacknowledged_max = 1 << 20;
    tables[1].capacity = 1 << 15;
    tables[1].window = 512;
    struct world *world = fresh(3, &options);
    writer(world, "rows", 1);
    uint32_t taken = push(world, ROWS, 0, 0, STEPS, 0);
    CHECK(taken > 100 && taken < STEPS, "%u", taken);
    while (taken < STEPS) {
        CHECK(state_of(world, ROWS).steps_posted == taken);
        world_step(world, WORLD_MS);
        taken += push(world, ROWS, 0, taken, STEPS - taken, 0);
    }
    settle(world, ROWS);
    CHECK(state_of(world, ROWS).steps_stored == STEPS);
    struct rp_push_key key;
    for (uint32_t i = 0; i < STEPS; i++) {
        CHECK(rp_client_ledger(world->client, &key, 1) == 1 && key.step == i, "step %u", i);
    }
    world_close(world);
    defaults();
    check_group("3 more steps than messages");
}

/* 4. Given more answers than the ledger has places, and more steps than a place can count, of one
 *    stream in a row. Expect every key, in order: they share places. */
static void situation_ledger(void) {
    enum { SINGLE = 3000, STEPS = 70000, MOST = 4096 };
    struct rp_client_options options = world_options();
    options.mtu = RP_MTU_MIN;
    options.unacknowledged_max = 1 << 20;
    tables[1].capacity = 1 << 15;
    tables[1].window = 512;
    struct world *world = fresh(4, &options);
    writer(world, "rows", 1);
    uint32_t taken = 0;
    while (taken < SINGLE) {
        taken += push(world, ROWS, 0, taken, 1, 0);
        rp_client_flush(world->client, ROWS);
        world_step(world, WORLD_MS);
    }
    while (taken < STEPS) {
        taken += push(world, ROWS, 0, taken, STEPS - taken < MOST ? STEPS - taken : MOST, 0);
        world_step(world, WORLD_MS);
    }
    settle(world, ROWS);
    static struct rp_push_key keys[STEPS + 1];
    CHECK(rp_client_ledger(world->client, keys, STEPS + 1) == STEPS);
    for (uint32_t i = 0; i < STEPS; i++) {
        CHECK(keys[i].step == i && keys[i].key == keys[0].key + i, "step %u", i);
    }
    world_close(world);
    defaults();
    check_group("4 the ledger of steps in a row");
}

/* Two steps of one stream and two of the other in turn, so that none share a place of the ledger:
 * `places` of them from that one on. */
static void push_apart(struct world *world, uint32_t from, uint32_t places) {
    for (uint32_t i = from; i < from + places; i++) {
        CHECK(push(world, ROWS, (uint16_t)(i % 2), i / 2 * 2, 2, 0) == 2);
        if (i % 16 == 15) {
            settle(world, ROWS);
        }
    }
    settle(world, ROWS);
}

/* Given a full ledger, one step of its oldest place taken, and more steps. Expect the place to give
 * way with its other step, and every key of the next ones. */
static void situation_ledger_gives_way(void) {
    struct rp_client_options options = world_options();
    struct rp_push_key key;
    tables[1].capacity = 1 << 15;
    tables[1].window = 512;
    struct world *world = fresh(14, &options);
    uint32_t most = world->client->ledger_max;
    writer(world, "rows", 2);
    push_apart(world, 0, most);
    CHECK(world->client->ledger_count == most, "%u places", world->client->ledger_count);
    CHECK(rp_client_ledger(world->client, &key, 1) == 1 && key.stream == 0 && key.step == 0);
    uint64_t first = key.key;
    push_apart(world, most, 1);
    for (uint32_t i = 2; i < 2 * (most + 1); i++) {
        CHECK(rp_client_ledger(world->client, &key, 1) == 1);
        CHECK(key.stream == i / 2 % 2 && key.step == i / 4 * 2 + i % 2 && key.key == first + i,
              "step %" PRIu64 " of stream %u in place of the %u. one", key.step, key.stream, i);
    }
    CHECK(rp_client_ledger(world->client, &key, 1) == 0);
    world_close(world);
    defaults();
    check_group("a ledger's oldest place gives way whole");
}

/* Given steps of two tables in a ledger that comes round, looked at by two who ask for keys: one
 * for steps that were told before, one for those that were not. Expect each key told once, to whom
 * asks for its step, whoever looked first. */
static void situation_keys_of_calls(void) {
    enum { EACH = 3, ROUNDS = 200 };
    uint64_t before[2 * EACH], keys[2][2 * EACH], all[2][EACH * ROUNDS] = {{0}};
    struct rp_client_options options = world_options();
    struct rp_push_key key;
    struct world *world = fresh(15, &options);
    writer(world, "main", 1);
    writer(world, "rows", 1);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t first = (uint64_t)round * EACH;
        for (uint16_t table = MAIN; table <= ROWS; table++) {
            CHECK(push(world, table, 0, first, EACH, 0) == EACH);
        }
        settle(world, MAIN);
        settle(world, ROWS);
        if (round % 3 == 1) { /* one key less, of either table */
            CHECK(rp_client_ledger(world->client, &key, 1) == 1 && key.step == first);
            all[key.table][key.step] = key.key;
        }
        for (uint16_t table = MAIN; table <= ROWS; table++) {
            uint32_t told = round % 3 == 1 && key.table == table;
            CHECK(!round || !rp_client_keys(world->client, table, first - EACH, before, EACH));
            CHECK(rp_client_keys(world->client, table, first, keys[table], EACH) == EACH - told);
            for (uint32_t i = told; i < EACH; i++) {
                all[table][first + i] = keys[table][i];
            }
        }
    }
    CHECK(rp_client_ledger(world->client, &key, 1) == 0);
    for (uint32_t i = 1; i < EACH * ROUNDS; i++) {
        for (uint16_t table = MAIN; table <= ROWS; table++) {
            CHECK(all[table][i] == all[table][0] + i, "step %u of table %u", i, table);
        }
    }
    world_close(world);
    check_group("keys go to whom asks for their steps, and wait for them");
}

/* Given steps of two calls that share a place of the ledger, which is not its first. Expect the
 * first call to leave the other's, and the second to let go what nobody took of the first. */
static void situation_keys_share_a_place(void) {
    enum { EACH = 5 };
    struct rp_client_options options = world_options();
    struct world *world = fresh(16, &options);
    uint64_t keys[EACH] = {0}, first;
    struct rp_push_key key;
    writer(world, "main", 1);
    writer(world, "rows", 1);
    CHECK(push(world, MAIN, 0, 0, 1, 0) == 1);
    settle(world, MAIN);
    CHECK(push(world, ROWS, 0, 0, 3 * EACH, 0) == 3 * EACH);
    settle(world, ROWS);
    CHECK(rp_client_ledger(world->client, &key, 1) == 1 && key.table == MAIN);
    CHECK(world->client->ledger_count == 1, "%u places", world->client->ledger_count);
    CHECK(rp_client_keys(world->client, ROWS, 0, keys, EACH) == EACH);
    first = keys[0];
    CHECK(rp_client_keys(world->client, ROWS, 2 * EACH, keys, EACH) == EACH);
    for (uint32_t i = 0; i < EACH; i++) {
        CHECK(keys[i] == first + 2 * EACH + i, "step %u", i);
    }
    CHECK(rp_client_keys(world->client, ROWS, EACH, keys, EACH) == 0);
    CHECK(keys[0] == first + 2 * EACH && world->client->ledger_count == 0);
    world_close(world);
    check_group("a place of the ledger that two calls share");
}

/* 5. Given a writer that the limiter holds back, and its table emptied. Expect it to end, and a new
 *    one in its place to push at once. */
static void situation_ended(void) {
    struct rp_client_options options = world_options();
    uint64_t epoch, posted = 0;
    script_tables(tables);
    config = script_config(tables);
    struct world *world = fresh(5, &options);
    writer(world, "rows", 1);
    for (uint32_t i = 0; state_of(world, ROWS).need == 0; i++) {
        CHECK(i < 1000, "it is never held back");
        posted += push(world, ROWS, 0, posted, 5, RP_RUN_ITEM);
        rp_client_flush(world->client, ROWS);
        world_step(world, WORLD_MS);
    }
    int ticket = rp_client_reset(world->client, ROWS, info.epoch, &epoch, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    for (uint32_t i = 0; state_of(world, ROWS).status == 0; i++) {
        CHECK(i < 10000, "it never ends");
        world_step(world, WORLD_MS);
    }
    CHECK(state_of(world, ROWS).status == -RP_STALE_EPOCH && state_of(world, ROWS).need == 0);
    writer(world, "rows", 1);
    CHECK(info.epoch == epoch && push(world, ROWS, 0, 0, 5, RP_RUN_ITEM) == 5);
    settle(world, ROWS);
    CHECK(state_of(world, ROWS).steps_stored == 5 && state_of(world, ROWS).items_created == 5);
    world_close(world);
    defaults();
    check_group("5 a writer that ended while it was held back");
}

/* 6. Given a step, and an item whose window ends two steps later. Expect the create alone to be
 *    asked for again, not the step that is stored, and the item once its window is whole. */
static void situation_create_alone(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(6, &options);
    writer(world, "main", 1);
    CHECK(push(world, MAIN, 0, 0, 1, 0) == 1);
    CHECK(rp_client_create(world->client, MAIN, 0, 0, 1.0, 0) == 0);
    rp_client_flush(world->client, MAIN);
    while (state_of(world, MAIN).steps_stored == 0) {
        world_step(world, WORLD_MS / 100);
    }
    while (world_asked(world, RP_OP_PUSH) == 0) {
        world_advance(world, 1000 * WORLD_MS);
        world_client_turn(world);
    }
    CHECK(push_asked(world)->run_count == 0 && push_asked(world)->create_count == 1);
    CHECK(push(world, MAIN, 0, 1, 2, 0) == 2);
    settle(world, MAIN);
    CHECK(state_of(world, MAIN).items_created == 1 && state_of(world, MAIN).items_failed == 0);
    CHECK(state_of(world, MAIN).steps_stored == 3);
    world_close(world);
    check_group("6 a create that waits for its window goes alone");
}

/* 13. Given a create whose window is not whole yet, all that was posted being stored. Expect it to
 *     be asked for by time, not again and again. */
static void situation_create_too_soon(void) {
    struct rp_client_options options = world_options();
    options.retry_us_min = options.retry_us_max = 400000;
    struct world *world = fresh(6, &options);
    writer(world, "main", 1);
    CHECK(push(world, MAIN, 0, 0, 1, 0) == 1);
    CHECK(rp_client_create(world->client, MAIN, 0, 0, 1.0, 0) == 0);
    rp_client_flush(world->client, MAIN);
    world_run(world, 1000 * WORLD_MS);
    CHECK(state_of(world, MAIN).steps_stored == 1 && state_of(world, MAIN).items_created == 0);
    CHECK(rp_server_counters(world->server)[RP_COUNT_pushes] <= 5, "%" PRIu64,
          rp_server_counters(world->server)[RP_COUNT_pushes]);
    world_close(world);
    check_group("13 a create that comes too soon is asked for by time");
}

/* 12. Given a create that came before the steps of an earlier message, which was lost on its way;
 *     then the question for it too. Expect the item one round trip behind those steps, not when the
 *     create's time is out; else no more steps than the ring has room for before it is made. */
static void situation_create_due(int lost) {
    struct rp_client_options options = world_options();
    options.retry_us_min = options.retry_us_max = 400000;
    struct world *world = fresh(6, &options);
    const uint64_t *counters = rp_server_counters(world->server);
    writer(world, "main", 1);
    CHECK(push(world, MAIN, 0, 0, 3, 0) == 3);
    rp_client_flush(world->client, MAIN);
    world_client_turn(world);
    world_lose(world, RP_OP_PUSH);
    CHECK(push(world, MAIN, 0, 3, 1, 0) == 1);
    CHECK(rp_client_create(world->client, MAIN, 0, 0, 1.0, 0) == 0);
    while (state_of(world, MAIN).steps_stored < 4) {
        rp_client_flush(world->client, MAIN);
        world_step(world, WORLD_MS / 10);
    }
    uint64_t stored_ns = world->now_ns, next = 4;
    if (lost) {
        world_client_turn(world);
        CHECK(push_asked(world)->run_count == 0 && push_asked(world)->create_count == 1);
        world_lose(world, RP_OP_PUSH);
    }
    while (state_of(world, MAIN).items_created == 0) {
        CHECK(lost || world->now_ns - stored_ns < 3 * WORLD_MS, "not before its time is out");
        next += lost ? push(world, MAIN, 0, next, 1, 0) : 0;
        rp_client_flush(world->client, MAIN);
        world_step(world, WORLD_MS / 10);
        CHECK(counters[RP_COUNT_steps_committed] <= 4 + SCRIPT_WINDOW, "they come round");
    }
    CHECK(counters[RP_COUNT_items_not_yet] == 1, "its step was not there");
    CHECK(lost || counters[RP_COUNT_pushes] == 3, "two of steps, and the create");
    CHECK(!lost || counters[RP_COUNT_steps_committed] == 4 + SCRIPT_WINDOW);
    settle(world, MAIN);
    CHECK(state_of(world, MAIN).items_failed == 0 && state_of(world, MAIN).steps_stored == next);
    world_close(world);
}

/* 7. Given rows of one priority, and a stratified batch of as many, more than are drawn side by
 *    side. Expect each row once; also behind a larger batch, when all weigh less than then. */
static void situation_strata(void) {
    enum { ITEMS = 50, MOST = 64 };
    static uint64_t values[2 * MOST], keys[MOST];
    static double priorities[ITEMS];
    struct rp_client_options options = world_options();
    const struct rp_landing_column column = {(uint8_t *)values, ROW, 0, ROW};
    const struct rp_landing landing = {.columns = &column, .column_count = 1, .item_bytes = ROW,
                                       .keys = keys};
    struct rp_sample request = {.mode = RP_SAMPLE_STRATIFIED};
    struct world *world = fresh(7, &options);
    writer(world, "rows", 1);
    for (uint32_t taken = 0; taken < ITEMS;) {
        taken += push(world, ROWS, 0, taken, ITEMS - taken, RP_RUN_ITEM);
        settle(world, ROWS);
    }
    static const uint32_t counts[] = {ITEMS, MOST, ITEMS};
    for (uint32_t round = 0; round < 3; round++) {
        request.count = counts[round];
        int ticket = rp_client_sample(world->client, ROWS, &request, NULL, &landing,
                                      world_later(world, 5000));
        CHECK(world_wait(world, ticket) == 0);
        uint64_t seen = 0;
        for (uint32_t i = 0; i < ITEMS && counts[round] == ITEMS; i++) {
            CHECK(values[2 * i] < ITEMS && values[2 * i + 1] == 7 * values[2 * i], "item %u", i);
            CHECK(!(seen >> values[2 * i] & 1), "row %" PRIu64 " twice", values[2 * i]);
            seen |= 1ull << values[2 * i];
            priorities[i] = 0.25;
        }
        if (round == 1) {
            for (uint64_t i = 0; i < ITEMS; i++) {
                keys[i] = info.capacity + i;
            }
            ticket = rp_client_update(world->client, ROWS, info.epoch, keys, priorities, ITEMS,
                                      NULL, world_later(world, 5000));
            CHECK(world_wait(world, ticket) == 0);
        }
    }
    world_close(world);
    check_group("7 strata of equal rows: each once");
}

/* The server's turn; what it answers to PUSH says that the one step was stored, none in order. */
static void told_stored(struct world *world) {
    struct world_datagram *answer;
    rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
    for (uint32_t from = 0;
         (answer = world_find(&world->ports[1], RP_OP_PUSH | RP_ANSWER, from)) != NULL;
         from = (uint32_t)(answer - world->ports[1].queue) + 1) {
        struct rp_pushed *head = (void *)(answer->data + RP_ANSWER_BYTES);
        head->done_through = 0;
        ((struct rp_run_done *)(void *)(head + 1))->committed = 1;
        world_reseal(answer);
    }
}

/* 8. Given two steps in pieces, the first one lost on its way for some time, the second one told
 *    stored meanwhile. Expect nothing acknowledged before the first is, and then each once. */
static void situation_pieces(void) {
    enum { LARGE = 2000, LONG = 20 };
    static uint8_t step[LARGE];
    struct rp_client_options options = world_options();
    tables[1].step_bytes = LARGE;
    struct world *world = fresh(8, &options);
    writer(world, "rows", 1);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(rp_client_push(world->client, ROWS, 0, step, 1, 0, NULL) == 1);
    }
    rp_client_flush(world->client, ROWS);
    uint64_t end = world_later(world, LONG), received = world->ports[1].received;
    while (world->now_ns < end) {
        world_client_turn(world);
        while (world_asked(world, RP_OP_PUSH) > 0
               && ((const struct rp_run *)(const void *)(push_asked(world) + 1))->step == 0) {
            world_lose(world, RP_OP_PUSH);
        }
        told_stored(world);
        CHECK(state_of(world, ROWS).steps_stored == 0);
        world_advance(world, WORLD_MS);
    }
    CHECK(world->ports[1].received >= received + 2, "%" PRIu64 " answers",
          world->ports[1].received - received);
    settle(world, ROWS);
    CHECK(state_of(world, ROWS).steps_stored == 2);
    world_close(world);
    defaults();
    check_group("8 a step in pieces waits for the one before it");
}

/* Pushes step `i` of the rows, flushing nothing; returns whether it left before any answer. */
static int leaves(struct world *world, uint32_t i) {
    uint32_t asked = world_asked(world, RP_OP_PUSH);
    CHECK(push(world, ROWS, 0, i, 1, 0) == 1);
    world_client_turn(world);
    return world_asked(world, RP_OP_PUSH) > asked;
}

/* 8. Given a step under way, and a flush. Expect what is being filled to leave with it, and what
 *    is posted later to wait; a flush of nothing, and one of no writer, to change nothing. */
static void situation_flushes(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(8, &options);
    writer(world, "rows", 2);
    world->deaf = 1;
    CHECK(leaves(world, 0) && !leaves(world, 1));
    rp_client_flush(world->client, ROWS);
    world_client_turn(world);
    CHECK(world_asked(world, RP_OP_PUSH) == 2, "the flush sends it");
    CHECK(!leaves(world, 2), "a flush is for what was posted before it");
    rp_client_flush(world->client, ROWS);
    world_client_turn(world);
    rp_client_flush(world->client, ROWS);
    rp_client_flush(world->client, MAIN);
    CHECK(world_asked(world, RP_OP_PUSH) == 3 && !leaves(world, 3), "nothing was there to flush");
    world->deaf = 0;
    settle(world, ROWS);
    CHECK(state_of(world, ROWS).steps_stored == 4);
    world_close(world);
    check_group("8 a flush is for what is there");
}

/* 9. Given a step under way and as many behind it as may be unacknowledged. Expect those to leave
 *    at once: no other will come to fill their message. */
static void situation_last(void) {
    struct rp_client_options options = world_options();
    options.unacknowledged_max = 4;
    struct world *world = fresh(9, &options);
    writer(world, "rows", 2);
    world->deaf = 1;
    CHECK(leaves(world, 0) && !leaves(world, 1) && !leaves(world, 2) && leaves(world, 3));
    CHECK(push(world, ROWS, 0, 4, 1, 0) == 0);
    world->deaf = 0;
    settle(world, ROWS);
    CHECK(state_of(world, ROWS).steps_stored == 4);
    world_close(world);
    check_group("9 the last step that may be open waits for no other");
}

/* 10. Given writers of two tables, pushing by turns. Expect each to count its own steps, and the
 *     places for streams to be given out once. */
static void situation_two_tables(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(10, &options);
    writer(world, "rows", 2);
    writer(world, "main", 1);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(push(world, ROWS, 0, i, 1, 0) == 1);
        CHECK(i > 1 || push(world, MAIN, 0, i, 1, 0) == 1);
    }
    CHECK(rp_client_create(world->client, ROWS, 0, 3, 1.0, 0) == 0);
    CHECK(rp_client_create(world->client, MAIN, 0, 2, 1.0, 0) == -RP_BAD_ARGUMENT, "two steps");
    settle(world, ROWS);
    settle(world, MAIN);
    CHECK(state_of(world, ROWS).steps_stored == 4 && state_of(world, MAIN).steps_stored == 2);
    uint16_t left = RP_STREAMS_MAX - 2 - 1;
    rp_client_end(world->client, -RP_CLOSED); /* a writer that goes on gets no other place */
    CHECK(rp_client_writer_reserve(world->client, MAIN, left) == 0, "the places that are left");
    CHECK(rp_client_writer_reserve(world->client, MAIN, left + 1) == -RP_FULL, "none is left");
    world_close(world);
    check_group("10 writers of two tables");
}

/* 11. Given two writers, and the first of them granted only when the other has pushed. Expect the
 *     other's steps to go on where they were. */
static void situation_later_writer(void) {
    static struct rp_writer_granted granted;
    struct rp_client_options options = world_options();
    struct world *world = fresh(12, &options);
    int ticket = rp_client_table(world->client, "main", &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &info, 2, &granted, world_later(world, 5000));
    world_client_turn(world);
    world_lose(world, RP_OP_WRITER); /* it has its places, and asks again */
    writer(world, "rows", 2);
    CHECK(push(world, ROWS, 0, 0, 3, RP_RUN_ITEM) == 3);
    CHECK(rp_client_poll(world->client, ticket) == RP_PENDING);
    CHECK(world_wait(world, ticket) == 0 && push(world, ROWS, 0, 3, 2, RP_RUN_ITEM) == 2);
    settle(world, ROWS);
    CHECK(state_of(world, ROWS).steps_stored == 5 && state_of(world, ROWS).items_created == 5);
    world_close(world);
    check_group("11 a writer that begins leaves another's streams alone");
}

int main(void) {
    defaults();
    situation_again();
    situation_bound();
    situation_full();
    situation_ledger();
    situation_ledger_gives_way();
    situation_keys_of_calls();
    situation_keys_share_a_place();
    situation_ended();
    situation_create_alone();
    situation_create_too_soon();
    situation_create_due(0);
    situation_create_due(1);
    check_group("12 a create is asked for as soon as it is due");
    situation_strata();
    situation_pieces();
    situation_flushes();
    situation_last();
    situation_two_tables();
    situation_later_writer();
    return check_done("test_client_writer");
}
