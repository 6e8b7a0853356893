/* Where a limiter binds all the time nobody stands still: who may go on is asked at once, and
 * no place at the server is kept by a message that does not come. One client plays and draws, in
 * virtual time, over a network that reorders; widths, groups and batches by chance. */
#include "client_world.h"

enum { AHEAD = 2, STREAMS_MAX = 8, WIDTH_MAX = 64, OPEN_MAX = 8, DRAWS = 150, LONGEST_MS = 100,
       LOST_MS = 1500 };

static struct rp_table_config tables[2];
static struct rp_server_config config;
static uint8_t bytes[WIDTH_MAX * 4 * 8];
static struct rp_landing_column column = {bytes, 4 * 8, 0, 4 * 8};

struct player { /* one step on every stream at a time, items as soon as their windows are there */
    struct world *world;
    uint16_t streams;
    int at_once; /* 1: steps are items, in a table that takes them in order */
    uint64_t steps[STREAMS_MAX]; /* taken of each stream */
    uint64_t items[STREAMS_MAX];
};

static struct world *limited(struct player *player, uint32_t width, uint64_t seed) {
    struct rp_table_info info;
    struct rp_writer_granted granted;
    script_tables(tables);
    tables[1].plan_count = player->at_once ? 1 : 2; /* 1: windows of -1 .. +2 */
    tables[1].streams_max = STREAMS_MAX;
    tables[1].window = 16u << seed % 4; /* the smallest are overtaken by a whole window */
    tables[1].capacity = 1 << 13;
    tables[1].error_max = width;
    config = script_config(tables);
    struct world *world = player->world = world_open(&config, seed);
    uint64_t deadline = world_later(world, 5000);
    world_connect(world);
    CHECK(world_wait(world, rp_client_table(world->client, "rows", &info, deadline)) == 0);
    CHECK(world_wait(world, rp_client_writer(world->client, &info, player->streams, &granted,
                                             deadline)) == 0);
    return world;
}

/* Plays on, as far as its writer takes it. */
static void play(struct player *player) {
    struct rp_client *client = player->world->client;
    uint64_t row[2] = {0};
    struct rp_push_state state;
    rp_client_push_state(client, 1, &state);
    CHECK(state.status == 0, "the writer ended: %d", state.status);
    for (uint16_t s = 0; s < player->streams && state.messages_open < OPEN_MAX; s++) {
        row[0] = player->steps[s];
        player->steps[s] += (uint64_t)rp_client_push(client, 1, s, (const uint8_t *)row, 1,
                                                     player->at_once ? RP_RUN_ITEM : 0, NULL);
        if (!player->at_once && player->items[s] + AHEAD < player->steps[s]) {
            player->items[s] += rp_client_create(client, 1, s, player->items[s], 1.0, 0) == 0;
        }
    }
    if (rp_random_below(&player->world->random, 2)) { /* or with the next ones */
        rp_client_flush(client, 1);
    }
}

static int post(struct world *world, uint32_t count, int window) {
    struct rp_sample request = {.count = count, .plan = (uint16_t)window};
    struct rp_landing landing = {.columns = &column, .column_count = 1,
                                 .item_bytes = window ? 4 * 8 : 2 * 8};
    column.size = landing.item_bytes;
    column.stride = landing.item_bytes;
    return rp_client_sample(world->client, 1, &request, NULL, &landing, world_later(world, 60000));
}

/* The longest time, in ms, between two draws, of a network that loses so many of a thousand. */
static uint64_t walk(uint64_t seed, int at_once, uint32_t lose) {
    struct player player = {.at_once = at_once};
    struct rp_random random;
    rp_random_seed(&random, seed);
    player.streams = (uint16_t)(1 + rp_random_below(&random, STREAMS_MAX));
    uint32_t width = 8 + (uint32_t)rp_random_below(&random, WIDTH_MAX - 8);
    uint32_t batch = 1 + (uint32_t)rp_random_below(&random, width);
    struct world *world = limited(&player, width, seed);
    world->late = (uint32_t)rp_random_below(&random, 200);
    world->lose = lose;
    uint64_t longest = 0, drawn_ns = world->now_ns;
    for (uint32_t draws = 0; draws < DRAWS; draws++) {
        int ticket = post(world, batch, !at_once);
        CHECK(ticket > 0, "ticket %d", ticket);
        while (rp_client_poll(world->client, ticket) == RP_PENDING) {
            play(&player);
            world_step(world, WORLD_MS);
            CHECK(world->now_ns - drawn_ns < (lose ? LOST_MS : LONGEST_MS) * WORLD_MS,
                  "seed %" PRIu64 ": nothing was drawn for so long", seed);
        }
        CHECK(rp_client_poll(world->client, ticket) == 0);
        rp_client_take(world->client, ticket);
        uint64_t waited = (world->now_ns - drawn_ns) / WORLD_MS;
        longest = waited > longest ? waited : longest;
        drawn_ns = world->now_ns;
    }
    CHECK(lose || rp_server_counters(world->server)[RP_COUNT_waits_lapsed] == 0, "seed %" PRIu64,
          seed);
    world_close(world);
    return longest;
}

