/* A client that gives up on a sample which waits at the server withdraws it there, so that
 * nobody stands behind it. Situations read "Given ... Expect ...". */
#include "client_world.h"

enum { ITEM = 16, BATCH = 64, NO_LIMITER = 6, WIDE = 8 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static uint8_t bytes[BATCH * ITEM];
static struct rp_landing_column column = {bytes, ITEM, 0, ITEM};

/* Table "rows" with five items and a limiter that lets five be drawn. */
static struct world *five_items(uint64_t seed) {
    script_tables(tables);
    tables[1].samples_per_insert = seed == NO_LIMITER ? 0 : tables[1].samples_per_insert;
    tables[1].error_min = seed == WIDE ? 12 : tables[1].error_min; /* six items are half of that */
    tables[1].error_max = seed == WIDE ? 24 : tables[1].error_max;
    config = script_config(tables);
    config.records = seed == NO_LIMITER ? 2 : config.records; /* fewer than a credit's datagrams */
    struct world *world = world_open(&config, seed);
    struct rp_table_info info;
    struct rp_writer_granted granted;
    uint8_t rows[5 * ITEM] = {0};
    uint64_t deadline = world_later(world, 5000);
    world_connect(world);
    CHECK(world_wait(world, rp_client_table(world->client, "rows", &info, deadline)) == 0);
    CHECK(world_wait(world, rp_client_writer(world->client, &info, 1, &granted, deadline)) == 0);
    CHECK(rp_client_push(world->client, 1, 0, rows, 5, RP_RUN_ITEM, NULL) == 5);
    rp_client_flush(world->client, 1);
    world_run(world, 100 * WORLD_MS);
    return world;
}

static int post_at(struct world *world, uint16_t table, uint32_t count, uint64_t deadline_ns) {
    struct rp_sample request = {.count = count};
    struct rp_landing landing = {.columns = &column, .column_count = 1, .item_bytes = ITEM};
    return rp_client_sample(world->client, table, &request, NULL, &landing, deadline_ns);
}

static int post(struct world *world, uint32_t count, uint64_t deadline_ns) {
    return post_at(world, 1, count, deadline_ns);
}

static uint64_t withdrawn(const struct world *world) {
    return rp_server_counters(world->server)[RP_COUNT_waits_withdrawn];
}

/* 1. Given a sample that may not wait, one whose time is over, and one that its caller drops: each
 *    larger than what may be drawn. Expect the first to take no place, the others to be withdrawn,
 *    and a smaller one to be served at once. */
static void situation_given_up(void) {
    struct world *world = five_items(1);
    CHECK(world_wait(world, post(world, 6, 0)) == -RP_BLOCKED);
    CHECK(world_wait(world, post(world, 1, 0)) == 0 && withdrawn(world) == 0);
    CHECK(world_wait(world, post(world, 6, world_later(world, 100))) == -RP_BLOCKED);
    CHECK(world_wait(world, post(world, 1, 0)) == 0 && withdrawn(world) == 1);
    int ticket = post(world, 6, world_later(world, 60000));
    world_run(world, 2000 * WORLD_MS);
    CHECK(rp_client_poll(world->client, ticket) == RP_PENDING);
    rp_client_take(world->client, ticket);
    CHECK(rp_client_deadline(world->client) <= world->now_ns, "it is not told at once");
    CHECK(world_wait(world, post(world, 1, 0)) == 0 && withdrawn(world) == 2);
    CHECK(rp_client_counters(world->client)[RP_COUNT_drop_unsolicited] == 0);
    CHECK(rp_server_counters(world->server)[RP_COUNT_items_sampled] == 3);
    rp_server_check(world->server);
    world_close(world);
    check_group("1 a sample that is given up is withdrawn");
}

/* 2. Given a sample that the server refuses for ever. Expect nothing withdrawn there: it is told of
 *    by that refusal alone. */
static void situation_refused(void) {
    struct world *world = five_items(7);
    struct rp_sample request = {.count = 1, .epoch = UINT64_MAX};
    struct rp_landing landing = {.columns = &column, .column_count = 1, .item_bytes = ITEM};
    uint64_t before = world->ports[1].sent;
    int ticket = rp_client_sample(world->client, 1, &request, NULL, &landing,
                                  world_later(world, 60000));
    CHECK(world_wait(world, ticket) == -RP_STALE_EPOCH);
    world_run(world, 10 * WORLD_MS);
    CHECK(world->ports[1].sent == before + 1, "%" PRIu64 " datagrams",
          world->ports[1].sent - before);
    world_close(world);
    check_group("2 a sample that is refused is not withdrawn");
}

/* 3. Given a sample that is given up as the news of the server's restart are on their way. Expect
 *    nothing withdrawn in the new session, where its number may be another sample's. */
static void situation_other_session(void) {
    struct world *world = five_items(8);
    int ticket = post(world, 6, world_later(world, 60000));
    world_run(world, 100 * WORLD_MS);
    world_server(world, &config, 77);
    int ping = rp_client_ping(world->client, world_later(world, 5000));
    for (uint32_t i = 0; world->ports[1].count == 0; i++) {
        CHECK(i < 1000, "no answer is on its way");
        world_client_turn(world);
        rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
        world->now_ns += WORLD_MS;
    }
    rp_client_take(world->client, ticket);
    for (uint32_t i = 0; i < 1000; i++) {
        world_client_turn(world);
        CHECK(world_asked(world, RP_OP_CANCEL) == 0);
        rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
        world->now_ns += WORLD_MS;
    }
    CHECK(rp_client_poll(world->client, ping) != RP_PENDING);
    CHECK(rp_server_sessions(world->server) == 1 && rp_client_state(world->client) == 1);
    world_close(world);
    check_group("3 what was given up in one session is not withdrawn in the next");
}

/* 4. Given a withdrawal that is lost. Expect the place gone as its client asks for another sample,
 *    which says that the first one is done. */
static void situation_lost(void) {
    struct world *world = five_items(2);
    int ticket = post(world, 6, world_later(world, 60000));
    world_run(world, 100 * WORLD_MS);
    rp_client_take(world->client, ticket);
    world->lose = 1000;
    world_run(world, 10 * WORLD_MS);
    world->lose = 0;
    CHECK(withdrawn(world) == 0 && world->server->waiting[RP_WAIT_SAMPLE][1].count == 1);
    CHECK(world_wait(world, post(world, 1, 0)) == 0 && withdrawn(world) == 1);
    world_close(world);
    check_group("4 a withdrawal that is lost is made good for by the next sample");
}

/* 5. Given four samples that wait one behind the other, and items that come as one of them was
 *    drawn. Expect each at once, in order: none waits for the time at which it would ask again. */
static void situation_in_a_row(void) {
    struct world *world = five_items(3);
    uint8_t rows[6 * ITEM] = {0};
    int tickets[4];
    for (uint32_t i = 0; i < 4; i++) {
        tickets[i] = post(world, 6, world_later(world, 60000));
    }
    world_run(world, 20 * WORLD_MS);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(rp_client_poll(world->client, tickets[i]) == RP_PENDING);
        CHECK(rp_client_push(world->client, 1, 0, rows, 6, RP_RUN_ITEM, NULL) == 6);
        rp_client_flush(world->client, 1);
        world_run(world, 20 * WORLD_MS);
        CHECK(rp_client_poll(world->client, tickets[i]) == 0, "sample %u", i);
    }
    world_close(world);
    check_group("5 samples that wait in a row go on in a row");
}

