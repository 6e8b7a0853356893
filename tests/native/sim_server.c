/* The simulated server's life: the tables this seed serves, turns that may be the last, and what
 * follows a death.
 *
 * Killed, it is attached again to its region, which is copied to other memory first and the old
 * copy spoiled: a pointer kept across lives would show at once. The attach may be killed, too. Now
 * and then the region is given up and the next server starts empty: then nothing of the old may be
 * seen again.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "sim.h"

static uint32_t below(struct sim_world *world, uint32_t bound) {
    return (uint32_t)rp_random_below(&world->random, bound);
}

void sim_entropy(struct sim_world *world, uint8_t entropy[32]) {
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t word = rp_random_next(&world->random);
        memcpy(entropy + 8 * i, &word, 8);
    }
}

/* ---- the tables of a seed ---- */

static void columns_make(struct sim_world *world, struct sim_table *table) {
    static const uint32_t sizes[] = {1, 13, 40, 200, 900, 3000};
    uint32_t kinds = world->mtu < 1000 ? 6 : 5;
    uint32_t first = sizes[below(world, 3)], second = sizes[below(world, kinds)];
    uint32_t row = sizeof(struct sim_row);
    table->columns[0] = (struct rp_column){0, row, below(world, 2)};
    table->columns[1] = (struct rp_column){row, first, 1};
    table->columns[2] = (struct rp_column){row + first, second, 0};
    table->config.columns = table->columns;
    table->config.column_count = SIM_COLUMNS;
    table->config.step_bytes = (row + first + second + 7) & ~7u;
}

static void pick(struct sim_table *table, uint32_t plan, uint32_t column, int offset) {
    uint32_t at = table->plans[plan].pick_count++;
    CHECK(at < SIM_PICKS_MAX);
    table->picks[plan][at] = (struct rp_pick){(uint16_t)column, (int16_t)offset};
}

/* Plan 0 shows the whole window of the first two columns; plan 1 picks here and there. */
static void plans_make(struct sim_world *world, struct sim_table *table, uint32_t number) {
    table->behind = number == 0 ? 0 : below(world, 4);
    table->ahead = number == 0 ? 0 : 1 + below(world, 4);
    for (uint32_t plan = 0; plan < 2; plan++) {
        table->plans[plan] = (struct rp_plan){.picks = table->picks[plan]};
        memcpy(table->plans[plan].name, plan ? "few" : "all", 4);
    }
    for (uint32_t column = 0; column < 2; column++) {
        for (int offset = -(int)table->behind; offset <= (int)table->ahead; offset++) {
            pick(table, 0, column, offset);
        }
    }
    pick(table, 0, 2, 0);
    pick(table, 1, 0, 0);
    pick(table, 1, 2, (int)table->ahead);
    pick(table, 1, 1, -(int)table->behind);
    table->config.plans = table->plans;
    table->config.plan_count = 2;
}

static void limiter_make(struct sim_world *world, struct rp_table_config *config) {
    config->min_size = 1 + below(world, 20);
    if (sim_chance(&world->random, 500)) {
        static const double rates[] = {0.25, 0.5, 1, 2, 4};
        double rate = rates[below(world, 5)], middle = (double)config->min_size * rate;
        double room = 2 * rate + 20;
        config->samples_per_insert = rate;
        config->error_min = middle - room;
        config->error_max = middle + room;
    }
}

static void table_make(struct sim_world *world, uint32_t number) {
    static const double alphas[] = {0, 0.5, 0.6, 1};
    struct sim_table *table = &world->tables[number];
    struct rp_table_config *config = &table->config;
    memset(table, 0, sizeof *table);
    snprintf(config->name, sizeof config->name, "%s", number ? "windows" : "rows");
    columns_make(world, table);
    plans_make(world, table, number);
    limiter_make(world, config);
    config->alpha = alphas[below(world, 4)];
    CHECK(rp_power_exponent(config->alpha, &table->power) == 0);
    config->writers_max = world->writer_count + 1 + below(world, 2); /* one for the vandal */
    config->streams_max = SIM_STREAMS_MAX;
    config->window = 2 + below(world, below(world, 2) == 0 ? 2 : 8);
    config->pieces_max = 16;
    config->capacity = 16 * config->window * config->writers_max + below(world, 20);
    memcpy(table->spec, "columns of the simulated table", 31);
    config->spec = table->spec;
    config->spec_bytes = sizeof table->spec;
}

