/* What a learner asks for: batches larger than one train, keys, updates that nobody waits for
 * any more. Situations read "Given ... Expect ...". */
#include <stddef.h>

#include "client_world.h"

enum { ROWS = 1, ITEM = 16, BATCH = 256, STORED = 40 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct rp_table_info info;
static uint64_t values[2 * BATCH], keys[2 * BATCH], masses[BATCH];
static const struct rp_landing_column column = {(uint8_t *)values, ITEM, 0, ITEM};
static uint64_t ages[BATCH];
static uint16_t behind[BATCH], ahead[BATCH];
static uint8_t whole[BATCH];
static struct rp_landing landing = {.columns = &column,
                                          .column_count = 1,
                                          .item_bytes = ITEM,
                                          .keys = keys,
                                          .masses = masses,
                                          .ages = ages,
                                          .valid = whole,
                                          .behind = behind,
                                          .ahead = ahead};

/* A world with rows 1..STORED, their priorities their numbers. */
static struct world *fresh(uint64_t seed, const struct rp_client_options *options) {
    static struct rp_writer_granted granted;
    struct rp_push_state state = {0};
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    config = script_config(tables);
    config.batch_max = BATCH;
    struct world *world = world_open(&config, seed);
    world_client(world, options);
    world_connect(world);
    int ticket = rp_client_table(world->client, "rows", &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &info, 1, &granted, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    while (state.steps_stored < STORED) {
        uint64_t row[2] = {state.steps_posted + 1, 7 * (state.steps_posted + 1)};
        double priority = (double)row[0];
        if (row[0] <= STORED) {
            (void)rp_client_push(world->client, ROWS, 0, (const uint8_t *)row, 1,
                                 RP_RUN_ITEM | RP_RUN_PRIORITY, &priority);
        }
        rp_client_flush(world->client, ROWS);
        world_step(world, WORLD_MS);
        rp_client_push_state(world->client, ROWS, &state);
    }
    return world;
}

static int sample(struct world *world, uint32_t count, uint8_t mode) {
    struct rp_sample request = {.count = count, .mode = mode};
    memset(behind, 0xEE, sizeof behind);
    memset(ahead, 0xEE, sizeof ahead);
    memset(whole, 0xEE, sizeof whole);
    return rp_client_sample(world->client, ROWS, &request, keys, &landing,
                            world_later(world, 5000));
}

static void batch_check(uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        CHECK(values[2 * i] >= 1 && values[2 * i] <= STORED, "item %u", i);
        CHECK(values[2 * i + 1] == 7 * values[2 * i], "item %u", i);
        CHECK((masses[i] + (1 << 25)) >> 26 == values[2 * i], "item %u", i);
        CHECK(behind[i] == 0 && ahead[i] == 0, "a row is a window of its own");
        CHECK(ages[i] == STORED - values[2 * i] && whole[i] == 1, "item %u", i);
    }
}

/* 1. Given a client that can receive few datagrams at once, and batches of many. Expect never more
 *    of them on their way than that, and the whole batch in so many round trips, none lost. */
static void situation_pulled(uint32_t budget) {
    struct rp_client_options options = world_options();
    options.receive_budget = budget;
    options.retry_us_min = 50000;
    struct world *world = fresh(1, &options);
    for (uint32_t round = 0; round < 3; round++) {
        uint64_t begin = world->now_ns;
        uint32_t most = 0, now;
        int ticket = sample(world, BATCH, RP_SAMPLE_INDEPENDENT);
        while (world_turn(world), rp_client_poll(world->client, ticket) == RP_PENDING) {
            now = 0;
            for (uint32_t i = 0; i < world->ports[1].count; i++) {
                now += world_message(&world->ports[1].queue[i])->op == (RP_OP_SAMPLE | RP_ANSWER);
            }
            most = now > most ? now : most;
            CHECK(world->now_ns < begin + 1000 * WORLD_MS, "the rest is never asked for");
            world_advance(world, WORLD_MS);
        }
        CHECK(rp_client_poll(world->client, ticket) == 0);
        rp_client_take(world->client, ticket);
        batch_check(BATCH);
        CHECK(most == budget, "%u of %u at once", most, budget);
        CHECK(world->now_ns - begin < 2 * WORLD_MS, "%" PRIu64, world->now_ns - begin);
    }
    CHECK(rp_client_counters(world->client)[RP_COUNT_retransmissions] == 0);
    CHECK(rp_client_counters(world->client)[RP_COUNT_losses_seen] == 0);
    world_close(world);
}

/* 2. Given a batch of more datagrams than 32 bits can number. Expect it refused before
 *    anything is asked for, and the next one to land. */
static void situation_too_large(void) {
    struct rp_client_options options = world_options();
    options.batch_max = 4096;
    struct world *world = fresh(2, &options);
    struct rp_landing huge = {.item_bytes = UINT32_MAX - 7};
    struct rp_sample request = {.count = 4096};
    int ticket = rp_client_sample(world->client, ROWS, &request, NULL, &huge,
                                  world_later(world, 5000));
    uint64_t sent = world->ports[1].sent;
    CHECK(world_wait(world, ticket) == -RP_BATCH_TOO_LARGE && world->ports[1].sent == sent);
    CHECK(world_wait(world, sample(world, BATCH, RP_SAMPLE_INDEPENDENT)) == 0);
    batch_check(BATCH);
    world_close(world);
    check_group("2 a batch that is too large");
}

/* 3. Given as many keys as fit one datagram, one more, and twice as many and one. Expect one, two
 *    and three requests, and each key's item at its place. */
static void situation_keys(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(3, &options);
    uint32_t most = (WORLD_MTU - RP_HEADER_BYTES - sizeof(struct rp_sample)) / 8;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t count = i == 0 ? most : i == 1 ? most + 1 : BATCH;
        uint64_t sent = world->ports[1].sent;
        for (uint32_t k = 0; k < count; k++) {
            keys[k] = info.capacity + k % STORED;
        }
        CHECK(world_wait(world, sample(world, count, RP_SAMPLE_KEYS)) == 0);
        CHECK(world->ports[1].sent == sent + (i == 0 ? 1 : 2), "%u keys: %" PRIu64 " requests",
              count, world->ports[1].sent - sent);
        batch_check(count);
        for (uint32_t k = 0; k < count; k++) {
            CHECK(values[2 * k] == 1 + k % STORED, "key %u", k);
        }
    }
    world_close(world);
    check_group("3 as many keys as a datagram holds");
}

