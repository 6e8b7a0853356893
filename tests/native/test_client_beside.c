/* A queue's draws beside other draws of the same client: what was drawn once is not lost, however
 * many others there are, and holds none of them up while it waits.
 *
 * A step is 16 bytes, and datagrams are small, so that batches fill the pull window.
 */
#include "client_world.h"

enum { ITEM = 16, BATCH = 60, SLOTS = 16, MAIN = 0, QUEUE = 1 };

struct beside {
    uint32_t plain;   /* draws of another table, under way all the time */
    uint32_t count;   /* items of each */
    uint32_t budget;  /* datagrams that the client takes at once */
    uint32_t records; /* of the server, a session */
    uint64_t delay_us;
    uint32_t lose; /* of a thousand datagrams */
    uint32_t late; /* of a thousand, overtaken by others */
};

static struct rp_table_config tables[SLOTS], two[2];
static struct rp_table_info infos[SLOTS];
static uint8_t bytes[SLOTS][BATCH * ITEM], rows[BATCH * ITEM];
static struct rp_landing_column columns[SLOTS];
static struct rp_server_config config;

static void queue(struct rp_table_config *table) {
    table->alpha = 0;
    table->fifo = 1;
    table->error_max = 64;
}

static struct world *opened(uint32_t count, uint32_t records, uint32_t budget) {
    config = script_config(tables);
    config.table_count = count;
    config.records = records;
    struct world *world = world_open(&config, 1);
    struct rp_client_options options = world_options();
    options.requests_max = 64;
    options.messages_max = 128;
    options.tables_max = SLOTS;
    options.mtu = 512;
    options.receive_budget = budget;
    world_client(world, &options);
    world_connect(world);
    for (uint16_t i = 0; i < count; i++) {
        struct rp_client *client = world->client;
        struct rp_writer_granted granted;
        uint64_t deadline = world_later(world, 5000);
        CHECK(world_wait(world, rp_client_table_number(client, i, &infos[i], deadline)) == 0);
        CHECK(world_wait(world, rp_client_writer(client, &infos[i], 1, &granted, deadline)) == 0);
    }
    return world;
}

static int post(struct world *world, uint16_t table, uint32_t slot, uint32_t count) {
    columns[slot] = (struct rp_landing_column){bytes[slot], ITEM, 0, ITEM};
    struct rp_sample request = {.count = count};
    struct rp_landing landing = {.columns = &columns[slot], .column_count = 1, .item_bytes = ITEM,
                                 .consumes = tables[table].fifo};
    return rp_client_sample(world->client, table, &request, NULL, &landing,
                            world_later(world, 600000));
}

/* How many of `left` rows were taken. */
static uint32_t push(struct world *world, uint16_t table, uint32_t left) {
    int taken = left ? rp_client_push(world->client, table, 0, rows, left, RP_RUN_ITEM, NULL) : 0;
    rp_client_flush(world->client, table);
    return taken > 0 ? (uint32_t)taken : 0;
}

static uint64_t sampled(struct world *world, uint16_t table) {
    struct rp_table_info info;
    rp_table_info(&world->server->tables[table], &info);
    return info.sampled;
}

/* Takes a plain draw that has ended, and asks for the next. */
static void go_on(struct world *world, int *ticket, uint32_t slot, uint32_t count) {
    int status = *ticket ? rp_client_poll(world->client, *ticket) : RP_OK;
    if (status == RP_PENDING) {
        return;
    }
    CHECK(status == RP_OK, "%d", status);
    if (*ticket) {
        rp_client_take(world->client, *ticket);
    }
    *ticket = post(world, MAIN, slot, count);
}

/* 1. Given draws of a queue that wait for their items, one after the other, beside draws of a plain
 *    table that fill the pull window, or all but one of the records, over a network that loses and
 *    reorders. Expect every item of the queue to come. */
