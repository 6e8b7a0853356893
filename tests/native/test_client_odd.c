/* The seldom paths of the client, each with what a caller sees of it: answers cut short, a
 * publication that is told to wait or is too large, updates as many as there is room for, columns
 * of every size. Situations read "Given ... Expect ...". */
#include "client/client_state.h"
#include "client_world.h"
#include "table/intent.h"
#include "server/meter.h"

enum { ROWS = 1, ITEMS = 12, WIDE_COLUMNS = 9 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static struct rp_table_info info;

static struct world *fresh(uint64_t seed) {
    struct rp_writer_granted granted;
    struct world *world = world_open(&config, seed);
    world_connect(world);
    int ticket = rp_client_table(world->client, "rows", &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &info, 1, &granted, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    return world;
}

static void defaults(void) {
    config = world_config(tables);
}

static void push(struct world *world, const void *step) {
    struct rp_push_state state;
    CHECK(rp_client_push(world->client, ROWS, 0, step, 1, RP_RUN_ITEM, NULL) == 1);
    rp_client_flush(world->client, ROWS);
    do {
        world_step(world, WORLD_MS);
        rp_client_push_state(world->client, ROWS, &state);
    } while (state.messages_open > 0);
}

/* ---- answers changed on their way ---- */

struct change {
    uint8_t op;
    uint32_t cut;    /* bytes taken off the end, the header told so */
    uint16_t status; /* not 0: the answer says this */
    uint32_t offset; /* of a byte behind the answer's head that is flipped by `flip` */
    uint8_t flip;
};

static int change(struct world *world, const struct change *how) {
    struct world_datagram *datagram = world_find(&world->ports[1], how->op | RP_ANSWER, 0);
    if (datagram == NULL) {
        return 0;
    }
    struct rp_message *message = world_message(datagram);
    struct rp_answer *answer = (void *)(message + 1);
    datagram->size -= how->cut;
    message->size = (uint16_t)(message->size - how->cut);
    answer->status = how->status ? how->status : answer->status;
    if (how->flip) { /* an answer that was cut has nothing there */
        ((uint8_t *)(answer + 1))[how->offset] ^= how->flip;
    }
    world_reseal(datagram);
    return 1;
}

/* Runs the ticket to its end, the first answer changed; its status. *calm: the longest time in
 * which the client sent nothing. */
static int changed(struct world *world, int ticket, const struct change *how, uint64_t *calm) {
    uint64_t sent = world->ports[1].sent, since = world->now_ns;
    int done = 0;
    CHECK(ticket > 0, "%d", ticket);
    *calm = 0;
    while (world_turn(world), rp_client_poll(world->client, ticket) == RP_PENDING) {
        if (world->ports[1].sent != sent) {
            *calm = world->now_ns - since > *calm ? world->now_ns - since : *calm;
            sent = world->ports[1].sent;
            since = world->now_ns;
        }
        done = done || change(world, how);
        world_advance(world, WORLD_MS);
    }
    CHECK(done, "nothing was changed");
    int status = rp_client_poll(world->client, ticket);
    rp_client_take(world->client, ticket);
    return status;
}

/* The ticket ends well though its first answer is cut by so much; one more drop is counted. */
static void cut_answer(struct world *world, int ticket, uint8_t op, uint32_t cut) {
    const uint64_t *drops = &rp_client_counters(world->client)[RP_COUNT_drop_size];
    struct change how = {.op = op, .cut = cut};
    uint64_t before = *drops, calm;
    CHECK(changed(world, ticket, &how, &calm) == 0 && *drops == before + 1, "op %u", op);
}

/* 1. Given an answer to TABLE, WRITER, STATS or RESET that is cut short. Expect it dropped and
 *    counted, and the caller to have what the next one says. */
static void situation_cut_small(void) {
    static uint64_t counters[RP_COUNTER_COUNT];
    struct rp_writer_granted granted = {0};
    struct rp_table_info again;
    uint32_t sessions = 0;
    uint64_t epoch = 0;
    struct world *world = fresh(11);
    uint64_t later = world_later(world, 20000);
    struct rp_client *client = world->client;
    memset(&again, 0xEE, sizeof again);
    cut_answer(world, rp_client_table(client, "rows", &again, later), RP_OP_TABLE, 8);
    CHECK(again.epoch == info.epoch && again.number == ROWS && again.capacity == info.capacity);
    cut_answer(world, rp_client_writer(client, &info, 1, &granted, later), RP_OP_WRITER, 8);
    CHECK(granted.epoch == info.epoch && granted.window == SCRIPT_WINDOW);
    int ticket = rp_client_stats(client, counters, &sessions, later);
    cut_answer(world, ticket, RP_OP_STATS, 8);
    ticket = rp_client_stats(client, counters, &sessions, later);
    uint32_t shown = (WORLD_MTU - RP_ANSWER_BYTES - sizeof(struct rp_stats)) / 8;
    shown = shown < RP_COUNTER_COUNT ? shown : RP_COUNTER_COUNT;
    cut_answer(world, ticket, RP_OP_STATS, 8 * shown + 8); /* not even its head is whole */
    CHECK(sessions == 1 && counters[RP_COUNT_sessions_opened] == 1);
    cut_answer(world, rp_client_reset(client, ROWS, info.epoch, &epoch, later), RP_OP_RESET, 8);
    CHECK(epoch != 0 && epoch != info.epoch);
    world_close(world);
    check_group("small answers cut short are dropped and asked for again");
}

/* 2. Given an answer to PUBLISH, BLOB or UPDATE that is cut short, or a blob whose size is not
 *    that of its bytes. Expect one drop counted as a wrong size, and the request to end well. */
static void situation_cut_short(void) {
    static uint8_t bytes[100], back[100];
    uint64_t version, size, calm, key, one[2] = {1, 2};
    double priority = 3;
    struct rp_updated updated;
    struct world *world = fresh(1);
    const uint64_t *drops = &rp_client_counters(world->client)[RP_COUNT_drop_size];
    push(world, one);
    key = info.capacity;
    int ticket = rp_client_publish(world->client, bytes, sizeof bytes, &version,
                                   world_later(world, 5000));
    struct change publish = {.op = RP_OP_PUBLISH, .cut = 8};
    CHECK(changed(world, ticket, &publish, &calm) == 0 && *drops == 1 && version == 1);
    struct change blobs[] = {{.op = RP_OP_BLOB, .cut = 8},
                             {.op = RP_OP_BLOB, .offset = 8, .flip = 8}};
    for (uint64_t i = 0; i < 2; i++) {
        ticket = rp_client_blob(world->client, RP_BLOB_WEIGHTS, 0, 0, back, sizeof back, &size,
                                &version, world_later(world, 5000));
        CHECK(changed(world, ticket, &blobs[i], &calm) == 0 && *drops == 2 + i);
        CHECK(size == sizeof back && memcmp(back, bytes, sizeof back) == 0);
    }
    ticket = rp_client_update(world->client, ROWS, info.epoch, &key, &priority, 1, &updated,
                              world_later(world, 5000));
    struct change update = {.op = RP_OP_UPDATE, .cut = 8};
    CHECK(changed(world, ticket, &update, &calm) == 0 && *drops == 4 && updated.applied == 1);
    world_close(world);
    check_group("answers cut short are dropped and asked for again");
}

/* 3. Given a server that answers BUSY once. Expect the client to send nothing for 50 ms, then to
 *    publish; and weights beyond what the server keeps to be refused, before and after. */
static void situation_publish(void) {
    static uint8_t bytes[20001];
    uint64_t version = 0, calm;
    struct world *world = fresh(2);
    struct change busy = {.op = RP_OP_PUBLISH, .status = RP_BUSY};
    for (int round = 0; round < 2; round++) {
        int ticket = rp_client_publish(world->client, bytes, 20001, &version,
                                       world_later(world, 5000));
        CHECK(world_wait(world, ticket) == -RP_TOO_LARGE && version == (uint64_t)round);
        ticket = rp_client_publish(world->client, bytes, 20000, &version,
                                   world_later(world, 5000));
        if (round == 0) {
            CHECK(changed(world, ticket, &busy, &calm) == 0 && calm >= 49 * WORLD_MS);
        } else {
            CHECK(world_wait(world, ticket) == 0);
        }
        CHECK(version == (uint64_t)round + 1, "version %" PRIu64, version);
    }
    struct change refused = {.op = RP_OP_PUBLISH, .status = RP_DISK_FULL};
    int ticket = rp_client_publish(world->client, bytes, 20000, &version, world_later(world, 5000));
    CHECK(changed(world, ticket, &refused, &calm) == -RP_DISK_FULL, "any other refusal ends it");
    world_close(world);
    check_group("a publication waits where it is told to");
}

/* ---- updates ---- */

/* 4. Given no priority at all, as many as there is room for, with one key twice, and one more.
 *    Expect BAD_ARGUMENT; each key set once, the last one standing; BAD_ARGUMENT. */
static void situation_room(void) {
    enum { MOST = 1 << 14 };
    static uint64_t keys[MOST + 1];
    static double priorities[MOST + 1];
    struct rp_updated updated;
    uint64_t one[2] = {1, 2}, later;
    struct world *world = fresh(4);
    for (uint32_t i = 0; i < ITEMS; i++) {
        push(world, one);
    }
    uint32_t room = rp_client_update_room(world->client);
    CHECK(room >= 2 * ITEMS && room < MOST, "%u", room);
    for (uint32_t i = 0; i <= room; i++) {
        keys[i] = info.capacity + i;
        priorities[i] = 1.0 + i;
    }
    later = world_later(world, 5000);
    struct rp_client *client = world->client;
    CHECK(rp_client_update(client, ROWS, info.epoch, keys, priorities, 0, NULL, later)
          == -RP_BAD_ARGUMENT);
    CHECK(rp_client_update(client, ROWS, info.epoch, keys, priorities, room + 1, NULL, later)
          == -RP_BAD_ARGUMENT);
    int ticket =
        rp_client_update(client, ROWS, info.epoch, keys, priorities, room, &updated, later);
    CHECK(world_wait(world, ticket) == 0);
    CHECK(updated.applied == ITEMS && updated.applied + updated.stale + updated.unknown == room);
    for (uint32_t i = 0; i < room; i++) { /* each key several times: many collide, the last wins */
        keys[i] = info.capacity + i % ITEMS;
    }
    ticket = rp_client_update(client, ROWS, info.epoch, keys, priorities, room, &updated,
                              world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0 && updated.applied == ITEMS && updated.stale == 0);
    uint64_t masses[ITEMS], last;
    struct rp_landing landing = {.item_bytes = info.item_bytes[0], .masses = masses};
    struct rp_sample request = {.count = ITEMS, .mode = RP_SAMPLE_KEYS};
    for (uint32_t i = 0; i < ITEMS; i++) {
        keys[i] = info.capacity + i;
    }
    ticket = rp_client_sample(client, ROWS, &request, keys, &landing, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    for (uint32_t i = 0; i < ITEMS; i++) {
        last = room - 1 - (room - 1 - i) % ITEMS;
        CHECK((masses[i] + (1 << 25)) >> 26 == last + 1, "%u: %" PRIu64, i, masses[i]);
    }
    world_close(world);
    check_group("updates up to the room, each key once");
}

/* ---- landing ---- */

/* 5. Given rows of nine columns of every size that is copied in its own way, and memory with gaps.
 *    Expect each column's bytes at its place and not one byte beside it. */
static void situation_columns(void) {
    enum { GAP = 3, STEP = 88 };
    static const uint32_t sizes[WIDE_COLUMNS] = {1, 2, 4, 8, 12, 16, 32, 5, 8};
    static struct rp_column columns[WIDE_COLUMNS];
    static struct rp_pick picks[WIDE_COLUMNS];
    static const struct rp_plan plan[1] = {{"plain", picks, WIDE_COLUMNS}};
    static uint8_t target[WIDE_COLUMNS][ITEMS][32 + GAP], step[STEP];
    struct rp_landing_column into[WIDE_COLUMNS];
    uint32_t end = 0;
    for (uint16_t i = 0; i < WIDE_COLUMNS; i++) {
        columns[i] = (struct rp_column){end, sizes[i], 0};
        picks[i] = (struct rp_pick){i, 0};
        into[i] = (struct rp_landing_column){target[i][0], sizes[i] + GAP, end, sizes[i]};
        end += sizes[i];
    }
    CHECK(end == STEP);
    defaults();
    tables[1].step_bytes = STEP;
    tables[1].columns = columns;
    tables[1].column_count = WIDE_COLUMNS;
    tables[1].plans = plan;
    struct world *world = fresh(5);
    for (uint32_t i = 0; i < STEP; i++) {
        step[i] = (uint8_t)(i + 1);
    }
    push(world, step);
    memset(target, 0xEE, sizeof target);
    struct rp_landing landing = {
        .columns = into, .column_count = WIDE_COLUMNS, .item_bytes = info.item_bytes[0]};
    struct rp_sample request = {.count = ITEMS};
    int ticket = rp_client_sample(world->client, ROWS, &request, NULL, &landing,
                                  world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    for (uint32_t i = 0; i < WIDE_COLUMNS; i++) {
        const uint8_t *at = target[i][0];
        for (uint32_t item = 0; item < ITEMS; item++, at += sizes[i] + GAP) {
            CHECK(memcmp(at, step + into[i].item_offset, sizes[i]) == 0, "column %u", i);
            for (uint32_t k = 0; k < GAP; k++) {
                CHECK(at[sizes[i] + k] == 0xEE, "column %u writes too far", i);
            }
        }
    }
    world_close(world);
    defaults();
    check_group("columns of every size land at their place");
}

/* 6. Given more columns, each to a place of its own, than a client keeps merged. Expect each
 *    byte at its place. */
static void situation_many_columns(void) {
    enum { STEP = 88 };
    static const struct rp_column whole[1] = {{0, STEP, 0}};
    static const struct rp_pick pick[1] = {{0, 0}};
    static const struct rp_plan plan[1] = {{"plain", pick, 1}};
    static uint8_t target[STEP][2 * ITEMS], step[STEP];
    struct rp_landing_column into[STEP];
    tables[1].step_bytes = STEP;
    tables[1].columns = whole;
    tables[1].column_count = 1;
    tables[1].plans = plan;
    struct world *world = fresh(12);
    for (uint32_t i = 0; i < STEP; i++) {
        step[i] = (uint8_t)(i + 1);
        into[i] = (struct rp_landing_column){target[i], 2, i, 1};
    }
    push(world, step);
    struct rp_landing landing = {
        .columns = into, .column_count = STEP, .item_bytes = info.item_bytes[0]};
    struct rp_sample request = {.count = ITEMS};
    int ticket = rp_client_sample(world->client, ROWS, &request, NULL, &landing,
                                  world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    for (uint32_t i = 0; i < STEP; i++) {
        for (uint32_t item = 0; item < ITEMS; item++) {
            CHECK(target[i][2 * item] == i + 1 && target[i][2 * item + 1] == 0, "byte %u", i);
        }
    }
    world_close(world);
    defaults();
    check_group("more columns than are merged");
}

/* 7. Given two columns whose memory touches at the first item and not behind it. Expect each
 *    item's values at their own strides. And given columns out of order, empty, without memory
 *    or beyond the item. Expect BAD_ARGUMENT. */
static void situation_strides(void) {
    static uint64_t memory[16 * ITEMS + 16];
    uint64_t one[2] = {11, 22};
    uint8_t *at = (uint8_t *)memory;
    struct rp_landing_column into[2] = {{at, 64, 0, 8}, {at + 8, 128, 8, 8}};
    struct world *world = fresh(6);
    push(world, one);
    struct rp_landing landing = {
        .columns = into, .column_count = 2, .item_bytes = info.item_bytes[0]};
    struct rp_sample request = {.count = ITEMS};
    int ticket = rp_client_sample(world->client, ROWS, &request, NULL, &landing,
                                  world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    for (uint32_t i = 0; i < ITEMS; i++) {
        CHECK(memory[8 * i] == 11 && memory[16 * i + 1] == 22, "item %u", i);
    }
    static const struct rp_landing_column wrong[][2] = {
        {{(uint8_t *)memory, 8, 8, 8}, {(uint8_t *)memory, 8, 0, 8}},
        {{(uint8_t *)memory, 8, 0, 8}, {(uint8_t *)memory, 8, 7, 8}},
        {{(uint8_t *)memory, 8, 0, 0}, {(uint8_t *)memory, 8, 8, 8}},
        {{NULL, 8, 0, 8}, {(uint8_t *)memory, 8, 8, 8}},
        {{(uint8_t *)memory, 8, 0, 8}, {(uint8_t *)memory, 8, 8, 9}},
    };
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        landing.columns = wrong[i];
        ticket = rp_client_sample(world->client, ROWS, &request, NULL, &landing,
                                  world_later(world, 5000));
        CHECK(ticket == -RP_BAD_ARGUMENT, "case %u: %d", i, ticket);
    }
    world_close(world);
    check_group("columns by strides of their own; wrong ones refused");
}

/* ---- small facts ---- */

/* 8. Given a redo log with a word in it, and a server that is measured. Expect one word less of
 *    room; the server's own incarnation. */
static void situation_facts(void) {
    static uint64_t region[2 * sizeof(struct rp_intent_log) / 8];
    struct rp_intent intent;
    rp_intent_open(&intent, region, sizeof region, (struct rp_intent_log *)(void *)region);
    uint64_t room = rp_intent_room(&intent);
    rp_intent_set(&intent, &region[sizeof region / 8 - 1], 5);
    CHECK(rp_intent_room(&intent) == room - 1);
    static struct rp_measures told;
    struct world *world = fresh(7);
    rp_server_measure(world->server, world->now_ns, &told);
    CHECK(told.incarnation != 0 && told.incarnation == rp_server_incarnation(world->server));
    world_close(world);
    check_group("room of the log; a server's incarnation");
}

/* ---- losses that answers tell of ---- */

/* Lets the client send; what it sent first of this operation is lost. Runs the ticket to its end;
 * the losses that were seen, and the time it took. */
static uint64_t first_lost(struct world *world, int ticket, uint8_t op, uint64_t *took) {
    uint64_t losses = rp_client_counters(world->client)[RP_COUNT_losses_seen];
    uint64_t begin = world->now_ns;
    world_client_turn(world);
    world_lose(world, op);
    CHECK(world_wait(world, ticket) == 0);
    *took = world->now_ns - begin;
    return rp_client_counters(world->client)[RP_COUNT_losses_seen] - losses;
}

/* 9. Given the first of several datagrams lost: pieces of a publication, then priorities. Expect
 *    answers to the later ones to tell of it: sent again long before its time is out, one loss
 *    counted, the window smaller. */
static void situation_overtaken(void) {
    enum { MANY = 400 };
    static uint8_t bytes[6000];
    static uint64_t keys[MANY], one[2] = {1, 2};
    static double priorities[MANY];
    struct rp_client_options options = world_options();
    struct rp_updated updated;
    uint64_t version, took;
    options.retry_us_min = 50000;
    options.retry_us_max = 1000000;
    struct world *world = world_open(&config, 8);
    world_client(world, &options);
    world_connect(world);
    int ticket = rp_client_table(world->client, "rows", &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    static struct rp_writer_granted granted;
    ticket = rp_client_writer(world->client, &info, 1, &granted, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    push(world, one);
    uint32_t window = world->client->credit.window;
    ticket = rp_client_publish(world->client, bytes, sizeof bytes, &version,
                               world_later(world, 9000));
    CHECK(first_lost(world, ticket, RP_OP_PUBLISH, &took) == 1 && version == 1);
    CHECK(took < 20 * WORLD_MS, "%" PRIu64 " ns", took);
    CHECK(world->client->credit.window < window, "%u", world->client->credit.window);
    for (uint32_t i = 0; i < MANY; i++) {
        keys[i] = info.capacity + i;
        priorities[i] = 1;
    }
    ticket = rp_client_update(world->client, ROWS, info.epoch, keys, priorities, MANY, &updated,
                              world_later(world, 9000));
    CHECK(first_lost(world, ticket, RP_OP_UPDATE, &took) == 1);
    CHECK(took < 20 * WORLD_MS && updated.applied == 1, "%" PRIu64 " ns", took);
    world_close(world);
    check_group("9 what later answers tell of is sent again at once");
}

/* 10. Given answers that come later than the client waits. Expect each answer beyond the first
 *    to be counted as one that nobody asked for, one version for each publication, and
 *    priorities applied once. */
static void situation_late(void) {
    static uint8_t bytes[6000];
    uint64_t version, one[2] = {1, 2}, key;
    double priority = 4;
    struct rp_updated updated;
    struct world *world = fresh(9);
    const uint64_t *counters = rp_client_counters(world->client);
    push(world, one);
    key = info.capacity;
    for (uint64_t round = 1; round <= 6; round++) {
        world->delay_ns = (round % 2 ? 1 : 40) * WORLD_MS; /* what is learned on the one is wrong */
        uint64_t again = counters[RP_COUNT_retransmissions];
        uint64_t before = counters[RP_COUNT_drop_unsolicited];
        int ticket = rp_client_publish(world->client, bytes, sizeof bytes, &version,
                                       world_later(world, 5000));
        CHECK(world_wait(world, ticket) == 0 && version == round);
        ticket = rp_client_update(world->client, ROWS, info.epoch, &key, &priority, 1, &updated,
                                  world_later(world, 5000));
        CHECK(world_wait(world, ticket) == 0 && updated.applied == 1);
        world_run(world, 100 * WORLD_MS);
        again = counters[RP_COUNT_retransmissions] - again;
        before = counters[RP_COUNT_drop_unsolicited] - before;
        CHECK(before == again, "%" PRIu64 " of %" PRIu64 " repeats", before, again);
        CHECK(round != 2 || again >= 3, "%" PRIu64, again);
    }
    world_close(world);
    check_group("10 answers that come late, and again");
}

/* 11. Given steps that wait at the server behind a message that was lost, and an answer that says
 *     the last of them lost their places. Expect the client to send the run again under new
 *     sequences: each step stored once, with its priority, none twice. */
static void situation_lost_place(void) {
    enum { BEFORE = 3, ALL = 7, DRAWN = 64 };
    static uint64_t steps[2 * ALL], drawn[2 * DRAWN], masses[DRAWN];
    static uint32_t drawables[DRAWN];
    static double priorities[ALL];
    struct rp_push_state state;
    struct world *world = fresh(10);
    struct rp_client *client = world->client;
    const uint32_t flags = RP_RUN_ITEM | RP_RUN_PRIORITY;
    for (uint32_t i = 0; i < ALL; i++) {
        steps[2 * i] = i + 1;
        priorities[i] = i + 1;
    }
    CHECK(rp_client_push(client, ROWS, 0, (const uint8_t *)steps, BEFORE, flags, priorities)
          == BEFORE);
    rp_client_flush(client, ROWS);
    world_client_turn(world);
    world_lose(world, RP_OP_PUSH);
    CHECK(rp_client_push(client, ROWS, 0, (const uint8_t *)(steps + 2 * BEFORE), ALL - BEFORE,
                         flags, priorities + BEFORE) == ALL - BEFORE);
    rp_client_flush(client, ROWS);
    struct change lost = {.op = RP_OP_PUSH,
                          .offset = sizeof(struct rp_pushed) + offsetof(struct rp_run_done, lost),
                          .flip = 2};
    while (!change(world, &lost)) {
        world_step(world, WORLD_MS / 100);
    }
    do {
        world_step(world, WORLD_MS);
        rp_client_push_state(client, ROWS, &state);
    } while (state.messages_open > 0);
    CHECK(state.steps_resent == ALL - BEFORE, "%" PRIu64, state.steps_resent);
    CHECK(state.steps_stored == ALL && state.items_created == ALL && state.items_failed == 0);
    struct rp_landing_column column = {(uint8_t *)drawn, 16, 0, 16};
    struct rp_landing landing = {.columns = &column, .column_count = 1, .masses = masses,
                                 .drawables = drawables, .item_bytes = info.item_bytes[0]};
    struct rp_sample request = {.count = DRAWN};
    int ticket = rp_client_sample(client, ROWS, &request, NULL, &landing,
                                  world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < DRAWN; i++) {
        CHECK(drawables[i] == ALL, "%u items", drawables[i]);
        CHECK(drawn[2 * i] >= 1 && drawn[2 * i] <= ALL && drawn[2 * i + 1] == 0);
        CHECK((masses[i] + (1 << 25)) >> 26 == drawn[2 * i], "the priority of %" PRIu64,
              drawn[2 * i]);
        seen |= 1u << drawn[2 * i];
    }
    CHECK(seen == (1u << (ALL + 1)) - 2, "%x", seen);
    world_close(world);
    check_group("11 a place that was lost");
}

/* 12. Given the answer to CLOSE damaged, and the repeat refused: UNKNOWN_SESSION. Expect success,
 *     the session gone, and none opened in its place. */
static void situation_close_repeated(void) {
    uint64_t calm;
    struct world *world = fresh(1);
    struct change close = {.op = RP_OP_CLOSE, .cut = 8};
    CHECK(changed(world, rp_client_close(world->client, world_later(world, 5000)), &close, &calm)
          == 0);
    CHECK(rp_client_state(world->client) == -RP_CLOSED && rp_server_sessions(world->server) == 0);
    const uint64_t *served = rp_server_counters(world->server);
    CHECK(served[RP_COUNT_unknown_session] == 1 && served[RP_COUNT_sessions_opened] == 1);
    world_close(world);
    check_group("12 a CLOSE that is repeated has succeeded");
}

int main(void) {
    defaults();
    situation_lost_place();
    situation_overtaken();
    situation_late();
    situation_cut_small();
    situation_cut_short();
    situation_publish();
    situation_room();
    situation_columns();
    situation_many_columns();
    situation_strides();
    situation_facts();
    situation_close_repeated();
    return check_done("test_client_odd");
}