/* 4. Given a datagram that holds heads of items only, whose last byte is that of the heads, and
 *    that tells of a hole. Expect it dropped and counted, and the batch to land. */
static void situation_hole_before(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(4, &options);
    uint32_t payload = rp_batch_payload(WORLD_MTU, ITEM), index = 3, changed = 0;
    uint32_t count =
        (index * payload - (uint32_t)sizeof(struct rp_batch)) / sizeof(struct rp_batch_item);
    CHECK(sizeof(struct rp_batch) + count * sizeof(struct rp_batch_item) == index * payload);
    int ticket = sample(world, count, RP_SAMPLE_INDEPENDENT);
    while (world_turn(world), rp_client_poll(world->client, ticket) == RP_PENDING) {
        struct world_port *port = &world->ports[1];
        for (uint32_t i = 0; i < port->count && !changed; i++) {
            struct rp_batch_datagram *head = (void *)(port->queue[i].data + RP_ANSWER_BYTES);
            if (world_message(&port->queue[i])->op == (RP_OP_SAMPLE | RP_ANSWER)
                && head->datagram == index - 1) {
                ((uint8_t *)(head + 1))[0] = 1;
                world_reseal(&port->queue[i]);
                changed = 1;
            }
        }
        world_advance(world, WORLD_MS);
    }
    CHECK(changed && rp_client_poll(world->client, ticket) == 0);
    CHECK(rp_client_counters(world->client)[RP_COUNT_drop_reserved] == 1);
    batch_check(count);
    world_close(world);
    check_group("4 a hole where no item is");
}

