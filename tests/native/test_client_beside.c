/* A queue's draws beside other draws of the same client: what was drawn once is not lost to the
 * others' records, however many there are, in whatever order they are served.
 *
 * A step is 16 bytes, and datagrams are small, so that batches fill the pull window.
 */
#include "client_world.h"

enum { ITEM = 16, BATCH = 60, QUEUES = 10, SLOTS = 16, MAIN = 0, QUEUE = 1 };

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
 *    reorders.  *    Expect every item of the queue to come. */
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

/* 2. Given as many queues at which a draw waits as the server keeps records, or more, all of which
 *    get their items at once. Expect every batch. */
static void situation_queues(uint32_t count, uint32_t records) {
    script_tables(two);
    for (uint32_t i = 0; i < count; i++) {
        tables[i] = two[1];
        snprintf((char *)tables[i].name, RP_NAME_BYTES, "q%u", i);
        queue(&tables[i]);
    }
    struct world *world = opened(count, records, 2);
    int tickets[SLOTS];
    uint32_t left[SLOTS];
    for (uint16_t i = 0; i < count; i++) {
        tickets[i] = post(world, i, i, BATCH);
        left[i] = BATCH;
    }
    world_run(world, 100 * WORLD_MS);
    for (int round = 0; round < 1000; round++) {
        for (uint16_t i = 0; i < count; i++) {
            left[i] -= push(world, i, left[i]);
        }
        world_run(world, WORLD_MS / 10);
    }
    for (uint16_t i = 0; i < count; i++) {
        int status = world_wait(world, tickets[i]);
        CHECK(status == RP_OK && sampled(world, i) == BATCH, "queue %u of %u, records %u: %d", i,
              count, records, status);
    }
    world_close(world);
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
    situation_queues(8, 8);
    situation_queues(QUEUES, 8);
    situation_queues(2, 1);
    check_group("2 at more queues than there are records");
    return check_done("test_client_beside");
}
