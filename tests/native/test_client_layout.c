/* A client's memory has room for all that its options allow, each part by itself; requests
 * and answers that say what cannot be are refused where they are first seen. */
#include "client/client_parts.h"
#include "client_world.h"

enum { ROWS = 1 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct rp_table_info info;

static struct world *fresh(uint64_t seed, const struct rp_client_options *options) {
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    tables[1].window = 128;
    tables[1].capacity = 32 * tables[1].window;
    config = script_config(tables);
    struct world *world = world_open(&config, seed);
    world_client(world, options);
    world_connect(world);
    int ticket = rp_client_table(world->client, "rows", &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    return world;
}

struct part {
    const void *at;
    size_t bytes;
};

/* With those for the writers' shares. */
static uint32_t places_of(uint32_t messages) {
    return 2 * messages + 1;
}

/* 1. Given options small, odd and large. Expect parts that lie one behind the other, each with room
 *    for as many as its own limit says, and all of them in the block. */
static void situation_parts(void) {
    struct rp_client_options all[] = {world_options(), world_options(), world_options()};
    all[1].batch_max = 257;
    all[1].requests_max = 5;
    all[1].messages_max = 1;
    all[2].messages_max = 0;
    all[2].requests_max = 1024;
    all[2].batch_max = 4096;
    for (uint32_t i = 0; i < 3; i++) {
        char error[256];
        struct world *world = fresh(1, &all[i]);
        const struct rp_client *c = world->client;
        uint32_t messages = i < 2 ? all[i].messages_max : rp_client_messages_default(RP_MTU_MIN);
        uint32_t requests = all[i].requests_max, entries = 4 * all[i].batch_max;
        uint32_t mtu = i < 2 ? all[i].mtu : RP_MTU_MIN;
        CHECK(c->flights_max == messages + 4 * requests + 16 + 4 * 32, "%u", c->flights_max);
        CHECK(c->heap_max == c->flights_max + 2 * requests + places_of(messages)
                               + all[i].tables_max + 3);
        CHECK(c->tickets_max == requests + 1, "and one to close by");
        CHECK(i == 2 || c->messages_max == messages);
        uint32_t places = c->credit.sent_mask + 1;
        CHECK((places & (places - 1)) == 0 && places <= 4096);
        CHECK((const void *)(c->credit.sent_ns + places) == c->writers, "no room for one more");
        CHECK(places == 4096 || (places >= 2 * c->flights_max && places < 4 * c->flights_max));
        const struct part parts[] = {
            {c, sizeof *c},
            {c->heap, (c->heap_max + 1) * sizeof *c->heap},
            {c->flights, c->flights_max * sizeof *c->flights},
            {c->credit.sent_ns, places * sizeof *c->credit.sent_ns},
            {c->writers, all[i].tables_max * sizeof *c->writers},
            {c->streams, RP_STREAMS_MAX * sizeof *c->streams},
            {c->ledger, c->ledger_max * sizeof *c->ledger},
            {c->tickets, c->tickets_max * sizeof *c->tickets},
            {c->slots, c->slots_max * sizeof *c->slots},
            {c->slot_memory, c->slots_max * c->slot_bytes},
            {c->updates.entries, entries * sizeof *c->updates.entries},
            {c->updates.seen, 2 * entries * sizeof *c->updates.seen},
            {c->updates.segments, requests * sizeof *c->updates.segments},
            {c->messages, places_of(messages) * sizeof *c->messages},
            {c->message_memory, places_of(messages) * rp_client_message_bytes(mtu)},
            {c->scratch, all[i].mtu - RP_HEADER_BYTES},
            {(const uint8_t *)world->memory + rp_client_bytes(&all[i], error), 0},
        };
        for (size_t k = 0; k + 1 < sizeof parts / sizeof *parts; k++) {
            CHECK((uintptr_t)parts[k].at % 64 == 0, "part %zu", k);
            CHECK((uintptr_t)parts[k].at + parts[k].bytes <= (uintptr_t)parts[k + 1].at,
                  "part %zu reaches into the next", k);
        }
        world_close(world);
    }
    check_group("1 a client's memory, part by part");
}

/* 2. Given every mtu. Expect as many runs in a message as fit with a number each, no more, and
 *    little memory beside them. */
static void situation_messages(void) {
    for (uint32_t mtu = RP_MTU_MIN; mtu <= RP_MTU_MAX; mtu += 8) {
        uint32_t room = mtu - RP_HEADER_BYTES - (uint32_t)sizeof(struct rp_push);
        uint32_t each = (uint32_t)sizeof(struct rp_run) + 8, runs = rp_client_runs_max(mtu);
        CHECK(runs * each <= room && (runs + 1) * each > room, "mtu %u: %u runs", mtu, runs);
        size_t least = mtu - RP_HEADER_BYTES + runs * sizeof(struct client_run_state)
                       + (mtu - RP_HEADER_BYTES) / sizeof(struct rp_create);
        size_t bytes = rp_client_message_bytes(mtu);
        CHECK(bytes >= least && bytes < least + 64 + 8 && bytes % 64 == 0, "mtu %u", mtu);
    }
    check_group("2 a message's memory");
}

/* 3. Given places of a batch. Expect each part of each where its words may lie. */
static void situation_slots(void) {
    for (uint32_t batch = 1; batch < 300; batch++) {
        struct client_slot slot;
        static uint8_t memory[1 << 16] __attribute__((aligned(64)));
        size_t bytes = rp_client_slot_open(&slot, memory, batch);
        CHECK((uintptr_t)slot.sample.map % 8 == 0 && (uintptr_t)slot.sample.holes % 8 == 0);
        CHECK((uint8_t *)slot.sample.holes >= (uint8_t *)slot.sample.map + 4 * (size_t)batch);
        CHECK((uint8_t *)slot.sample.holes + (batch + 63) / 64 * 8 <= memory + bytes);
    }
    check_group("3 a batch's memory");
}

/* 4. Given a round trip, and how much it varies. Expect a time-out of both, and of half the least
 *    one where it hardly varies; an eighth more at most. */
static void situation_timeout(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(4, &options);
    static const uint64_t cases[][3] = { /* srtt, rttvar, time-out; us, of 2000 to 100000 */
        {0, 0, 2000}, {5000, 0, 6000}, {5000, 250, 6000}, {5000, 251, 6004}, {5000, 2000, 13000},
        {90000, 9000, 100000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t least = UINT64_MAX, most = 0, wanted = cases[i][2] * 1000;
        world->client->credit.srtt_ns = cases[i][0] * 1000;
        world->client->credit.rttvar_ns = cases[i][1] * 1000;
        for (uint32_t k = 0; k < 2000; k++) {
            uint64_t wait = rp_client_credit_timeout(world->client, 0);
            least = wait < least ? wait : least;
            most = wait > most ? wait : most;
        }
        CHECK(least >= wanted && least < wanted + wanted / 200, "case %zu: %" PRIu64, i, least);
        CHECK(most <= wanted + wanted / 8 && most > wanted + wanted / 9, "case %zu", i);
    }
    world_close(world);
    check_group("4 time-outs by the numbers they are made of");
}

/* Given several answers to one packet. Expect the first to be measured, and no other. */
static void situation_measured_once(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(4, &options);
    struct rp_client *client = world->client;
    uint64_t packet = client->session.packet - 1, sent = client->now_ns;
    rp_client_credit_sent(client, packet);
    client->now_ns += 3 * WORLD_MS;
    rp_client_credit_echoed(client, (uint16_t)packet);
    uint64_t srtt = client->credit.srtt_ns, spread = client->credit.rttvar_ns;
    CHECK(client->credit.asked_ns == sent);
    client->now_ns += 50 * WORLD_MS;
    rp_client_credit_echoed(client, (uint16_t)packet);
    CHECK(client->credit.srtt_ns == srtt && client->credit.rttvar_ns == spread);
    CHECK(client->credit.asked_ns == sent);
    world_close(world);
}

/* 5. Given draws that cannot be, one field wrong in each. Expect each refused when it is posted. */
static void situation_draws(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(5, &options);
    static uint8_t target[4 * SCRIPT_STEP];
    struct rp_landing_column column = {target, SCRIPT_STEP, 0, SCRIPT_STEP};
    struct rp_landing landing = {.columns = &column, .column_count = 1, .item_bytes = SCRIPT_STEP};
    const struct rp_sample good = {.count = 1, .mode = RP_SAMPLE_STRATIFIED};
    struct rp_sample wrong[] = {good, good, good, good, good, good, good};
    wrong[0].count = 0;
    wrong[1].mode = RP_SAMPLE_MODES;
    wrong[2].now = 1;
    wrong[3].fields = 1;
    wrong[4].plan = RP_PLANS_MAX;
    wrong[5].mode = RP_SAMPLE_KEYS;
    wrong[6].uniform = 1;
    struct rp_sample large = good;
    large.count = options.batch_max + 1;
    uint64_t later = world_later(world, 5000);
    CHECK(rp_client_sample(world->client, ROWS, &large, NULL, &landing, later)
          == -RP_BATCH_TOO_LARGE);
    for (uint32_t i = 0; i < 7; i++) {
        CHECK(rp_client_sample(world->client, ROWS, &wrong[i], NULL, &landing, later)
              == -RP_BAD_ARGUMENT, "case %u", i);
    }
    world_close(world);
    check_group("5 draws that cannot be");
}

/* ---- answers made up ---- */

/* An answer of the server's address, as if it had sent it. */
static void tell(struct world *world, uint8_t op, uint64_t id, uint16_t status, const void *body,
                 uint32_t size, uint64_t connection) {
    struct world_port *to = &world->ports[1];
    struct rp_answer answer = {.status = status, .credit = 1};
    struct rp_message message = {.op = op | RP_ANSWER, .id = id};
    uint8_t *data = malloc(RP_ANSWER_BYTES + size);
    memcpy(data + RP_HEADER_BYTES, &answer, sizeof answer);
    memcpy(data + RP_ANSWER_BYTES, body, size);
    uint32_t bytes = rp_packet_seal(data, &message, (uint32_t)sizeof answer + size, connection,
                                    UINT32_MAX);
    to->queue[to->count++] = (struct world_datagram){data, bytes, 0,
                                                     world->ports[0].base.address};
}

static uint64_t count(const struct world *world, enum rp_counter counter) {
    return rp_client_counters(world->client)[counter];
}

/* 6. Given ADDRESS_CHANGED with something reserved, of no session, and of a datagram that was not
 *    sent. Expect each dropped and counted, and no echo. */
static void situation_moved(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(6, &options);
    uint64_t session = rp_client_session(world->client);
    uint32_t last = (uint32_t)world->client->session.packet - 1;
    static const struct {
        uint32_t ahead, reserved;
        int nobody;
        enum rp_counter counter;
    } cases[] = {{0, 1, 0, RP_COUNT_drop_reserved},
                 {1, 0, 0, RP_COUNT_drop_unsolicited},
                 {0, 0, 1, RP_COUNT_drop_unsolicited}};
    for (uint32_t i = 0; i < 3; i++) {
        struct rp_address_changed changed = {7, last + cases[i].ahead, cases[i].reserved};
        uint64_t before = count(world, cases[i].counter);
        tell(world, RP_OP_PING, 1, RP_ADDRESS_CHANGED, &changed, sizeof changed,
             cases[i].nobody ? 0 : session);
        world_client_turn(world);
        CHECK(count(world, cases[i].counter) == before + 1, "case %u", i);
        CHECK(!world->client->session.echoing, "case %u", i);
        world->client->session.replay = (struct rp_replay){0};
    }
    struct rp_address_changed changed = {7, last, 0};
    tell(world, RP_OP_PING, 1, RP_ADDRESS_CHANGED, &changed, sizeof changed, session);
    world_client_turn(world);
    CHECK(world->client->session.echoing, "a good one is echoed");
    world_close(world);
    check_group("6 nobody's word for a new address");
}

/* 7. Given a server that insists on what the client does not speak, or lacks what the client
 *    insists on. Expect the session to end with BAD_FEATURE. */
static void situation_features(void) {
    for (int lacks = 0; lacks < 2; lacks++) {
        struct rp_client_options options = world_options();
        struct world *world = fresh(7, &options);
        struct rp_cookie cookie = {.cookie = 1, .mtu = 512, .version = RP_VERSION_MAX,
                                   .version_min = RP_VERSION_MIN, .version_max = RP_VERSION_MAX,
                                   .features = lacks ? 0 : RP_FEATURES_SPOKEN,
                                   .required = lacks ? 0 : 1ull << 63};
        world_client(world, &options);
        world->ports[1].received = 0;
        world_client_turn(world); /* says HELLO */
        tell(world, RP_OP_HELLO, world->client->session.nonce, RP_OK, &cookie, sizeof cookie, 0);
        world_client_turn(world);
        int ends = !lacks || RP_FEATURES_REQUIRED;
        CHECK((rp_client_state(world->client) == -RP_BAD_FEATURE) == ends, "state %d",
              rp_client_state(world->client));
        CHECK(count(world, RP_COUNT_drop_unsolicited) == 0 && count(world, 0) == 1);
        world_close(world);
    }
    check_group("7 features that one side insists on");
}

/* ---- updates and pushes ---- */

/* 8. Given queued updates of a table that the server has not. Expect them counted as stale, and
 *    nothing else wrong. */
static void situation_unknown_table(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(8, &options);
    static const uint64_t keys[3] = {1, 2, 3};
    static const double priorities[3] = {1, 2, 3};
    struct rp_update_state state;
    CHECK(rp_client_update_queue(world->client, 9, 1, keys, priorities, 3,
                                 world_later(world, 5000)) == 3);
    while (rp_client_update_busy(world->client)) {
        world_step(world, WORLD_MS);
    }
    rp_client_update_state(world->client, &state);
    CHECK(state.posted == 3 && state.finished == 3 && state.stale == 3 && state.failed == 0);
    CHECK(state.applied == 0 && state.unknown == 0 && state.status == 0);
    world_close(world);
    check_group("8 queued updates of a table that is gone");
}

static void push_all(struct world *world, uint32_t steps, uint32_t flags) {
    static uint64_t rows[2 * 256];
    static double priorities[256];
    for (uint32_t done = 0; done < steps;) {
        int taken = rp_client_push(world->client, ROWS, 0, (const uint8_t *)rows, steps - done,
                                   flags, flags & RP_RUN_PRIORITY ? priorities : NULL);
        CHECK(taken > 0, "%d", taken);
        done += (uint32_t)taken;
    }
    rp_client_flush(world->client, ROWS);
}

/* 9. Given more rows at once than a datagram holds, with priorities and without, for every length
 *    of datagram. Expect each message no longer than agreed, and full but the last. */
static void situation_full(void) {
    for (uint32_t mtu = 512; mtu < 640; mtu += 8) {
        for (uint32_t with = 0; with < 2; with++) {
            struct rp_client_options options = world_options();
            struct rp_writer_granted granted;
            options.mtu = mtu;
            struct world *world = fresh(9, &options);
            int ticket = rp_client_writer(world->client, &info, 1, &granted,
                                          world_later(world, 5000));
            CHECK(world_wait(world, ticket) == 0);
            uint32_t each = SCRIPT_STEP + 8 * with;
            uint32_t room = mtu - RP_HEADER_BYTES - (uint32_t)sizeof(struct rp_push)
                            - (uint32_t)sizeof(struct rp_run);
            uint32_t fits = room / each;
            push_all(world, fits + 5, with ? RP_RUN_ITEM | RP_RUN_PRIORITY : 0);
            const struct client_message *first = &world->client->messages[0];
            CHECK(first->steps == fits && first->body_size <= mtu - RP_HEADER_BYTES,
                  "mtu %u: %u of %u steps", mtu, first->steps, fits);
            world_close(world);
        }
    }
    check_group("9 messages that are full");
}

/* 10. Given a limiter that admits five items at once. Expect five in a message, and rows that are
 *     none behind them in the same one. */
static void situation_items(void) {
    struct rp_client_options options = world_options();
    struct rp_writer_granted granted;
    struct world *world = fresh(10, &options);
    int ticket = rp_client_writer(world->client, &info, 2, &granted, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    rp_client_writer_of(world->client, ROWS)->items_max = 5;
    static const uint64_t rows[2 * 8];
    const uint8_t *bytes = (const uint8_t *)rows;
    CHECK(rp_client_push(world->client, ROWS, 0, bytes, 5, RP_RUN_ITEM, NULL) == 5);
    CHECK(rp_client_push(world->client, ROWS, 1, bytes, 3, 0, NULL) == 3);
    CHECK(world->client->messages_used == 1 && world->client->messages[0].steps == 8);
    world_close(world);
    check_group("10 rows that are no items go with those that are");
}

/* 11. Given a draw that waits, is given up while the port is full, and a client that closes. Expect
 *     one datagram more: its close takes the place with it. */
static void situation_close(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(11, &options);
    static uint8_t target[4 * SCRIPT_STEP];
    struct rp_landing_column column = {target, SCRIPT_STEP, 0, SCRIPT_STEP};
    struct rp_landing landing = {.columns = &column, .column_count = 1, .item_bytes = SCRIPT_STEP};
    struct rp_sample draw = {.count = 4, .mode = RP_SAMPLE_STRATIFIED};
    int ticket = rp_client_sample(world->client, ROWS, &draw, NULL, &landing,
                                  world_later(world, 20));
    while (count(world, RP_COUNT_samples_blocked) == 0) {
        world_step(world, WORLD_MS);
    }
    world->full = 1;
    while (rp_client_poll(world->client, ticket) == RP_PENDING) {
        world_step(world, WORLD_MS);
    }
    CHECK(world->client->cancel_count == 1);
    uint64_t sent = world->ports[1].sent;
    ticket = rp_client_close(world->client, world_later(world, 5000));
    world->full = 0;
    CHECK(world_wait(world, ticket) == 0);
    CHECK(world->ports[1].sent == sent + 1, "%" PRIu64, world->ports[1].sent - sent);
    world_close(world);
    check_group("11 a close withdraws all that waits");
}

int main(void) {
    situation_parts();
    situation_messages();
    situation_slots();
    situation_timeout();
    situation_measured_once();
    situation_draws();
    situation_moved();
    situation_features();
    situation_unknown_table();
    situation_full();
    situation_items();
    situation_close();
    return check_done("test_client_layout");
}