/* 5. Given an update that its caller drops while it is under way, and another one in its place.
 *    Expect the first to be applied, and to touch neither its caller's memory nor the second. */
static void situation_dropped(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(5, &options);
    struct rp_updated first = {99, 99, 99, 99}, second = {99, 99, 99, 99};
    double priorities[3] = {5, 5, 5};
    uint64_t some[3] = {info.capacity, info.capacity + 1, info.capacity + 2};
    int ticket = rp_client_update(world->client, ROWS, info.epoch, some, priorities, 3, &first,
                                  world_later(world, 5000));
    world_client_turn(world);
    CHECK(world_asked(world, RP_OP_UPDATE) == 1);
    rp_client_take(world->client, ticket);
    ticket = rp_client_update(world->client, ROWS, info.epoch, some, priorities, 1, &second,
                              world_later(world, 5000));
    world_turn(world);
    world_advance(world, WORLD_MS);
    CHECK(world_wait(world, ticket) == 0);
    CHECK(second.applied == 1 && second.stale == 0 && second.unknown == 0 && second.reserved == 0,
          "%u applied", second.applied);
    CHECK(first.applied == 99 && first.stale == 99 && first.unknown == 99);
    CHECK(rp_server_counters(world->server)[RP_COUNT_priorities_applied] == 4);
    CHECK(rp_client_update_room(world->client) == 4 * options.batch_max);
    world_close(world);
    check_group("5 an update that its caller dropped");
}

/* 14. Given two updates, the first dropped by its caller before any of it was sent. Expect the
 *     second sent and applied, the first not, and the room of both free again. */
static void situation_dropped_unsent(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(5, &options);
    struct rp_updated result = {99, 99, 99, 99};
    double priorities[3] = {5, 5, 5};
    uint64_t some[3] = {info.capacity, info.capacity + 1, info.capacity + 2};
    int first = rp_client_update(world->client, ROWS, info.epoch, some, priorities, 3, NULL,
                                 world_later(world, 5000));
    int second = rp_client_update(world->client, ROWS, info.epoch, some, priorities, 1, &result,
                                  world_later(world, 5000));
    rp_client_take(world->client, first);
    CHECK(world_wait(world, second) == 0 && result.applied == 1, "%u applied", result.applied);
    CHECK(rp_server_counters(world->server)[RP_COUNT_priorities_applied] == 1);
    CHECK(rp_client_update_room(world->client) == 4 * options.batch_max);
    world_close(world);
    check_group("14 an update that its caller dropped before it was sent");
}

/* Runs until answers to all these updates are on their way; the first one. */
static struct world_datagram *updates_answered(struct world *world, uint32_t count) {
    for (uint32_t i = 0; i < 1000; i++) {
        struct world_port *port = &world->ports[1];
        uint32_t seen = 0;
        rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
        for (uint32_t k = 0; k < port->count; k++) {
            seen += world_message(&port->queue[k])->op == (RP_OP_UPDATE | RP_ANSWER);
        }
        if (seen == count) {
            return world_find(port, RP_OP_UPDATE | RP_ANSWER, 0);
        }
        world->now_ns += 1000;
    }
    CHECK(0, "they are not answered");
    return NULL;
}

/* 6. Given two updates under way, the first one's answer late, the second one's twice. Expect the
 *    copy dropped and counted, and each update to end with its own answer. */