static void situation_beside(struct beside beside) {
    script_tables(tables);
    tables[MAIN].plan_count = 1; /* steps are items */
    queue(&tables[QUEUE]);
    struct world *world = opened(2, beside.records, beside.budget);
    int tickets[SLOTS] = {0};
    uint32_t draws = (uint32_t)check_rounds(200);
    CHECK(push(world, MAIN, 32) == 32);
    world_run(world, 100 * WORLD_MS);
    world->delay_ns = beside.delay_us * 1000;
    world->lose = beside.lose;
    world->late = beside.late;
    for (uint32_t done = 0; done < draws; done++) {
        int ticket = post(world, QUEUE, beside.plain, BATCH);
        uint64_t wait_ns = world->now_ns + 3 * world->delay_ns + WORLD_MS;
        uint32_t left = BATCH;
        while (rp_client_poll(world->client, ticket) == RP_PENDING) {
            for (uint32_t i = 0; i < beside.plain; i++) {
                go_on(world, &tickets[i], i, beside.count);
            }
            if (world->now_ns > wait_ns) {
                left -= push(world, QUEUE, left);
            }
            world_step(world, WORLD_MS);
        }
        int status = rp_client_poll(world->client, ticket);
        CHECK(status == RP_OK, "draw %u: %d; %u plain, records %u, %u of a thousand lost", done,
              status, beside.plain, beside.records, beside.lose);
        rp_client_take(world->client, ticket);
    }
    CHECK(sampled(world, QUEUE) == (uint64_t)draws * BATCH);
    CHECK(sampled(world, MAIN) > beside.plain, "the others go on meanwhile");
    world_close(world);
}

static void plain_table(uint32_t table, const char *name) {
    tables[table] = two[MAIN];
    tables[table].plan_count = 1;
    snprintf((char *)tables[table].name, RP_NAME_BYTES, "%s", name);
}

static void queues_and_a_table(uint32_t count) {
    script_tables(two);
    plain_table(MAIN, "main");
    for (uint32_t i = 1; i <= count; i++) {
        tables[i] = two[1];
        snprintf((char *)tables[i].name, RP_NAME_BYTES, "q%u", i);
        queue(&tables[i]);
    }
}

/* 2. Given many more queues at which a draw waits than the server has records. Expect draws of a
 *    plain table to go on meanwhile, each within a few round trips, and every batch as all queues
 *    get their items at once. */
static void situation_queues(uint32_t records) {
    enum { QUEUES = 12 };
    queues_and_a_table(QUEUES);
    struct world *world = opened(QUEUES + 1, records, 2);
    int tickets[SLOTS];
    CHECK(push(world, MAIN, 32) == 32);
    world_run(world, 100 * WORLD_MS);
    for (uint16_t i = 1; i <= QUEUES; i++) {
        tickets[i] = post(world, i, i, BATCH);
    }
    world_run(world, 100 * WORLD_MS);
    for (int draw = 0; draw < 100; draw++) { /* the ids of those that wait fall far behind */
        uint64_t begin_ns = world->now_ns;
        CHECK(world_wait(world, post(world, MAIN, 0, 4)) == RP_OK);
        CHECK(world->now_ns - begin_ns < 20 * WORLD_MS, "draw %d: %u ms", draw,
              (unsigned)((world->now_ns - begin_ns) / WORLD_MS));
    }
    uint32_t left[SLOTS];
    for (uint32_t i = 0; i < SLOTS; i++) {
        left[i] = BATCH;
    }
    for (int round = 0; round < 1000; round++) {
        for (uint16_t i = 1; i <= QUEUES; i++) {
            left[i] -= push(world, i, left[i]);
        }
        world_run(world, WORLD_MS / 10);
    }
    for (uint16_t i = 1; i <= QUEUES; i++) {
        int status = world_wait(world, tickets[i]);
        CHECK(status == RP_OK && sampled(world, i) == BATCH, "queue %u, records %u: %d", i,
              records, status);
    }
    uint64_t most_ns = 100 * WORLD_MS, begin_ns = world->now_ns;
    CHECK(world_wait(world, post(world, MAIN, 0, 4)) == RP_OK);
    CHECK(world->now_ns - begin_ns < most_ns, "its places are free");
    world_close(world);
}

