/* Given draws of a queue with times of all lengths, several at once, beside draws of a plain table
 * and pushes, over a network that loses, repeats and reorders, with a server that at times hears
 * nothing. Expect each item that the server drew to be in one batch, unless its draw ended as one
 * whose items may be lost: no draw that ended as BLOCKED was drawn for.
 *
 * A row says its number, so a batch says which items it has.
 */
#include "client_world.h"

enum { ITEM = 16, BATCH = 12, DRAWS = 4, MAIN = 0, QUEUE = 1, SIZE = 32, NUMBERS = 1 << 16 };

struct draw {
    int ticket; /* 0: none */
    uint16_t table;
    uint32_t count;
    uint8_t bytes[BATCH * ITEM];
    struct rp_landing_column column;
};

struct walk {
    struct world *world;
    struct draw draws[DRAWS];
    uint64_t pushed;           /* rows of the queue */
    uint8_t taken[NUMBERS];    /* by row */
    uint64_t received, doubted; /* items in batches; of draws whose items may be lost */
    uint64_t ended[RP_STATUS_COUNT];
    uint32_t at_once;          /* draws at once, DRAWS at most */
    uint64_t drawn;            /* of one at once: what the server had drawn for those before */
};

static struct walk walk;
static struct rp_table_config tables[2];
static struct rp_server_config config;

static uint64_t roll(uint64_t bound) {
    return rp_random_below(&walk.world->random, bound);
}

static uint64_t sampled(void) {
    struct rp_table_info info;
    rp_table_info(&walk.world->server->tables[QUEUE], &info);
    return info.sampled;
}

static void open_writer(const char *name) {
    struct rp_table_info info;
    struct rp_writer_granted granted;
    uint64_t deadline = world_later(walk.world, 60000);
    CHECK(world_wait(walk.world, rp_client_table(walk.world->client, name, &info, deadline)) == 0);
    CHECK(world_wait(walk.world, rp_client_writer(walk.world->client, &info, 1, &granted, deadline))
          == 0);
}

static void open_walk(uint64_t seed) {
    memset(&walk, 0, sizeof walk);
    script_tables(tables);
    tables[MAIN].plan_count = 1; /* steps are items */
    tables[QUEUE].alpha = 0;
    tables[QUEUE].fifo = 1;
    tables[QUEUE].error_max = SIZE;
    config = script_config(tables);
    walk.world = world_open(&config, seed);
    world_connect(walk.world);
    open_writer("main");
    open_writer("rows");
}

static void push(uint16_t table) {
    uint64_t rows[8][2];
    uint32_t count = 1 + (uint32_t)roll(8);
    for (uint32_t i = 0; i < count; i++) {
        rows[i][0] = rows[i][1] = walk.pushed + i;
    }
    int taken = rp_client_push(walk.world->client, table, 0, (uint8_t *)rows, count, RP_RUN_ITEM,
                               NULL);
    walk.pushed += table == QUEUE && taken > 0 ? (uint64_t)taken : 0;
    rp_client_flush(walk.world->client, table);
}

/* Where there is one draw at once, whatever the server drew since the last look was for it. */
static void account(uint64_t most) {
    uint64_t now = sampled();
    CHECK(walk.at_once > 1 || now - walk.drawn <= most, "%llu drawn, %llu at most",
          (unsigned long long)(now - walk.drawn), (unsigned long long)most);
    walk.drawn = now;
}

/* Also for no time at all, and for less than a round trip. */
static void post(struct draw *draw) {
    static const uint64_t most_us[] = {0, 50, 1000, 20000, 2000000};
    uint64_t time_ns = 1000 * roll(1 + most_us[roll(5)]);
    draw->table = roll(4) ? QUEUE : MAIN;
    draw->count = 1 + (uint32_t)roll(BATCH);
    draw->column = (struct rp_landing_column){draw->bytes, ITEM, 0, ITEM};
    struct rp_sample request = {.count = draw->count};
    struct rp_landing landing = {.columns = &draw->column, .column_count = 1, .item_bytes = ITEM,
                                 .consumes = draw->table == QUEUE};
    uint64_t deadline = time_ns ? walk.world->now_ns + time_ns : 0;
    int ticket = rp_client_sample(walk.world->client, draw->table, &request, NULL, &landing,
                                  deadline);
    draw->ticket = ticket > 0 ? ticket : 0;
}