static void situation_reordered(void) {
    struct rp_client_options options = world_options();
    options.retry_us_min = 50000;
    struct world *world = fresh(7, &options);
    struct rp_updated results[2];
    double priority = 3;
    int tickets[2];
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t key = info.capacity + i;
        tickets[i] = rp_client_update(world->client, ROWS, info.epoch, &key, &priority, 1,
                                      &results[i], world_later(world, 5000));
    }
    world_client_turn(world);
    struct world_datagram *first = updates_answered(world, 2);
    struct world_port *port = &world->ports[1];
    struct world_datagram *copy = &port->queue[port->count++];
    *copy = *world_find(port, RP_OP_UPDATE | RP_ANSWER, (uint32_t)(first - port->queue) + 1);
    uint8_t *bytes = malloc(copy->size);
    memcpy(bytes, copy->data, copy->size);
    copy->data = bytes;
    ((struct rp_outer *)(void *)copy->data)->packet += 32;
    world_reseal(copy);
    first->due_ns += 10 * WORLD_MS;
    world_run(world, 5 * WORLD_MS);
    CHECK(rp_client_counters(world->client)[RP_COUNT_drop_unsolicited] == 1);
    CHECK(rp_client_poll(world->client, tickets[0]) == RP_PENDING);
    CHECK(rp_client_poll(world->client, tickets[1]) == 0 && results[1].applied == 1);
    CHECK(world_wait(world, tickets[0]) == 0 && results[0].applied == 1);
    CHECK(rp_client_counters(world->client)[RP_COUNT_retransmissions] == 0);
    world_close(world);
    check_group("6 updates answered out of order, and twice");
}

/* 7. Given weights of many datagrams, and a client that can receive few at once. Expect them
 *    whole, and no datagram asked for twice. */
static void situation_weights(void) {
    static uint8_t weights[19999], back[19999];
    struct rp_client_options options = world_options();
    uint64_t version = 0, size = 0;
    options.receive_budget = 4;
    options.retry_us_min = 50000;
    struct world *world = fresh(6, &options);
    for (uint32_t i = 0; i < sizeof weights; i++) {
        weights[i] = (uint8_t)(i * i / 5);
    }
    int ticket = rp_client_publish(world->client, weights, sizeof weights, &version,
                                   world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0 && version == 1);
    uint64_t begin = world->now_ns, received = world->ports[1].received;
    ticket = rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 0, back, sizeof back, &size,
                            &version, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0 && size == sizeof back && version == 1);
    CHECK(memcmp(weights, back, sizeof back) == 0 && world->now_ns - begin < 2 * WORLD_MS);
    uint32_t payload = rp_blob_payload(WORLD_MTU);
    CHECK(world->ports[1].received - received == (sizeof back + payload - 1) / payload);
    CHECK(rp_client_counters(world->client)[RP_COUNT_retransmissions] == 0);
    CHECK(rp_client_counters(world->client)[RP_COUNT_drop_unsolicited] == 0);
    world_close(world);
    check_group("7 weights of many datagrams");
}

/* 8. Given keys of which every third names nothing, or is none: it has more than 52 bits. Expect
 *    those to be told, each at its place, and the others to have landed. */
static void situation_holes(void) {
    static uint8_t valid[BATCH];
    struct rp_client_options options = world_options();
    struct world *world = fresh(9, &options);
    struct rp_landing told = landing;
    struct rp_sample request = {.count = BATCH, .mode = RP_SAMPLE_KEYS};
    uint64_t asked[BATCH];
    told.valid = valid;
    told.keys = NULL;
    memset(valid, 0xEE, sizeof valid);
    for (uint32_t i = 0; i < BATCH; i++) {
        uint64_t nobodys = i % 2 ? 1000 * info.capacity + i : i % 4 ? 1ull << 52 : UINT64_MAX - i;
        asked[i] = i % 3 ? info.capacity + i % STORED : nobodys;
    }
    int ticket = rp_client_sample(world->client, ROWS, &request, asked, &told,
                                  world_later(world, 5000));
    CHECK(world_wait(world, ticket) == -RP_SHORT_BATCH);
    for (uint32_t i = 0; i < BATCH; i++) {
        CHECK(valid[i] == (i % 3 != 0), "key %u: %u", i, valid[i]);
        CHECK(i % 3 == 0 || values[2 * i] == 1 + i % STORED, "key %u", i);
    }
    CHECK(rp_client_counters(world->client)[RP_COUNT_drop_reserved] == 0);
    CHECK(rp_client_counters(world->client)[RP_COUNT_retransmissions] == 0);
    world_close(world);
    check_group("8 keys that name nothing");
}

