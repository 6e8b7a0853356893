/* What a client has under way and takes from its caller stays inside its bounds. Situations
 * read "Given ... Expect ...". */
#include "client/client_parts.h"
#include "client/client_state.h"
#include "client_world.h"

enum { ROWS = 1, AT_ONCE = 16 };

static struct rp_table_config tables[2];
static struct rp_server_config config;

struct writing {
    struct rp_table_info info;
    struct rp_writer_granted granted;
    uint64_t pushed;
};

static struct world *fresh(uint64_t seed, const struct rp_client_options *options) {
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    config = script_config(tables);
    struct world *world = world_open(&config, seed);
    world_client(world, options);
    world_connect(world);
    return world;
}

static void writing_open(struct world *world, struct writing *writing) {
    int ticket = rp_client_table(world->client, "rows", &writing->info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &writing->info, 1, &writing->granted,
                              world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    writing->pushed = 0;
}

static uint32_t push(struct world *world, struct writing *writing, uint32_t count, uint32_t flags) {
    uint64_t steps[2 * AT_ONCE];
    CHECK(count <= AT_ONCE);
    for (uint32_t i = 0; i < count; i++) {
        steps[2 * i] = writing->pushed + i;
        steps[2 * i + 1] = 0;
    }
    int taken = rp_client_push(world->client, ROWS, 0, (const uint8_t *)steps, count, flags, NULL);
    CHECK(taken >= 0, "push: %d", taken);
    writing->pushed += (uint32_t)taken;
    return (uint32_t)taken;
}

static struct rp_push_state state_of(const struct world *world) {
    struct rp_push_state state;
    rp_client_push_state(world->client, ROWS, &state);
    CHECK(state.status == 0, "the writer ended with %d", state.status);
    CHECK(state.unacknowledged == state.steps_posted - state.steps_stored);
    CHECK(state.unacknowledged <= state.unacknowledged_max);
    CHECK(state.blocked == (state.need > 0));
    return state;
}

/* Pushes and runs until nothing more is taken, for long. Returns how many are not acknowledged. */
static uint64_t push_until_refused(struct world *world, struct writing *writing) {
    for (uint32_t refused = 0; refused < 20;) {
        refused = push(world, writing, 1, RP_RUN_ITEM) ? 0 : refused + 1;
        world_run(world, WORLD_MS);
        CHECK(writing->pushed < 100000, "it takes steps for ever");
    }
    return state_of(world).unacknowledged;
}

/* 1. Given a server that is silent, and an option or none. Expect no more steps to be taken
 *    than the option says, or two windows; an end beyond that not to be applied; and, once the
 *    server is back, all of them stored and as many more taken. */
static void situation_silent(uint32_t chosen) {
    struct rp_client_options options = world_options();
    struct writing writing;
    options.unacknowledged_max = chosen;
    options.messages_max = 1024;
    struct world *world = fresh(1, &options);
    writing_open(world, &writing);
    uint64_t most = chosen ? chosen : 2 * writing.granted.window;
    world->deaf = 1;
    CHECK(push_until_refused(world, &writing) == most, "%" PRIu64, writing.pushed);
    CHECK(state_of(world).unacknowledged_max == most && !state_of(world).blocked);
    CHECK(push(world, &writing, 3, RP_RUN_END) == 0);
    world->deaf = 0;
    world_run(world, 1000 * WORLD_MS);
    CHECK(state_of(world).unacknowledged == 0 && state_of(world).steps_stored == most);
    for (uint64_t taken = 0; taken < most; taken++) {
        CHECK(push(world, &writing, 1, 0) == 1, "after %" PRIu64, taken);
    }
    CHECK(push(world, &writing, 1, 0) == 0);
    rp_client_check(world->client);
    world_close(world);
}

/* 2. Given room for two of three steps whose last one ends the episode. Expect two to be taken,
 *    the second of them no closing row; then the third with its end. */
static void situation_end(void) {
    struct rp_client_options options = world_options();
    struct writing writing;
    options.unacknowledged_max = 2;
    struct world *world = fresh(2, &options);
    writing_open(world, &writing);
    CHECK(push(world, &writing, 3, RP_RUN_END) == 2);
    CHECK(rp_client_create(world->client, ROWS, 0, 1, 1.0, 0) == 0);
    world_run(world, 50 * WORLD_MS);
    CHECK(state_of(world).steps_stored == 2);
    CHECK(state_of(world).items_created == 1 && state_of(world).items_failed == 0);
    CHECK(push(world, &writing, 1, RP_RUN_END) == 1);
    CHECK(rp_client_create(world->client, ROWS, 0, 2, 1.0, 0) == 0);
    world_run(world, 50 * WORLD_MS);
    CHECK(state_of(world).steps_stored == 3);
    CHECK(state_of(world).items_created == 1 && state_of(world).items_failed == 1);
    world_close(world);
}

/* 3. Given a limiter that admits few. Expect the writer to say that it is blocked, and the caller
 *    to be ahead of what is stored by its bound at most. */
static void situation_limited(void) {
    struct rp_client_options options = world_options();
    struct writing writing;
    script_tables(tables);
    config = script_config(tables);
    options.unacknowledged_max = 6;
    struct world *world = world_open(&config, 3);
    world_client(world, &options);
    world_connect(world);
    writing_open(world, &writing);
    CHECK(push_until_refused(world, &writing) == 6);
    struct rp_push_state state = state_of(world);
    CHECK(state.blocked && state.need > 0 && state.steps_stored < 100);
    world_close(world);
}

static int queue(struct world *world, uint64_t deadline_ns) {
    static const uint64_t keys[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const double priorities[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    return rp_client_update_queue(world->client, ROWS, 1, keys, priorities, 8, deadline_ns);
}

static struct rp_update_state queued(struct world *world) {
    struct rp_update_state state;
    rp_client_update_state(world->client, &state);
    return state;
}

/* 4. Given small updates that are queued, and a server that is silent, then there, then silent
 *    for longer than they wait. Expect them to be taken up to their share of the tickets;
 *    others to get one; each to be counted once, without anybody asking for it; and the first
 *    failure kept until it is asked for. */
static void situation_queued(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(4, &options);
    struct writing writing;
    uint64_t taken = 0;
    writing_open(world, &writing);
    push(world, &writing, 16, RP_RUN_ITEM);
    world_run(world, 50 * WORLD_MS);
    world->deaf = 1;
    int count;
    while ((count = queue(world, world_later(world, 60000))) > 0) {
        taken++;
        world_run(world, WORLD_MS);
    }
    CHECK(count == 0, "no room is no error: %d", count);
    CHECK(rp_client_update_queue(world->client, ROWS, 1, &(uint64_t){1}, &(double){1}, 1,
                                 world_later(world, 60000)) == 0, "not for a single one either");
    CHECK(taken == options.requests_max * 3 / 4 && rp_client_update_busy(world->client));
    CHECK(queued(world).posted == 8 * taken && queued(world).finished == 0);
    int ticket = rp_client_ping(world->client, world_later(world, 60000));
    CHECK(ticket > 0, "no ticket is left");
    world->deaf = 0;
    CHECK(world_wait(world, ticket) == 0);
    while (taken < 1000) {
        count = queue(world, world_later(world, 60000));
        CHECK(count == 8 || count == 0);
        taken += count > 0;
        world_run(world, WORLD_MS / 10);
    }
    world_run(world, 1000 * WORLD_MS);
    struct rp_update_state state = queued(world);
    CHECK(!rp_client_update_busy(world->client) && state.posted == 8000);
    CHECK(state.finished == 8000 && state.status == 0 && state.failed == 0);
    CHECK(state.applied + state.stale + state.unknown == 8000);
    world->deaf = 1;
    CHECK(queue(world, world_later(world, 100)) == 8);
    world_run(world, 200 * WORLD_MS);
    state = queued(world);
    CHECK(state.failed == 8 && state.finished == 8008 && state.status == -RP_TIMEOUT);
    CHECK(queued(world).status == 0, "told once");
    rp_client_check(world->client);
    world_close(world);
}

enum { LARGE = 160000, LARGE_CAPACITY = 64 };

static struct world *large_world(uint32_t pieces_max, struct writing *writing, int *status) {
    struct rp_client_options options = world_options();
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    tables[1].step_bytes = LARGE;
    tables[1].capacity = LARGE_CAPACITY;
    tables[1].writers_max = 1;
    tables[1].window = LARGE_CAPACITY / 16;
    tables[1].pieces_max = pieces_max;
    config = script_config(tables);
    options.messages_max = 0; /* what one largest step needs */
    struct world *world = world_open(&config, 5);
    world_client(world, &options);
    world_connect(world);
    int ticket = rp_client_table(world->client, "rows", &writing->info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &writing->info, 1, &writing->granted,
                              world_later(world, 5000));
    *status = world_wait(world, ticket);
    return world;
}

/* 5. Given steps of many datagrams, over a slow path, or one that loses. Expect all stored, a
 *    piece that has arrived not to be sent again while others of its step are on their way, and
 *    a table that takes fewer pieces to be refused when the writer is asked for. */
static void situation_large(uint32_t lose, uint64_t delay_ns) {
    static uint8_t step[LARGE];
    struct writing writing;
    int status;
    struct world *world = large_world(RP_PIECES_MAX, &writing, &status);
    CHECK(status == 0, "writer: %d", status);
    world->lose = lose;
    world->delay_ns = delay_ns;
    uint64_t pieces = rp_piece_count(LARGE, WORLD_MTU), before = world->ports[1].sent;
    for (uint32_t pushed = 0, i = 0; pushed < 6; i++) {
        CHECK(i < 100000, "it is never taken");
        int taken = rp_client_push(world->client, ROWS, 0, step, 1, RP_RUN_ITEM, NULL);
        CHECK(taken == 0 || taken == 1, "push: %d", taken);
        pushed += (uint32_t)taken;
        world_run(world, WORLD_MS);
    }
    for (uint32_t i = 0; state_of(world).messages_open > 0; i++) {
        CHECK(i < 100000, "pushes never settle");
        rp_client_flush(world->client, ROWS);
        world_run(world, WORLD_MS);
    }
    CHECK(state_of(world).steps_stored == 6 && state_of(world).items_created == 6);
    uint64_t sent = world->ports[1].sent - before;
    CHECK(lose || sent < 6 * pieces * 11 / 10 + 20, "%" PRIu64 " for %" PRIu64 " pieces", sent,
          6 * pieces);
    rp_server_check(world->server);
    world_close(world);
}

/* 6. Given a step in pieces, the answer to its last but one overtaken by that to its last: it says
 *    less than the writer knows by then. Expect that piece to be finished, though nobody asks. */
static void situation_overtaken(void) {
    static uint8_t step[LARGE];
    struct writing writing;
    int status, held = 0;
    struct world *world = large_world(RP_PIECES_MAX, &writing, &status);
    CHECK(status == 0, "writer: %d", status);
    CHECK(rp_client_push(world->client, ROWS, 0, step, 1, 0, NULL) == 1);
    rp_client_flush(world->client, ROWS);
    for (uint32_t i = 0; state_of(world).messages_open > 0; i++) {
        CHECK(i < 100000, "a piece never settles");
        world_turn(world);
        struct world_port *port = &world->ports[1];
        for (uint32_t k = 0; k < port->count && !held; k++) {
            const struct rp_message *message =
                (const void *)(port->queue[k].data + sizeof(struct rp_outer));
            held = message->op == (RP_OP_PUSH | RP_ANSWER)
                   && (message->id & 0xFFFF) == rp_piece_count(LARGE, WORLD_MTU) - 2;
            port->queue[k].due_ns += held ? 100000 : 0; /* long before its time-out */
        }
        world_advance(world, WORLD_MS);
    }
    CHECK(held && state_of(world).steps_stored == 1);
    world_close(world);
}

static void situation_too_large(void) {
    struct writing writing;
    int status;
    struct world *world = large_world(100, &writing, &status);
    CHECK(status == -RP_BAD_PIECE, "writer: %d", status);
    world_close(world);
}

/* 7. Given queued updates of what cannot be, with every ticket taken, and after CLOSE. Expect
 *    each to say why; where a ticket is lacking 0, as where room is. */
static void situation_queue_refused(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(7, &options);
    static const uint64_t key = 1;
    static const double good = 1, bad = -1;
    uint64_t later = world_later(world, 60000);
    int tickets[64], count = 0;
    CHECK(rp_client_update_queue(world->client, ROWS, 1, &key, &bad, 1, later)
          == -RP_BAD_PRIORITY);
    CHECK(rp_client_update_queue(world->client, ROWS, 1, &key, &good, 0, later)
          == -RP_BAD_ARGUMENT);
    while ((tickets[count] = rp_client_ping(world->client, later)) > 0) {
        count++;
    }
    CHECK((uint32_t)count == options.requests_max && tickets[count] == -RP_FULL);
    CHECK(rp_client_update_queue(world->client, ROWS, 1, &key, &good, 1, later) == 0);
    CHECK(!rp_client_update_busy(world->client) && queued(world).posted == 0);
    while (count-- > 0) {
        CHECK(world_wait(world, tickets[count]) == 0);
    }
    CHECK(world_wait(world, rp_client_close(world->client, later)) == 0);
    CHECK(rp_client_update_queue(world->client, ROWS, 1, &key, &good, 1, later) == -RP_CLOSED);
    world_close(world);
    check_group("7 queued updates that are refused");
}

/* 8. Given options beyond their bounds, and at them. Expect the former refused in words, by both
 *    calls that take them; the latter taken. */
static void situation_options(void) {
    static const struct rp_client_options wrong[] = {
        {.mtu = RP_MTU_MIN - 8},          {.mtu = RP_MTU_MAX + 8},
        {.mtu = RP_MTU_MIN + 4},          {.requests_max = 1025},
        {.messages_max = 32769},          {.batch_max = RP_BATCH_MAX + 1},
        {.tables_max = RP_TABLES_MAX + 1}, {.retry_us_max = 60000001},
        {.retry_us_min = 5001, .retry_us_max = 5000},
    }, right[] = {
        {.mtu = RP_MTU_MIN},          {.mtu = RP_MTU_MAX},           {.requests_max = 1024},
        {.batch_max = RP_BATCH_MAX},  {.tables_max = RP_TABLES_MAX}, {.retry_us_max = 60000000},
        {.retry_us_min = 5000, .retry_us_max = 5000},
    };
    static const struct rp_peer server = {.size = 4};
    static uint64_t memory[8] __attribute__((aligned(64)));
    struct rp_client *client;
    char error[256];
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        error[0] = 0;
        CHECK(rp_client_bytes(&wrong[i], error) == 0 && error[0] != 0, "case %u", i);
        error[0] = 0;
        CHECK(rp_client_open(&client, memory, sizeof memory, &wrong[i], &server, 1, error)
              == -RP_BAD_ARGUMENT && error[0] != 0, "case %u", i);
    }
    for (uint32_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        CHECK(rp_client_bytes(&right[i], error) > 0, "case %u: %s", i, error);
        error[0] = 0;
        CHECK(rp_client_open(&client, memory, sizeof memory, &right[i], &server, 1, error)
              == -RP_BAD_ARGUMENT && error[0] != 0, "a block that is too small");
    }
    struct rp_client_options none = {.mtu = WORLD_MTU};
    struct world *world = fresh(8, &none);
    uint32_t tickets = 0;
    CHECK(rp_client_update_room(world->client) == 4 * 4096, "of the largest batch by default");
    world->deaf = 1;
    while (rp_client_ping(world->client, world_later(world, 5000)) > 0) {
        tickets++;
    }
    CHECK(tickets == 64, "%u requests by default", tickets);
    world_close(world);
    check_group("8 options at their bounds and beyond, and none");
}

/* 9. Given memory of any content. Expect a client that works: keys posted twice are one. */
static void situation_memory(uint32_t content) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(9, &options);
    char error[256];
    size_t bytes = rp_client_bytes(&options, error);
    CHECK(bytes % 4 == 0);
    for (size_t i = 0; i < bytes / 4; i++) {
        memcpy(world->memory + 4 * i, &content, 4);
    }
    CHECK(rp_client_open(&world->client, world->memory, bytes, &options,
                         &world->ports[0].base.address, world->now_ns, error) == 0, "%s", error);
    world->ports[1].received = 0;
    world_connect(world);
    struct writing writing;
    writing_open(world, &writing);
    CHECK(push(world, &writing, 4, RP_RUN_ITEM) == 4);
    world_run(world, 50 * WORLD_MS);
    CHECK(state_of(world).items_created == 4);
    uint64_t keys[6];
    double priorities[6] = {1, 2, 3, 4, 5, 6};
    struct rp_updated updated;
    for (uint32_t i = 0; i < 6; i++) {
        keys[i] = writing.info.capacity + i % 4;
    }
    int ticket = rp_client_update(world->client, ROWS, writing.info.epoch, keys, priorities, 6,
                                  &updated, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0 && updated.applied == 4);
    CHECK(updated.stale == 0 && updated.unknown == 0);
    world_close(world);
}

/* 10. Given an mtu of 512 and of 65504 bytes, and no number of messages. Expect memory that hardly
 *     differs: as many messages of the one as of the other are not laid out, nor runs of each. */
static void situation_default_memory(void) {
    char error[256];
    struct rp_client_options options = {.mtu = RP_MTU_MIN};
    size_t least = rp_client_bytes(&options, error);
    options.mtu = RP_MTU_MAX;
    size_t most = rp_client_bytes(&options, error);
    CHECK(least > 0 && most > least && most - least < (size_t)2 << 20, "%zu and %zu", least, most);
    check_group("10 memory by default, whatever the mtu");
}

/* 11. Given queued updates of which some were answered when the server restarted. Expect those as
 *     they were answered, and the others as of an epoch that is gone. */
static void situation_answered_in_part(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(11, &options);
    struct client_ticket ticket = {.status = -RP_SERVER_RESTARTED};
    struct rp_update_state state;
    ticket.of.update.count = 10;
    ticket.of.update.sum = (struct rp_updated){.applied = 1, .stale = 2, .unknown = 3};
    world->client->updates.queued_open = 1;
    rp_client_update_reaped(world->client, &ticket);
    rp_client_update_state(world->client, &state);
    CHECK(state.finished == 10 && state.applied == 1 && state.unknown == 3 && state.failed == 0);
    CHECK(state.stale == 6 && state.status == 0 && !rp_client_update_busy(world->client));
    world_close(world);
    check_group("11 queued updates that were answered in part");
}

/* 13. Given writers of two tables, and more streams for the first one. Expect each writer's streams
 *     in a place of their own. */
static void situation_streams_apart(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(13, &options);
    const struct client_writer *writers = world->client->writers;
    CHECK(rp_client_writer_reserve(world->client, 0, 3) == 0);
    CHECK(rp_client_writer_reserve(world->client, 1, 4) == 0);
    CHECK(rp_client_writer_reserve(world->client, 0, 5) == 0);
    CHECK(writers[0].table == 0 && writers[0].stream_room == 5 && writers[1].stream_room == 4);
    CHECK(writers[0].streams >= writers[1].streams + 4 && world->client->streams_used == 12);
    world_close(world);
    check_group("13 streams of two writers");
}

/* 12. Given as many updates posted as their stamps count. Expect the next one to find no place of
 *     an older one taken, and none to look like that of one to come. */
static void situation_stamps_over(void) {
    struct rp_client_options options = world_options();
    struct world *world = fresh(12, &options);
    struct writing writing;
    writing_open(world, &writing);
    CHECK(push(world, &writing, 1, RP_RUN_ITEM) == 1);
    world_run(world, 50 * WORLD_MS);
    struct client_updates *updates = &world->client->updates;
    const uint64_t key = writing.info.capacity;
    const double priority = 1;
    struct rp_updated updated;
    updates->stamp = UINT32_MAX;
    int ticket = rp_client_update(world->client, ROWS, writing.info.epoch, &key, &priority, 1,
                                  &updated, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0 && updated.applied == 1);
    for (uint32_t i = 0; i < updates->seen_places; i++) {
        CHECK(updates->seen[i].stamp <= updates->stamp, "place %u", i);
    }
    CHECK(updates->stamp == 1);
    world_close(world);
    check_group("12 the stamps of updates begin again");
}

int main(void) {
    situation_silent(0);
    situation_silent(1);
    situation_silent(40);
    check_group("1 steps not acknowledged");
    situation_end();
    check_group("2 an end that was not taken");
    situation_limited();
    check_group("3 blocked is seen");
    situation_queued();
    check_group("4 queued updates");
    situation_large(0, 0);
    situation_large(0, 20 * WORLD_MS);
    situation_large(150, 0);
    situation_too_large();
    check_group("5 steps of many pieces");
    situation_overtaken();
    check_group("6 an answer overtaken by the others of its step");
    situation_queue_refused();
    situation_options();
    situation_memory(0);
    situation_memory(1);
    situation_memory(UINT32_MAX);
    check_group("9 memory of any content");
    situation_default_memory();
    situation_answered_in_part();
    situation_streams_apart();
    situation_stamps_over();
    return check_done("test_client_bounds");
}