/* 1. Given items that are created behind their steps, or steps that are items at once. Expect a
 *    draw every so often: the slowest have to wait for what the network holds back, for 3 ms at a
 *    time, and never for a timer that asks again after half a second. */
static void situation_goes_on(void) {
    uint64_t first = check_seed(20261122);
    for (int at_once = 0; at_once < 2; at_once++) {
        uint64_t longest = 0;
        for (uint64_t seed = first; seed < first + 120; seed++) {
            uint64_t waited = walk(seed, at_once, 0);
            longest = waited > longest ? waited : longest;
        }
        printf("    the longest time without a draw: %" PRIu64 " ms\n", longest);
    }
    check_group("1 a limiter that binds holds nobody up for a timer");
}

/* One row of a stream, and what it is; sent at once. */
static void post_row(struct world *world, uint16_t stream, uint64_t step, uint32_t flags) {
    uint64_t row[2] = {step};
    CHECK(rp_client_push(world->client, 1, stream, (const uint8_t *)row, 1, flags, NULL) == 1);
    rp_client_flush(world->client, 1);
    world_client_turn(world);
}

/* Eight items, one at a time: as many as a limiter of that width lets in. */
static void fill(struct world *world, uint16_t stream) {
    struct rp_push_state state;
    for (uint64_t step = 0; step < 8; step++) {
        post_row(world, stream, step, RP_RUN_ITEM);
        do {
            world_step(world, WORLD_MS);
            rp_client_push_state(world->client, 1, &state);
        } while (state.messages_open > 0);
    }
}

/* 2. Given a message that waits in its writer's place at the server, and others under way behind
 *    it, which are taken. Expect it not asked for again by that: its answer comes unasked. */
static void situation_noted(void) {
    struct player player = {.streams = 2, .at_once = 1};
    struct rp_push_state state;
    struct world *world = limited(&player, 8, 2);
    const uint64_t *counters = rp_server_counters(world->server);
    fill(world, 0);
    post_row(world, 0, 8, RP_RUN_ITEM);
    for (uint64_t step = 0; step < 3; step++) {
        post_row(world, 1, step, 0);
    }
    world_run(world, 100 * WORLD_MS);
    rp_client_push_state(world->client, 1, &state);
    CHECK(state.messages_open == 1 && state.steps_stored == 8 + 3);
    CHECK(counters[RP_COUNT_pushes_blocked] == 1, "%" PRIu64, counters[RP_COUNT_pushes_blocked]);
    world_run(world, 500 * WORLD_MS);
    CHECK(counters[RP_COUNT_pushes_blocked] == 2, "twice a second it asks");
    world_close(world);
    check_group("2 what has the place waits");
}

/* 3. Given a message that waits, and a server that closes, its region with it. Expect its writer to
 *    end as by a restart, at once. */
static void situation_closed(void) {
    struct player player = {.streams = 2, .at_once = 1};
    struct rp_push_state state;
    struct world *world = limited(&player, 8, 2);
    for (uint64_t step = 0; step < 9; step++) {
        post_row(world, 0, step, RP_RUN_ITEM);
        world_run(world, 10 * WORLD_MS);
    }
    rp_client_push_state(world->client, 1, &state);
    CHECK(state.blocked && state.status == 0 && state.steps_stored == 8);
    uint64_t dropped = rp_client_counters(world->client)[RP_COUNT_drop_unsolicited];
    rp_server_last_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns, 0);
    world_run(world, 10 * WORLD_MS);
    rp_client_push_state(world->client, 1, &state);
    CHECK(state.status == -RP_SERVER_RESTARTED && state.steps_stored == 8);
    CHECK(rp_client_counters(world->client)[RP_COUNT_drop_unsolicited] == dropped);
    world_close(world);
    check_group("3 a server that closes ends its writers as a restart does");
}

/* 4. Given an older message that was lost on its way, a younger one that has the place, and a
 *    learner that rests. Expect two questions a second, no more. Given the answer to that one lost,
 *    then. Expect both stored, by the timer. */
