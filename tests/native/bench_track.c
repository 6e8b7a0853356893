/* bench_track.c: what the server and the tree do, for `make bench-track`: see bench_track.h. */
#include "bench_requests.h"
#include "bench_track.h"
#include "base/power.h"
#include "base/sum_tree.h"

enum { CAPACITY = 1 << 15, WINDOW = 1 << 11, TURNS = 16, TARGETS = 512 };

/* ---- the server: a turn takes `burst` requests, whose making is not counted ---- */

static void turn_of(uint32_t burst, void (*prepare)(void)) {
    uint64_t sent = port.sent;
    while (port.in_count < burst) {
        prepare();
    }
    counted(requests_turn);
    CHECK(port.sent - sent >= burst, "not every request was answered");
}

static void put_run(void) { put_runs(1, 24, 0); }
static void put_single(void) { put_runs(1, 1, 0); }
static void put_extend(void) { put_runs(STREAMS, 1, 0); }
static void put_creates(void) { put_runs(1, 16, 16); }
static void put_sample_32(void) { put_sample(32); }
static void put_sample_512(void) { put_sample(512); }

/* The newest batch's datagrams again, one a request. */
static void put_pull(void) {
    struct rp_pull pull = {.batch = next_id[RP_OP_SAMPLE], .first = port.in_count, .count = 1};
    put(RP_OP_PULL, &pull, sizeof pull);
}

static void push_run(void) { turn_of(8, put_run); }
static void push_single(void) { turn_of(8, put_single); }
static void push_single_alone(void) { turn_of(1, put_single); }
static void push_extend(void) { turn_of(8, put_extend); }
static void create(void) { turn_of(8, put_creates); }
static void sample_32(void) { turn_of(4, put_sample_32); }
static void sample_512(void) { turn_of(4, put_sample_512); }
static void pull(void) { turn_of(8, put_pull); }
static void update(void) { turn_of(8, put_update); }
static void ping(void) { turn_of(8, put_ping); }

static void server_open(void) {
    requests_open(CAPACITY, WINDOW, 512);
    put_update();
    requests_turn();
    put_sample_512();
    requests_turn();
}

/* ---- the tree ---- */

static struct {
    struct rp_tree tree;
    struct rp_power power;
    uint64_t leaf[CAPACITY] __attribute__((aligned(64)));
    uint64_t targets[TARGETS];
    uint32_t slots[TARGETS];
    double priorities[TARGETS];
} part;

static void tree_open(void) {
    struct rp_random random;
    rp_random_seed(&random, 1);
    CHECK(rp_power_exponent(0.6, &part.power) == 0);
    for (uint32_t i = 0; i < CAPACITY; i++) {
        part.leaf[i] = 1 + rp_random_below(&random, 1 << 30);
    }
    void *nodes = bench_memory(rp_tree_bytes(CAPACITY) + 64);
    rp_tree_open(&part.tree, part.leaf, nodes, CAPACITY);
    for (uint32_t i = 0; i < TARGETS; i++) {
        part.targets[i] = rp_random_below(&random, part.tree.total);
        part.slots[i] = (uint32_t)rp_random_below(&random, CAPACITY);
        part.priorities[i] = 1e-3 * (double)(1 + rp_random_below(&random, 1 << 20));
    }
}

static void draw_all(void) {
    uint32_t answers[TARGETS];
    rp_tree_draw(&part.tree, part.targets, answers, TARGETS);
}

static void refresh_all(void) {
    rp_tree_refresh(&part.tree, part.slots, TARGETS);
}

static void power_all(void) {
    uint64_t mass[TARGETS], saturated = 0;
    rp_power_masses(&part.power, part.priorities, mass, TARGETS, rp_tree_mass_max(CAPACITY),
                    &saturated);
}

static void draw(void) { counted(draw_all); }
static void tree_refresh(void) { counted(refresh_all); }
static void power(void) { counted(power_all); }

/* ---- the rows ---- */

static const struct row rows[] = {
    {"push_run", server_open, push_run, TURNS, 8 * 24},
    {"push_single", server_open, push_single, TURNS, 8},
    {"push_single_alone", server_open, push_single_alone, TURNS, 1},
    {"push_extend", server_open, push_extend, TURNS, 8 * STREAMS},
    {"create", server_open, create, TURNS, 8 * 16},
    {"sample_32", server_open, sample_32, TURNS, 4},
    {"sample_512", server_open, sample_512, TURNS, 4},
    {"pull", server_open, pull, TURNS, 8},
    {"update", server_open, update, TURNS, 8 * KEYS},
    {"ping", server_open, ping, TURNS, 8},
    {"draw", tree_open, draw, TURNS, TARGETS},
    {"tree_refresh", tree_open, tree_refresh, TURNS, TARGETS},
    {"power", tree_open, power, TURNS, TARGETS},
};

int main(int count, char **arguments) {
    return track_main(rows, sizeof rows / sizeof rows[0], count, arguments);
}