/* 6. Given a sample that waits, and a smaller one that waits behind it, others that wait at another
 *    table, and the first one given up. Expect the second served at once, not when it would ask
 *    again. */
static void situation_next(void) {
    struct world *world = five_items(4);
    int first = post(world, 6, world_later(world, 60000));
    int elsewhere[2] = {post_at(world, 0, 1, world_later(world, 60000))};
    world_run(world, 20 * WORLD_MS);
    int second = post(world, 5, world_later(world, 60000));
    elsewhere[1] = post_at(world, 0, 1, world_later(world, 60000));
    world_run(world, 20 * WORLD_MS);
    CHECK(rp_client_poll(world->client, elsewhere[0]) == RP_PENDING);
    CHECK(rp_client_poll(world->client, elsewhere[1]) == RP_PENDING);
    CHECK(rp_client_poll(world->client, first) == RP_PENDING);
    CHECK(rp_client_poll(world->client, second) == RP_PENDING);
    rp_client_take(world->client, first);
    world_run(world, 20 * WORLD_MS);
    CHECK(rp_client_poll(world->client, second) == 0);
    world_close(world);
    check_group("6 who waits behind a sample that is given up goes on at once");
}

/* 7. Given two samples that wait, and hundreds of other draws of their session meanwhile, so that
 *    the id of the one without a place falls behind theirs again and again. Expect both to wait on,
 *    and to be served once there is enough. */