/* What a draw of the queue ended as. */
static void end(struct draw *draw, int status) {
    walk.ended[-status]++;
    int undrawn = status == -RP_BLOCKED || status == -RP_FULL;
    account(draw->table == QUEUE && !undrawn ? draw->count : 0);
    if (draw->table != QUEUE || undrawn) {
        return;
    }
    if (status != RP_OK) {
        CHECK(status == -RP_FORGOTTEN || status == -RP_TIMEOUT || status == -RP_SESSION_EXPIRED,
              "%s", rp_status_name((enum rp_status)-status));
        walk.doubted += draw->count;
        return;
    }
    for (uint32_t i = 0; i < draw->count; i++) {
        uint64_t number;
        memcpy(&number, draw->bytes + i * ITEM, sizeof number);
        CHECK(number < walk.pushed && !walk.taken[number], "row %llu again",
              (unsigned long long)number);
        walk.taken[number] = 1;
        walk.received++;
    }
}

static void look(void) {
    for (uint32_t i = 0; i < walk.at_once; i++) {
        struct draw *draw = &walk.draws[i];
        int status = draw->ticket ? rp_client_poll(walk.world->client, draw->ticket) : RP_PENDING;
        if (status != RP_PENDING) {
            rp_client_take(walk.world->client, draw->ticket);
            draw->ticket = 0;
            end(draw, status);
        } else if (draw->ticket == 0 && roll(4) == 0) {
            account(0); /* nothing is drawn for those that ended */
            post(draw);
        }
    }
}

static void disturb(uint32_t hard) {
    struct world *world = walk.world;
    world->lose = hard && roll(3) == 0 ? (uint32_t)roll(200) : 0;
    world->repeat = hard ? (uint32_t)roll(100) : 0;
    world->late = hard ? (uint32_t)roll(200) : 0;
    world->delay_ns = roll(3) == 0 ? roll((roll(4) ? 3 : 30) * WORLD_MS) : 0;
    world->deaf = roll(20) == 0;
}

/* Lets all that is under way end, on a network without faults. */
static void settle(void) {
    struct world *world = walk.world;
    world->lose = world->repeat = world->late = 0;
    world->deaf = 0;
    uint64_t end_ns = world_later(world, 60000);
    for (uint32_t left = DRAWS; left > 0; left--) {
        struct draw *draw = &walk.draws[left - 1];
        while (draw->ticket && rp_client_poll(world->client, draw->ticket) == RP_PENDING) {
            CHECK(world->now_ns < end_ns, "a draw that never ends");
            world_step(world, WORLD_MS);
        }
        if (draw->ticket) {
            int status = rp_client_poll(world->client, draw->ticket);
            rp_client_take(world->client, draw->ticket);
            draw->ticket = 0;
            end(draw, status);
        }
    }
    world_run(world, 4000 * WORLD_MS); /* and what nobody asks for any more lapses */
}

static void take_walk(uint64_t seed, uint32_t hard, uint32_t at_once) {
    open_walk(seed);
    walk.at_once = at_once;
    for (int i = 0; i < check_rounds(20000) && walk.pushed < NUMBERS - 8; i++) {
        if (i % 50 == 0) {
            disturb(hard);
        }
        if (roll(walk.at_once > 1 ? 3 : 12) == 0) { /* so that draws have to wait */
            push(roll(4) ? QUEUE : MAIN);
        }
        look();
        world_step(walk.world, roll(4) ? 100000 : 2 * WORLD_MS);
    }
    settle();
    uint64_t lost = sampled() - walk.received;
    CHECK(lost <= walk.doubted, "seed %llu: %llu drawn, %llu received, %llu in doubt",
          (unsigned long long)seed, (unsigned long long)sampled(),
          (unsigned long long)walk.received, (unsigned long long)walk.doubted);
    account(0);
    CHECK(walk.received > 500 && walk.ended[RP_BLOCKED] > 10);
    printf("  seed %llu%s: %llu received, %llu ended as BLOCKED, %llu drawn and lost, %llu told "
           "(%llu FORGOTTEN, %llu TIMEOUT)\n",
           (unsigned long long)seed, hard ? ", faults" : "", (unsigned long long)walk.received,
           (unsigned long long)walk.ended[RP_BLOCKED], (unsigned long long)lost,
           (unsigned long long)walk.doubted, (unsigned long long)walk.ended[RP_FORGOTTEN],
           (unsigned long long)walk.ended[RP_TIMEOUT]);
    world_close(walk.world);
}

int main(void) {
    for (uint64_t seed = 1; seed <= 8; seed++) {
        take_walk(seed, seed % 2, 1 + 3 * (seed % 4 < 2));
    }
    return check_done("test_client_consumes_walk");
}
