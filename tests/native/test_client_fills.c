/* Steps that fill a datagram, or nearly: whichever way a step is posted, it and its item are stored
 * once, with its priority, and read back byte for byte. Situations read "Given ... Expect ...". */
#include "client_world.h"
#include "drive.h"

enum { STEPS = 9, BIG = 1 << 14, MAIN = 0, AROUND = 16 };
enum mode { PLAIN, ENDS, CREATED, ITEMS, PRIORITIES, MODES };

struct given {
    uint32_t mtu, step_bytes;
    enum mode mode;
    double apart; /* 0: no limiter; else its error buffer, in items */
};

static uint8_t rows[STEPS * BIG], back[STEPS * BIG];
static const double priorities[STEPS] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

static void fill_rows(uint32_t step_bytes) {
    for (uint32_t i = 0; i < STEPS * step_bytes; i++) {
        rows[i] = (uint8_t)(i * 11 + i / step_bytes * 37 + (i >> 8));
    }
}

/* A service with one table of such steps, and a link to it whose writer has one stream. */
static struct rp_link *open_link(const struct given *given, struct rp_service **service) {
    char error[RP_ERROR_BYTES], url[64];
    struct drive_table made;
    struct rp_service_options serve = {0};
    struct rp_link_options options = {0};
    drive_config(&made, 4096, given->step_bytes);
    made.columns[0].size = given->step_bytes;
    made.table.column_count = 1;
    made.plan.pick_count = 1;
    made.table.alpha = 1;
    if (given->apart > 0) {
        made.table.samples_per_insert = 1;
        made.table.error_min = -given->apart;
        made.table.error_max = given->apart;
    }
    snprintf(url, sizeof url, "loopback://fills?mtu=%u", given->mtu);
    CHECK(rp_service_open(service, &made.config, url, &serve, error) == 0, "%s", error);
    struct rp_link *link = drive_link("loopback://fills", &options);
    CHECK(rp_link_mtu(link) == given->mtu);
    struct rp_table_info info = drive_info(link);
    drive_writer(link, &info);
    return link;
}

static int sample(struct rp_link *link, const struct given *given, struct rp_sample request,
                  const uint64_t *keys, uint64_t *masses) {
    struct rp_landing_column column = {
        .target = back, .stride = given->step_bytes, .size = given->step_bytes};
    struct rp_landing landing = {.columns = &column, .column_count = 1,
                                 .item_bytes = given->step_bytes, .masses = masses};
    int ticket = rp_link_sample(link, MAIN, &request, keys, &landing, DRIVE_TIMEOUT_NS);
    return drive_wait(link, ticket, NULL);
}

static void push_all(struct rp_link *link, const struct given *given) {
    static const uint32_t flags[MODES] = {[ENDS] = RP_RUN_END, [ITEMS] = RP_RUN_ITEM,
                                          [PRIORITIES] = RP_RUN_ITEM | RP_RUN_PRIORITY};
    uint16_t streams[STEPS] = {0};
    uint64_t numbers[STEPS];
    for (int taken = 0; taken < STEPS;) {
        int got = rp_link_push(link, MAIN, 0, rows + (size_t)taken * given->step_bytes,
                               (uint32_t)(STEPS - taken), flags[given->mode], priorities + taken,
                               RP_SLICE_NS);
        CHECK(got > 0, "push: %d", got);
        taken += got;
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        numbers[i] = i;
    }
    for (int made = 0; given->mode == CREATED && made < STEPS;) {
        int got = rp_link_create(link, MAIN, streams + made, numbers + made, priorities + made,
                                 (uint32_t)(STEPS - made), RP_SLICE_NS);
        CHECK(got > 0, "create: %d", got);
        made += got;
    }
}

/* Until all is answered; draws what the limiter waits for. */
static struct rp_push_state settle(struct rp_link *link, const struct given *given) {
    struct rp_push_state state;
    int status = RP_PENDING;
    while (status == RP_PENDING) {
        status = rp_link_settle(link, MAIN, RP_SLICE_NS / 50);
        rp_link_push_state(link, MAIN, &state);
        struct rp_sample one = {.count = 1, .mode = RP_SAMPLE_STRATIFIED};
        CHECK(!state.blocked || sample(link, given, one, NULL, NULL) == 0);
    }
    CHECK(status == 0, "settle: %s", rp_status_name(status));
    return state;
}