static void situation_overtaken(void) {
    enum { OTHERS = 500 };
    struct world *world = five_items(9);
    struct rp_sample request = {.count = 1, .mode = RP_SAMPLE_KEYS};
    struct rp_landing landing = {.columns = &column, .column_count = 1, .item_bytes = ITEM};
    uint8_t rows[12 * ITEM] = {0};
    uint64_t key = 0;
    int first = post(world, 6, world_later(world, 60000));
    world_run(world, 20 * WORLD_MS);
    int second = post(world, 6, world_later(world, 60000));
    for (uint32_t i = 0; i < OTHERS; i++) {
        int other = rp_client_sample(world->client, 1, &request, &key, &landing,
                                     world_later(world, 5000));
        CHECK(world_wait(world, other) == -RP_SHORT_BATCH);
        world_run(world, 10 * WORLD_MS);
    }
    CHECK(rp_client_poll(world->client, first) == RP_PENDING);
    CHECK(rp_client_poll(world->client, second) == RP_PENDING, "it ends with %d",
          rp_client_poll(world->client, second));
    CHECK(rp_client_push(world->client, 1, 0, rows, 12, RP_RUN_ITEM, NULL) == 12);
    rp_client_flush(world->client, 1);
    CHECK(world_wait(world, first) == 0 && world_wait(world, second) == 0);
    CHECK(rp_server_counters(world->server)[RP_COUNT_items_sampled] == OTHERS + 12);
    world_close(world);
    check_group("7 a sample that waits outlives any number of others");
}

static void write_rows(struct world *world, uint16_t table, uint32_t count) {
    static uint8_t rows[BATCH * ITEM];
    for (uint32_t done = 0, tries = 0; done < count; tries++) {
        CHECK(tries < 1000);
        int taken = rp_client_push(world->client, table, 0, rows, count - done, RP_RUN_ITEM, NULL);
        done += taken > 0 ? (uint32_t)taken : 0;
        rp_client_flush(world->client, table);
        world_run(world, WORLD_MS);
    }
}

/* 8. Given a batch with a hole, whose redraw the limiter holds back until the time is over. Expect
 *     the batch, told short, and the redraw withdrawn, not drawn for nobody later. */
static void situation_redraw(void) {
    struct world *world = five_items(11);
    struct world_datagram *answer;
    int ticket = post(world, 5, world_later(world, 1000));
    while (world_turn(world),
           (answer = world_find(&world->ports[1], RP_OP_SAMPLE | RP_ANSWER, 0)) == NULL) {
        world_advance(world, WORLD_MS / 100);
    }
    answer->data[RP_ANSWER_BYTES + sizeof(struct rp_batch_datagram)] = 1;
    world_reseal(answer);
    CHECK(world_wait(world, ticket) == -RP_SHORT_BATCH);
    CHECK(rp_client_counters(world->client)[RP_COUNT_samples_blocked] > 0, "it never waited");
    world_run(world, 10 * WORLD_MS);
    CHECK(withdrawn(world) == 1, "%" PRIu64, withdrawn(world));
    write_rows(world, 1, 6);
    CHECK(rp_server_counters(world->server)[RP_COUNT_items_sampled] == 5);
    world_close(world);
    check_group("8 a redraw that is given up is withdrawn");
}

/* 9. Given more to withdraw and to ask than one burst holds. Expect no turn to send more than a
 *    burst, the client to be due at once while some is left, and all of it to be sent. */
static void situation_burst(void) {
    enum { WAITING = 60, PINGS = 20 };
    struct rp_client_options options = world_options();
    int waiting[WAITING], pings[PINGS];
    options.requests_max = 128;
    struct world *world = five_items(5);
    world_client(world, &options);
    world->ports[1].received = 0;
    world_connect(world);
    for (uint32_t i = 0; i < WAITING; i++) {
        waiting[i] = post(world, 6, world_later(world, 60000));
        CHECK(waiting[i] > 0, "sample %u", i);
    }
    world_run(world, 200 * WORLD_MS);
    CHECK(world_wait(world, rp_client_ping(world->client, world_later(world, 5000))) == 0);
    for (uint32_t i = 0; i < WAITING; i++) {
        CHECK(rp_client_poll(world->client, waiting[i]) == RP_PENDING);
        rp_client_take(world->client, waiting[i]);
    }
    for (uint32_t i = 0; i < PINGS; i++) {
        pings[i] = rp_client_ping(world->client, world_later(world, 5000));
    }
    uint32_t turns = 0;
    for (uint32_t left = PINGS; left > 0; turns++) {
        uint64_t sent = world->ports[1].sent;
        world_turn(world);
        CHECK(world->ports[1].sent - sent <= RP_BURST, "%" PRIu64 " in a turn",
              world->ports[1].sent - sent);
        CHECK(turns > 0 || rp_client_deadline(world->client) <= world->now_ns, "it rests");
        CHECK(turns < 1000, "some ping is never sent");
        world_advance(world, WORLD_MS);
        left = 0;
        for (uint32_t i = 0; i < PINGS; i++) {
            left += rp_client_poll(world->client, pings[i]) == RP_PENDING;
        }
    }
    CHECK(withdrawn(world) == 1, "%" PRIu64, withdrawn(world));
    world_close(world);
    check_group("9 no more than a burst in a turn");
}