static void situation_hope(void) {
    struct player player = {.streams = 2, .at_once = 1};
    struct rp_push_state state;
    struct world *world = limited(&player, 8, 2);
    fill(world, 0);
    world->lose = 1000;
    post_row(world, 0, 8, RP_RUN_ITEM);
    world->lose = 0;
    post_row(world, 1, 0, RP_RUN_ITEM);
    world_run(world, 150 * WORLD_MS);
    const uint64_t *counters = rp_server_counters(world->server);
    uint64_t asked = counters[RP_COUNT_pushes_blocked];
    uint64_t placed = rp_wait_note(world->server, RP_WAIT_PUSH, 0, 1)->id;
    for (uint64_t end = world->now_ns + 10000 * WORLD_MS; world->now_ns < end;) {
        world_client_turn(world);
        for (uint32_t i = 0; i < world->ports[0].count; i++) {
            const struct rp_message *message = world_message(&world->ports[0].queue[i]);
            CHECK(message->op != RP_OP_PUSH || message->id == placed, "the one that has the place");
        }
        world_step(world, WORLD_MS);
    }
    asked = counters[RP_COUNT_pushes_blocked] - asked;
    CHECK(asked >= 10 && asked <= 21, "%" PRIu64 " in ten seconds", asked);
    int ticket = post(world, 4, 0);
    world_client_turn(world);
    world->lose = 1000;
    world_run(world, WORLD_MS);
    world->lose = 0;
    CHECK(world_wait(world, ticket) == 0);
    world_run(world, 2000 * WORLD_MS);
    rp_client_push_state(world->client, 1, &state);
    CHECK(state.steps_stored == 10 && state.messages_open == 0 && !state.blocked);
    world_close(world);
    check_group("4 who is noted is a hope, and no more");
}

static void drop(struct world_port *port, uint8_t op, uint64_t id) {
    for (uint32_t i = port->count; i-- > 0;) {
        struct world_datagram *datagram = &port->queue[i];
        if (world_message(datagram)->op == op && world_message(datagram)->id == id) {
            free(datagram->data);
            memmove(datagram, datagram + 1, (--port->count - i) * sizeof *datagram);
        }
    }
}

/* For so long, without the questions of one message and the answers to another. */
static void run_without(struct world *world, uint64_t ms, uint64_t question, uint64_t answer) {
    for (uint64_t end = world->now_ns + ms * WORLD_MS; world->now_ns < end;) {
        world_turn(world);
        drop(&world->ports[0], RP_OP_PUSH, question);
        drop(&world->ports[1], RP_OP_PUSH | RP_ANSWER, answer);
        world_advance(world, WORLD_MS);
    }
}

static void draw_without(struct world *world, uint32_t count, uint64_t question, uint64_t answer) {
    int ticket = post(world, count, 0);
    while (rp_client_poll(world->client, ticket) == RP_PENDING) {
        run_without(world, 1, question, answer);
    }
    CHECK(rp_client_poll(world->client, ticket) == 0);
    rp_client_take(world->client, ticket);
}

static uint64_t last_asked(const struct world *world) {
    const struct world_port *port = &world->ports[0];
    CHECK(port->count > 0 && world_message(&port->queue[port->count - 1])->op == RP_OP_PUSH);
    return world_message(&port->queue[port->count - 1])->id;
}

/* 5. Given a message whose questions are lost for longer than a noted one waits, another one that
 *    got the place meanwhile, and the answer to that lost. Expect all stored, once the first one's
 *    questions arrive: the noted one's time was over while another asked. */
static void situation_both_lost(void) {
    struct player player = {.streams = 4, .at_once = 1};
    struct rp_push_state state;
    struct world *world = limited(&player, 8, 2);
    const struct rp_note *note = rp_wait_note(world->server, RP_WAIT_PUSH, 0, 1);
    fill(world, 3);
    post_row(world, 0, 0, RP_RUN_ITEM);
    post_row(world, 1, 0, RP_RUN_ITEM);
    uint64_t older = last_asked(world);
    post_row(world, 2, 0, RP_RUN_ITEM);
    uint64_t younger = last_asked(world);
    run_without(world, 3, younger, 0);
    CHECK(note->waiting && note->id != older && note->id != younger);
    drop(&world->ports[0], RP_OP_PUSH, younger);
    draw_without(world, 1, older, 0);
    for (uint32_t ms = 0; !(note->waiting && note->id == younger); ms++) {
        CHECK(ms < 1000, "the younger one never has the place");
        run_without(world, 1, older, 0);
    }
    run_without(world, 1, older, 0);
    draw_without(world, 1, older, younger);
    run_without(world, 650, older, younger);
    draw_without(world, 4, older, younger);
    world_run(world, 3000 * WORLD_MS);
    rp_client_push_state(world->client, 1, &state);
    CHECK(state.steps_stored == 8 + 3 && state.messages_open == 0, "%u open", state.messages_open);
    world_close(world);
    check_group("5 a time that was over while another asked");
}

/* 6. Given a network that loses one datagram of fifty, and one of twelve. Expect nobody to stand
 *    still for longer than some timers take. */
static void situation_losses(void) {
    uint64_t first = check_seed(20261122);
    for (int at_once = 0; at_once < 2; at_once++) {
        uint64_t longest = 0;
        for (uint64_t seed = first; seed < first + 60; seed++) {
            uint64_t waited = walk(seed, at_once, seed % 2 ? 20 : 80);
            longest = waited > longest ? waited : longest;
        }
        printf("    the longest time without a draw: %" PRIu64 " ms\n", longest);
    }
    check_group("6 losses cost a timer's time");
}

int main(void) {
    situation_goes_on();
    situation_noted();
    situation_closed();
    situation_hope();
    situation_both_lost();
    situation_losses();
    return check_done("test_client_limited");
}