/* Answers the last PULL on its way to the server in its place, with a status. */
static void refuse_pull(struct world *world, uint16_t status) {
    struct world_datagram *pull = NULL, *answer;
    for (uint32_t i = 0; i < world->ports[0].count; i++) {
        struct world_datagram *datagram = &world->ports[0].queue[i];
        pull = world_message(datagram)->op == RP_OP_PULL ? datagram : pull;
    }
    uint64_t id = world_message(pull)->id;
    while (world_asked(world, RP_OP_PULL) > 0) {
        world_lose(world, RP_OP_PULL);
    }
    int ticket = rp_client_ping(world->client, world_later(world, 5000));
    while (world_turn(world),
           (answer = world_find(&world->ports[1], RP_OP_PING | RP_ANSWER, 0)) == NULL) {
        world->now_ns += 1000;
    }
    world_message(answer)->op = RP_OP_PULL | RP_ANSWER;
    world_message(answer)->id = id;
    ((struct rp_answer *)(void *)(answer->data + RP_HEADER_BYTES))->status = status;
    world_reseal(answer);
    rp_client_take(world->client, ticket);
}

/* 9. Given a server that refuses a pull: it forgot the batch, or another way. Expect the batch
 *    to be drawn anew, once; the request to end with that status. */
static void situation_pull_refused(uint16_t status, int expected) {
    struct rp_client_options options = world_options();
    options.receive_budget = 4;
    options.retry_us_min = 50000;
    struct world *world = fresh(10, &options);
    uint64_t drawn = rp_server_counters(world->server)[RP_COUNT_samples];
    int ticket = sample(world, BATCH, RP_SAMPLE_INDEPENDENT), refused = 0;
    while (world_client_turn(world), rp_client_poll(world->client, ticket) == RP_PENDING) {
        if (!refused && world_asked(world, RP_OP_PULL) > 1) {
            refuse_pull(world, status);
            refused = 1;
        }
        rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
        world_advance(world, WORLD_MS);
    }
    CHECK(refused && rp_client_poll(world->client, ticket) == expected, "%d",
          rp_client_poll(world->client, ticket));
    CHECK(rp_client_counters(world->client)[RP_COUNT_losses_seen] == 0);
    drawn = rp_server_counters(world->server)[RP_COUNT_samples] - drawn;
    CHECK(drawn == (expected == 0 ? 2 : 1), "%" PRIu64 " draws", drawn);
    if (expected == 0) {
        batch_check(BATCH);
    }
    world_close(world);
}

/* 10. Given an answer to RESET that names no epoch. Expect it dropped and counted, and the
 *    caller to have the new one by the next. */
static void situation_reset(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(11, &options);
    struct world_datagram *answer;
    uint64_t epoch = 0;
    int ticket = rp_client_reset(world->client, ROWS, info.epoch, &epoch,
                                 world_later(world, 5000));
    while (world_turn(world),
           (answer = world_find(&world->ports[1], RP_OP_RESET | RP_ANSWER, 0)) == NULL) {
        world_advance(world, WORLD_MS / 100);
    }
    memset(answer->data + RP_ANSWER_BYTES, 0, 8);
    world_reseal(answer);
    CHECK(world_wait(world, ticket) == 0 && epoch != 0 && epoch != info.epoch);
    CHECK(rp_client_counters(world->client)[RP_COUNT_drop_reserved] == 1);
    world_close(world);
    check_group("10 an answer without an epoch");
}

/* Runs the ticket to its end, every answer to `op` changed to this status; its status. *asked: how
 * often the first datagram was sent. */