/* 10. Given more samples at once than the server keeps batches of. Expect no more asked for than
 *    have a place there. */
static void situation_records(void) {
    enum { SAMPLES = 12, ROUNDS = 20 };
    struct world *world = five_items(NO_LIMITER);
    int tickets[SAMPLES];
    uint64_t ended = 0, most = 0;
    world->delay_ns = 5 * WORLD_MS;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < SAMPLES; i++) {
            CHECK((tickets[i] = post(world, 1, world_later(world, 5000))) > 0);
        }
        for (uint32_t i = 0; i < SAMPLES;) {
            world_turn(world);
            for (uint32_t k = 0; k < world->ports[0].count; k++) {
                const struct rp_message *asked = world_message(&world->ports[0].queue[k]);
                uint64_t ahead = asked->op == RP_OP_SAMPLE && asked->id > ended
                    ? asked->id - ended : 0;
                most = ahead > most ? ahead : most;
            }
            for (; i < SAMPLES && rp_client_poll(world->client, tickets[i]) != RP_PENDING; i++) {
                rp_client_take(world->client, tickets[i]);
                ended++;
            }
            world_advance(world, WORLD_MS);
        }
    }
    CHECK(most == config.records, "%" PRIu64 " at once", most);
    world_close(world);
    check_group("10 no more samples under way than the server keeps");
}

/* 11. Given three messages of six items, the second of them lost, and a limiter that counts items
 *    as they are stored. Expect the third to be held back, and to be stored as soon as the lost one
 *    is: it does not wait for the time of asking again. */
static void situation_behind_a_loss(void) {
    struct world *world = five_items(WIDE);
    uint8_t rows[ITEM * 18] = {0};
    struct rp_push_state state;
    CHECK(rp_client_push(world->client, 1, 0, rows, 18, RP_RUN_ITEM, NULL) == 18);
    rp_client_flush(world->client, 1);
    uint64_t end = world_later(world, 5000);
    while (world_client_turn(world), world_asked(world, RP_OP_PUSH) < 2) {
        CHECK(world->now_ns < end, "the second and the third are never under way at once");
        world_turn(world);
        world_advance(world, WORLD_MS / 10);
    }
    uint64_t begin = world->now_ns;
    world_lose(world, RP_OP_PUSH);
    do {
        world_step(world, WORLD_MS);
        rp_client_push_state(world->client, 1, &state);
    } while (state.steps_stored < 23 && world->now_ns < end);
    CHECK(state.steps_stored == 23 && state.steps_resent == 0);
    CHECK(rp_server_counters(world->server)[RP_COUNT_pushes_early] > 0);
    CHECK(rp_client_counters(world->client)[RP_COUNT_pushes_early] > 0);
    CHECK(world->now_ns - begin < 400 * WORLD_MS, "after %" PRIu64 " ns", world->now_ns - begin);
    world_close(world);
    check_group("11 a message behind a lost one");
}

/* 12. Given messages that are under way together, of which the limiter holds the first back. Expect
 *    what it waits for to be known, though the others wait for it alone. */
static void situation_both(void) {
    struct world *world = five_items(WIDE);
    uint8_t rows[3 * ITEM * 18] = {0};
    struct rp_push_state state;
    CHECK(rp_client_push(world->client, 1, 0, rows, 54, RP_RUN_ITEM, NULL) > 0);
    rp_client_flush(world->client, 1);
    world_run(world, 400 * WORLD_MS);
    rp_client_push_state(world->client, 1, &state);
    const uint64_t *counters = rp_client_counters(world->client);
    CHECK(counters[RP_COUNT_pushes_blocked] > 0 && counters[RP_COUNT_pushes_early] > 0,
          "%" PRIu64 ", %" PRIu64, counters[RP_COUNT_pushes_blocked],
          counters[RP_COUNT_pushes_early]);
    CHECK(state.need > 0);
    world_close(world);
    check_group("12 what the limiter asks for is told, whatever else waits");
}

int main(void) {
    situation_records();
    situation_given_up();
    situation_refused();
    situation_other_session();
    situation_overtaken();
    situation_redraw();
    situation_lost();
    situation_in_a_row();
    situation_next();
    situation_burst();
    situation_behind_a_loss();
    situation_both();
    return check_done("test_client_wait");
}