/* 3. Given a draw of a queue that waits without a place until the one before it is given up, then
 *    gets the place and is drawn, its batch lost; and more draws of another table than there are
 *    records. Expect all to get their batches. */
static void situation_lost_batch(void) {
    enum { OTHERS = 12 };
    script_tables(tables);
    tables[MAIN].plan_count = 1;
    queue(&tables[QUEUE]);
    struct world *world = opened(2, 4, 64);
    int others[OTHERS];
    CHECK(push(world, MAIN, 32) == 32 && push(world, QUEUE, 4) == 4);
    world_run(world, 100 * WORLD_MS);
    int first = post(world, QUEUE, 14, 16);
    world_run(world, 20 * WORLD_MS);
    int second = post(world, QUEUE, 15, 4);
    world_run(world, 20 * WORLD_MS);
    rp_client_take(world->client, first);
    world_client_turn(world);
    for (uint32_t i = 0; i < OTHERS; i++) {
        others[i] = post(world, MAIN, i, 8);
    }
    while (sampled(world, QUEUE) == 0) {
        world_turn(world);
        world_advance(world, WORLD_MS / 100);
    }
    struct world_port *port = &world->ports[1];
    for (uint32_t i = 0; i < port->count; i++) {
        const struct rp_message *message = world_message(&port->queue[i]);
        if (message->op == (RP_OP_SAMPLE | RP_ANSWER) && message->table == QUEUE) {
            free(port->queue[i].data);
            port->queue[i--] = port->queue[--port->count];
        }
    }
    CHECK(world_wait(world, second) == RP_OK && sampled(world, QUEUE) == 4);
    for (uint32_t i = 0; i < OTHERS; i++) {
        CHECK(world_wait(world, others[i]) == RP_OK);
    }
    world_close(world);
    check_group("3 a batch that is lost on its way comes, whatever is drawn beside it");
}

/* 5. Given draws that wait at a queue and at an empty table, and a network that was cut for a
 *    while. Expect draws of another table to go on behind that. */
static void situation_cut(uint32_t queued, uint32_t plain) {
    queues_and_a_table(2);
    plain_table(2, "empty");
    struct world *world = opened(3, 8, 64);
    CHECK(push(world, MAIN, 32) == 32);
    world_run(world, 100 * WORLD_MS);
    for (uint32_t i = 0; i < queued; i++) {
        CHECK(post(world, QUEUE, i, BATCH) > 0);
    }
    for (uint32_t i = 0; i < plain; i++) {
        CHECK(post(world, 2, queued + i, 4) > 0);
    }
    world_run(world, 1000 * WORLD_MS);
    world->lose = 1000;
    world_run(world, 1000 * WORLD_MS);
    world->lose = 0;
    world_run(world, 5000 * WORLD_MS);
    CHECK(world_wait(world, post(world, MAIN, 15, 4)) == RP_OK, "%u at a queue, %u not", queued,
          plain);
    world_close(world);
}

/* 4. Given twelve draws at once, of a plain table and of three queues, for as long as they take,
 *    over a network of any kind. Expect each to end with its batch, and so every item that a queue
 *    drew, each once. */