static int always(struct world *world, int ticket, uint8_t op, uint16_t status, uint32_t *asked) {
    struct world_datagram *datagram;
    *asked = 0;
    while (rp_client_poll(world->client, ticket) == RP_PENDING) {
        world_client_turn(world);
        *asked += world_asked(world, op);
        while (world_asked(world, op) > 0) {
            world->now_ns += 20000;
            rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
        }
        for (uint32_t from = 0;
             (datagram = world_find(&world->ports[1], op | RP_ANSWER, from)) != NULL;
             from = (uint32_t)(datagram - world->ports[1].queue) + 1) {
            ((struct rp_answer *)(void *)(datagram->data + RP_HEADER_BYTES))->status = status;
            world_reseal(datagram);
        }
        world_advance(world, WORLD_MS);
    }
    int ended = rp_client_poll(world->client, ticket);
    rp_client_take(world->client, ticket);
    return ended;
}

/* 11. Given a server that forgets a batch, loses a blob, or finds a publication damaged, each time.
 *    Expect the request to be begun three times more, and then to end with that status. */
static void situation_given_up(void) {
    static uint8_t bytes[64], back[64];
    struct rp_client_options options = world_options();
    struct world *world = fresh(8, &options);
    uint64_t version, size;
    uint32_t asked;
    int ticket = sample(world, 4, RP_SAMPLE_INDEPENDENT);
    CHECK(always(world, ticket, RP_OP_SAMPLE, RP_FORGOTTEN, &asked) == -RP_FORGOTTEN);
    CHECK(asked == 4, "%u samples", asked);
    ticket = rp_client_publish(world->client, bytes, sizeof bytes, &version,
                               world_later(world, 5000));
    CHECK(always(world, ticket, RP_OP_PUBLISH, RP_BAD_HASH, &asked) == -RP_BAD_HASH);
    CHECK(asked == 4, "%u pieces", asked);
    ticket = rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 0, back, sizeof back, &size,
                            &version, world_later(world, 5000));
    CHECK(always(world, ticket, RP_OP_BLOB, RP_GONE, &asked) == -RP_GONE);
    CHECK(asked == 4, "%u blobs", asked);
    ticket = rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 1, back, sizeof back, &size,
                            &version, world_later(world, 5000));
    CHECK(always(world, ticket, RP_OP_BLOB, RP_GONE, &asked) == -RP_GONE);
    CHECK(asked == 1, "%u times for one version", asked);
    CHECK(world_wait(world, sample(world, 4, RP_SAMPLE_INDEPENDENT)) == 0);
    world_close(world);
    check_group("11 what is begun anew in vain is given up");
}

/* 12. Given a batch with an item that was overwritten, and a server that is gone when another is
 *     asked for in its place. Expect the batch, told short: not that nothing came. */
static void situation_short(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(12, &options);
    struct world_datagram *answer;
    int ticket = sample(world, 4, RP_SAMPLE_INDEPENDENT);
    while (world_turn(world),
           (answer = world_find(&world->ports[1], RP_OP_SAMPLE | RP_ANSWER, 0)) == NULL) {
        world_advance(world, WORLD_MS / 100);
    }
    answer->data[RP_ANSWER_BYTES + sizeof(struct rp_batch_datagram)] = 1;
    world_reseal(answer);
    world->deaf = 1;
    CHECK(world_wait(world, ticket) == -RP_SHORT_BATCH);
    CHECK(whole[0] == 0 && whole[1] == 1 && whole[2] == 1 && whole[3] == 1);
    CHECK(rp_client_counters(world->client)[RP_COUNT_redraws] == 1);
    world_close(world);
    check_group("12 a batch with a hole that nobody fills");
}