static void check_one(const struct given *given) {
    struct rp_service *service;
    uint64_t keys[STEPS], masses[STEPS];
    struct rp_link *link = open_link(given, &service);
    fill_rows(given->step_bytes);
    push_all(link, given);
    struct rp_push_state state = settle(link, given);
    int items = given->mode >= CREATED ? STEPS : 0;
    CHECK(state.steps_stored == STEPS && (int)state.items_created == items,
          "mtu %u, %u bytes, mode %u: %" PRIu64 " stored, %" PRIu64 " items", given->mtu,
          given->step_bytes, given->mode, state.steps_stored, state.items_created);
    CHECK((int)state.items_posted == items && state.items_failed == 0);
    CHECK(rp_link_keys(link, MAIN, 0, keys, STEPS) == STEPS);
    memset(back, 0, sizeof back);
    struct rp_sample request = {.count = STEPS, .mode = RP_SAMPLE_KEYS};
    CHECK(sample(link, given, request, keys, masses) == 0);
    CHECK(memcmp(back, rows, (size_t)STEPS * given->step_bytes) == 0, "mtu %u, %u bytes, mode %u",
          given->mtu, given->step_bytes, given->mode);
    int own = given->mode == CREATED || given->mode == PRIORITIES;
    for (uint32_t i = 0; own && i < STEPS; i++) {
        double part = (double)masses[i] / (double)masses[0];
        CHECK(part > (i + 1) * 0.999 && part < (i + 1) * 1.001, "priority %u: %f", i, part);
    }
    rp_link_close(link, 0);
    rp_service_close(service);
}

/* 1. Given steps of every size around the largest that one datagram takes, at three mtus, posted
 *    in every way, with a limiter and without. Expect each stored and read back. */
static void situation_around(void) {
    static const uint32_t mtus[] = {512, 1400, 8960};
    for (uint32_t m = 0; m < 3; m++) {
        uint32_t most = 8;
        while (rp_piece_count(most + 8, mtus[m]) == 1) {
            most += 8;
        }
        for (uint32_t size = most - AROUND; size <= most + AROUND; size += 8) {
            for (enum mode mode = PLAIN; mode < MODES; mode++) {
                check_one(&(struct given){mtus[m], size, mode, 0});
                check_one(&(struct given){mtus[m], size, mode, STEPS});
            }
        }
        check_one(&(struct given){mtus[m], most, PRIORITIES, 2});
        check_one(&(struct given){mtus[m], most + 8, PRIORITIES, 2});
    }
    check_group("1 steps that fill a datagram");
}

/* 2. Given such steps as items with priorities, and a network that loses, repeats and delays.
 *    Expect each step stored and each item made, once. */
static void situation_loss(void) {
    enum { MANY = 200, FILLS = 1296 };
    static uint8_t step[FILLS];
    static struct rp_table_config tables[2];
    static struct rp_writer_granted granted;
    struct rp_table_info info;
    script_tables(tables);
    tables[0].step_bytes = FILLS;
    tables[0].plan_count = 1;
    struct rp_server_config config = script_config(tables);
    CHECK(rp_piece_count(FILLS, WORLD_MTU) == 1 && rp_piece_count(FILLS + 8, WORLD_MTU) == 2);
    struct world *world = world_open(&config, 2);
    world_connect(world);
    int ticket = rp_client_table(world->client, "main", &info, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    ticket = rp_client_writer(world->client, &info, 1, &granted, world_later(world, 5000));
    CHECK(world_wait(world, ticket) == 0);
    world->lose = world->repeat = world->late = 100;
    struct rp_push_state state = {0};
    uint64_t end = world_later(world, 60000);
    while (state.steps_posted < MANY || state.messages_open > 0) {
        int some = state.steps_posted < MANY;
        int taken = some ? rp_client_push(world->client, MAIN, 0, step, 1,
                                          RP_RUN_ITEM | RP_RUN_PRIORITY, priorities) : 0;
        CHECK(taken >= 0 && world->now_ns < end, "push: %d", taken);
        world_step(world, WORLD_MS);
        rp_client_push_state(world->client, MAIN, &state);
    }
    CHECK(state.steps_stored == MANY && state.items_posted == MANY && state.status == 0);
    CHECK(state.items_created + state.items_failed == MANY);
    const uint64_t *counters = rp_server_counters(world->server);
    CHECK(counters[RP_COUNT_steps_committed] == MANY);
    CHECK(counters[RP_COUNT_items_created] >= state.items_created && state.items_failed < 8);
    world_close(world);
    check_group("2 the same through a bad network");
}

int main(void) {
    situation_around();
    situation_loss();
    return check_done("test_client_fills");
}