static void situation_walk(uint64_t seed, uint32_t records, uint32_t lose, uint32_t late) {
    enum { TABLES = 4, AT_ONCE = 12 };
    queues_and_a_table(TABLES - 1);
    struct world *world = opened(TABLES, records, 64);
    struct rp_random random;
    int tickets[AT_ONCE] = {0};
    uint16_t of[AT_ONCE] = {0};
    uint32_t counts[AT_ONCE] = {0};
    uint64_t received[TABLES] = {0}, end = check_rounds(20000);
    rp_random_seed(&random, seed);
    CHECK(push(world, MAIN, 32) == 32);
    world_run(world, 100 * WORLD_MS);
    world->delay_ns = 100000;
    for (uint64_t round = 0, open = 1; round < end || open > 0; round++) {
        CHECK(round < 4 * end + 100000, "a draw that never ends");
        world->lose = round < end ? lose : 0;
        world->late = round < end ? late : 0;
        open = 0;
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            int status = tickets[i] ? rp_client_poll(world->client, tickets[i]) : -1;
            if (tickets[i] && status != RP_PENDING) {
                received[of[i]] += counts[i];
                CHECK(status == RP_OK, "%d", status);
                rp_client_take(world->client, tickets[i]);
                tickets[i] = 0;
            }
            if (tickets[i] == 0 && round < end && rp_random_below(&random, 4) == 0) {
                of[i] = (uint16_t)rp_random_below(&random, TABLES);
                counts[i] = 1 + (uint32_t)rp_random_below(&random, 20);
                tickets[i] = post(world, of[i], i, counts[i]);
                CHECK(tickets[i] > 0);
            }
            open += tickets[i] != 0;
        }
        if (rp_random_below(&random, 6) == 0) {
            (void)push(world, 1 + (uint16_t)rp_random_below(&random, TABLES - 1),
                       1 + (uint32_t)rp_random_below(&random, 20));
        }
        world_step(world, rp_random_below(&random, 4) ? WORLD_MS / 10 : 2 * WORLD_MS);
    }
    for (uint16_t i = 1; i < TABLES; i++) {
        CHECK(received[i] == sampled(world, i), "seed %u, records %u: queue %u: %u of %u",
              (unsigned)seed, records, i, (unsigned)received[i], (unsigned)sampled(world, i));
    }
    world_close(world);
}

/* 6. Given two records, and a draw that waits at each of two empty tables; then one of a queue
 *    that has its items. Expect it drawn at once: what waits has no record yet. */
static void situation_crowd(void) {
    queues_and_a_table(3);
    plain_table(2, "empty");
    plain_table(3, "too");
    struct world *world = opened(4, 2, 64);
    CHECK(push(world, QUEUE, 4) == 4);
    world_run(world, 100 * WORLD_MS);
    int first = post(world, 2, 0, 4), second = post(world, 3, 1, 4);
    world_run(world, 1000 * WORLD_MS);
    CHECK(world_wait(world, post(world, QUEUE, 2, 4)) == RP_OK && sampled(world, QUEUE) == 4);
    CHECK(push(world, 2, 8) == 8);
    CHECK(world_wait(world, first) == RP_OK && rp_client_poll(world->client, second) == RP_PENDING);
    world_close(world);
    check_group("6 what waits takes no record");
}

int main(void) {
    situation_beside((struct beside){5, 32, 8, 8, 300, 0, 0});
    situation_beside((struct beside){6, 32, 8, 8, 10, 0, 0});
    situation_beside((struct beside){4, 4, 2, 8, 300, 0, 0});
    situation_beside((struct beside){7, 4, 64, 8, 100, 50, 0});
    situation_beside((struct beside){7, 4, 64, 8, 10, 50, 500});
    situation_beside((struct beside){3, 4, 64, 4, 100, 50, 500});
    situation_beside((struct beside){1, 4, 64, 1, 100, 0, 0});
    check_group("1 beside draws of another table");
    situation_queues(8);
    situation_queues(3);
    situation_queues(1);
    check_group("2 at as many queues as may be");
    situation_lost_batch();
    situation_walk(1, 8, 0, 0);
    situation_walk(2, 4, 30, 0);
    situation_walk(3, 8, 100, 300);
    situation_walk(4, 2, 50, 100);
    situation_walk(5, 1, 0, 300);
    check_group("4 many draws at once, of several queues");
    situation_cut(1, 6);
    situation_cut(6, 1);
    situation_cut(1, 3);
    check_group("5 a cut network holds nobody back for long");
    situation_crowd();
    return check_done("test_client_beside");
}