/* A draw whose answer is lost, and its session too: others would be drawn in the next one. */
static void check_expired_once(struct world *world) {
    const uint64_t *counters = rp_server_counters(world->server);
    uint64_t drawn = counters[RP_COUNT_items_sampled], idle_ns = 1000000ull * config.idle_ms;
    uint64_t end = world->now_ns + 2 * idle_ns;
    struct rp_sample request = {.count = 4};
    int ticket = rp_client_sample(world->client, ROWS, &request, keys, &landing, 2 * end);
    while (counters[RP_COUNT_items_sampled] == drawn && world->now_ns < end) {
        world_client_turn(world);
        world->now_ns += 20000;
        rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
    }
    world_expire(world, idle_ns);
    CHECK(counters[RP_COUNT_items_sampled] == drawn + 4);
    CHECK(world_wait(world, ticket) == -RP_SESSION_EXPIRED);
    CHECK(counters[RP_COUNT_items_sampled] == drawn + 4, "drawn again");
}

/* 14. Given the same of a queue, whose items are drawn once, and a server that answers. Expect the
 *     batch, told short, and nothing drawn in the place of what is gone; nor where its session
 *     expired: who asked is told that. */
static void situation_once(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(14, &options);
    struct world_datagram *answer;
    landing.consumes = 1;
    int ticket = sample(world, 4, RP_SAMPLE_INDEPENDENT);
    while (world_turn(world),
           (answer = world_find(&world->ports[1], RP_OP_SAMPLE | RP_ANSWER, 0)) == NULL) {
        world_advance(world, WORLD_MS / 100);
    }
    answer->data[RP_ANSWER_BYTES + sizeof(struct rp_batch_datagram)] = 2;
    world_reseal(answer);
    CHECK(world_wait(world, ticket) == -RP_SHORT_BATCH);
    CHECK(whole[0] == 1 && whole[1] == 0 && whole[2] == 1 && whole[3] == 1);
    CHECK(rp_client_counters(world->client)[RP_COUNT_redraws] == 0);
    world_run(world, 10 * WORLD_MS);
    CHECK(rp_server_counters(world->server)[RP_COUNT_items_sampled] == 4);
    check_expired_once(world);
    landing.consumes = 0;
    world_close(world);
    check_group("14 nothing is drawn in the place of what is drawn once");
}

/* 13. Given a publication that the server finds damaged. Expect it to be begun anew at once. */
static void situation_damaged(void) {
    static uint8_t bytes[64];
    struct rp_client_options options = world_options();
    struct world *world = fresh(13, &options);
    struct world_datagram *answer;
    uint64_t version = 0;
    int ticket = rp_client_publish(world->client, bytes, sizeof bytes, &version,
                                   world_later(world, 5000));
    while (world_turn(world),
           (answer = world_find(&world->ports[1], RP_OP_PUBLISH | RP_ANSWER, 0)) == NULL) {
        world_advance(world, WORLD_MS / 100);
    }
    ((struct rp_answer *)(void *)(answer->data + RP_HEADER_BYTES))->status = RP_BAD_HASH;
    world_reseal(answer);
    world->now_ns = answer->due_ns;
    world_client_turn(world);
    CHECK(world_asked(world, RP_OP_PUBLISH) == 1, "it waits");
    CHECK(world_wait(world, ticket) == 0 && version > 0);
    world_close(world);
    check_group("13 a damaged publication is begun anew at once");
}

int main(void) {
    situation_pulled(1);
    situation_pulled(2);
    situation_pulled(6);
    check_group("1 batches of many datagrams for a client that can take few");
    situation_too_large();
    situation_keys();
    situation_hole_before();
    situation_dropped();
    situation_dropped_unsent();
    situation_weights();
    situation_reordered();
    situation_given_up();
    situation_holes();
    situation_reset();
    situation_short();
    situation_once();
    situation_damaged();
    situation_pull_refused(RP_FORGOTTEN, 0);
    situation_pull_refused(RP_STALE_EPOCH, -RP_STALE_EPOCH);
    check_group("9 a pull that is refused");
    return check_done("test_client_learner");
}