void sim_tables_make(struct sim_world *world) {
    static const uint32_t mtus[] = {512, 600, 1400, 4096};
    struct rp_server_config *config = &world->server.config;
    world->mtu = mtus[below(world, 4)];
    for (uint32_t i = 0; i < SIM_TABLES; i++) {
        table_make(world, i);
        world->server.table_configs[i] = world->tables[i].config;
    }
    *config = (struct rp_server_config){.tables = world->server.table_configs,
                                        .table_count = SIM_TABLES,
                                        .batch_max = SIM_BATCH_MAX,
                                        .mtu = world->mtu,
                                        .weights_max = SIM_BLOB_MAX};
    config->sessions_max = 8 + below(world, below(world, 2) == 0 ? 4 : 32);
    config->records = 4 + below(world, 5);
    config->receive_budget = 64 + below(world, 64);
    config->idle_ms = below(world, 2) == 0 ? 1500 : 6000;
    config->lapse_ms = 20 + below(world, 200);
    config->seed = rp_random_next(&world->random);
}

/* ---- life ---- */

static uint8_t *region_get(struct sim_server *server) {
    uint8_t *region = aligned_alloc(64, (server->bytes + 63) & ~(size_t)63);
    CHECK(region != NULL);
    memset(region, 0, server->bytes);
    return region;
}

void sim_rings_note(struct sim_world *world) {
    struct sim_server *server = &world->server;
    for (uint32_t i = 0; i < SIM_TABLES; i++) {
        uint64_t epoch = rp_table_epoch(rp_server_table(server->server, i));
        if (!sim_ring_find(world, epoch)) {
            sim_ring_add(world, i, epoch);
        }
    }
}

static void counters_keep(struct sim_world *world) {
    const uint64_t *counters = rp_server_counters(world->server.server);
    for (uint32_t i = 0; i < RP_COUNTER_COUNT; i++) {
        world->server.counters[i] += counters[i];
    }
}

void sim_server_start(struct sim_world *world) {
    struct sim_server *server = &world->server;
    char error[256] = "";
    uint8_t entropy[32];
    server->bytes = rp_server_bytes(&server->config, error);
    CHECK(server->bytes > 0, "%s", error);
    server->region = region_get(server);
    sim_entropy(world, entropy);
    int status = rp_server_create(&server->server, server->region, server->bytes, &server->config,
                                  entropy, world->now, error);
    CHECK(status == 0, "create: %s (%d)", error, status);
    uint64_t incarnation = rp_server_incarnation(server->server);
    CHECK(incarnation != server->incarnation, "a server that starts empty is a new incarnation");
    server->incarnation = incarnation;
    sim_rings_note(world);
}

void sim_server_stop(struct sim_world *world) {
    counters_keep(world);
    free(world->server.region);
    world->server.region = NULL;
}

static void turn(void *context) {
    struct sim_world *world = context;
    rp_server_turn(world->server.server, sim_port_face(world->server.port), world->now);
}

static void attach(void *context) {
    struct sim_world *world = context;
    struct sim_server *server = &world->server;
    char error[256] = "";
    uint8_t entropy[32];
    sim_entropy(world, entropy);
    int status = rp_server_attach(&server->server, server->region, server->bytes,
                                  &server->config, entropy, world->now, error);
    CHECK(status == 0, "attach: %s (%d)", error, status);
}

/* The memory the next process maps lies elsewhere; what the old one's pointers name is spoiled. */
static void region_move(struct sim_server *server) {
    uint8_t *region = region_get(server);
    memcpy(region, server->region, server->bytes);
    memset(server->region, 0xDD, server->bytes);
    free(server->region);
    server->region = region;
}

/* Stores until the next kill: sometimes at once, sometimes long after. 0 = no kill. */
static uint64_t next_kill(struct sim_world *world) {
    if (world->draining || world->server.kills_left == 0) {
        return 0;
    }
    return 1 + rp_random_below(&world->random, (uint64_t)1 << (2 + below(world, 9)));
}

static void server_died(struct sim_world *world) {
    struct sim_server *server = &world->server;
    server->kills++;
    server->kills_left--;
    sim_port_reset(server->port);
    counters_keep(world);
    if (sim_chance(&world->random, world->restart_permille)) {
        server->restarts++;
        free(server->region);
        sim_server_start(world);
        return;
    }
    region_move(server);
    uint64_t hits = sim_chance(&world->random, 100) ? 1 + below(world, 40) : 0;
    if (!sim_process_run(attach, world, hits)) {
        region_move(server);
        CHECK(sim_process_run(attach, world, 0), "an attach without a kill returns");
    }
    CHECK(rp_server_incarnation(server->server) == server->incarnation,
          "an attach keeps the incarnation");
    sim_rings_note(world); /* it may have ended a reset */
    sim_audit(world);
}

void sim_server_turn(struct sim_world *world) {
    uint64_t hits = sim_chance(&world->random, 20) ? next_kill(world) : 0;
    if (!sim_process_run(turn, world, hits)) {
        server_died(world);
    }
    sim_rings_note(world);
}
