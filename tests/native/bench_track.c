/* bench_track.c: one operation of the server or of the tree, a fixed number of times, in a steady
 * state, so that two versions of the tree can be compared (`make bench-track`).
 *
 *     bench_track ROW [rounds, default 20]
 *
 * Without a ROW it prints their names. All that counts happens inside measured(), which callgrind
 * is told to collect by its name; the first rounds warm and run outside of it. Prints how many
 * operations a round has, and the nanoseconds of one, round by round. Uses little of what changes
 * between versions: script.h's calls and the wire.
 */
#include "bench.h"
#include "power.h"
#include "script.h"
#include "sum_tree.h"

enum { CAPACITY = 1 << 15, WINDOW = 1 << 11, STEP = 48, TURNS = 16, WARM = 4, STREAMS = 16,
       KEYS = 80, TARGETS = 512 };

/* ---- a port that costs nothing: prepared datagrams in, answers dropped ---- */

struct track_port {
    struct rp_port_base base;
    struct rp_packet in[RP_BURST];
    uint32_t in_count;
    uint8_t *send;
    uint64_t sent;
};

static uint32_t track_rx(struct rp_port *opaque, struct rp_packet *packets, uint32_t count)
{
    struct track_port *port = (void *)opaque;
    count = port->in_count < count ? port->in_count : count;
    memcpy(packets, port->in, count * sizeof *packets);
    port->in_count = 0;
    return count;
}

static void track_release(struct rp_port *opaque, struct rp_packet *packets, uint32_t count)
{
    (void)opaque;
    (void)packets;
    (void)count;
}

static uint32_t track_lease(struct rp_port *opaque, struct rp_packet *packets, uint32_t count)
{
    struct track_port *port = (void *)opaque;
    for (uint32_t i = 0; i < count; i++) {
        packets[i] = (struct rp_packet){.data = port->send + (size_t)i * port->base.mtu,
                                        .capacity = port->base.mtu};
    }
    return count;
}

static void track_send(struct rp_port *opaque, struct rp_packet *packets, uint32_t count)
{
    struct track_port *port = (void *)opaque;
    for (uint32_t i = 0; i < count; i++) {
        port->sent += packets[i].size > 0;
    }
}

static const struct rp_transport track_transport = {.name = "track", .rx_burst = track_rx,
                                                    .rx_release = track_release,
                                                    .tx_lease = track_lease,
                                                    .tx_send = track_send};

/* ---- the server ---- */

static const struct rp_column columns[1] = {{0, STEP, 0}};
static const struct rp_pick picks[1] = {{0, 0}};
static const struct rp_plan plans[1] = {{"plain", picks, 1}};
static struct rp_table_config table = {
    .name = "bench", .capacity = CAPACITY, .step_bytes = STEP, .columns = columns,
    .column_count = 1, .plans = plans, .plan_count = 1, .alpha = 0.6, .writers_max = 1,
    .streams_max = STREAMS, .window = WINDOW, .pieces_max = 1};

static struct script script;
static struct script_client client;
static struct track_port port;
static uint8_t datagrams[RP_BURST][2048] __attribute__((aligned(64)));
static uint64_t next_id[RP_OP_COUNT]; /* ids count by operation, from 1 */
static uint64_t next_sequence;
static uint64_t next_step[STREAMS];

static void put(uint8_t op, const void *body, uint32_t size)
{
    uint8_t *data = datagrams[port.in_count];
    uint32_t padded = (size + 7) & ~7u;
    padded = padded > RP_REQUEST_BODY_MIN ? padded : RP_REQUEST_BODY_MIN;
    CHECK(RP_HEADER_BYTES + padded <= 1400);
    struct rp_message message = {.op = op, .want = 64, .id = ++next_id[op]};
    memset(rp_packet_body(data), 0, padded);
    memcpy(rp_packet_body(data), body, size);
    size = rp_packet_seal(data, &message, padded, client.connection, ++client.packet);
    port.in[port.in_count++] =
        (struct rp_packet){.data = data, .size = size, .peer = client.peer};
}

static void server_turn(void)
{
    rp_server_turn(script.server, (struct rp_port *)&port, script.now_ns += 1000);
}

static void put_runs(uint32_t runs, uint32_t count, uint32_t creates)
{
    static struct script_push push;
    static uint8_t bytes[27 * STEP];
    script_push_begin(&push, rp_table_epoch(rp_server_table(script.server, 0)));
    for (uint32_t i = 0; i < runs; i++) {
        struct rp_run run = {.sequence = next_sequence, .step = next_step[i], .stream = (uint16_t)i,
                             .flags = creates ? 0 : RP_RUN_ITEM, .count = (uint16_t)count,
                             .piece_count = 1, .size = count * STEP};
        script_push_bytes(&push, run, bytes);
        next_sequence += count;
        next_step[i] += count;
    }
    for (uint32_t i = 0; i < creates; i++) {
        script_push_create(&push, 0, next_step[0] - creates + i, 1.0 + i);
    }
    put(RP_OP_PUSH, push.body, push.size);
}

static void put_run(void) { put_runs(1, 24, 0); }
static void put_single(void) { put_runs(1, 1, 0); }
static void put_extend(void) { put_runs(STREAMS, 1, 0); }
static void put_creates(void) { put_runs(1, 16, 16); }

static void put_sample(uint32_t count, uint16_t budget)
{
    struct rp_sample request = {.count = count, .budget = budget};
    put(RP_OP_SAMPLE, &request, sizeof request);
}

static void put_sample_32(void) { put_sample(32, 32); }
static void put_sample_512(void) { put_sample(512, 32); }

/* The newest batch's datagrams again, one a request. */
static void put_pull(void)
{
    struct rp_pull pull = {.batch = next_id[RP_OP_SAMPLE], .first = port.in_count, .count = 1};
    put(RP_OP_PULL, &pull, sizeof pull);
}

static void put_update(void)
{
    static struct {
        struct rp_update update;
        struct rp_update_entry entries[KEYS];
    } body;
    static uint64_t seed;
    seed++;
    body.update = (struct rp_update){
        .epoch = rp_table_epoch(rp_server_table(script.server, 0)), .count = KEYS};
    for (uint32_t i = 0; i < KEYS; i++) {
        uint64_t back = (seed * 7919 + i * 104729) % (CAPACITY / 2);
        body.entries[i] = (struct rp_update_entry){CAPACITY + next_sequence - 1 - back, 1.0 + i};
    }
    put(RP_OP_UPDATE, &body, sizeof body);
}

static void put_ping(void) { put(RP_OP_PING, NULL, 0); }

static void server_open(void)
{
    struct rp_server_config config = script_config(&table);
    config.table_count = 1;
    config.batch_max = 512;
    config.records = 8;
    config.weights_max = 0;
    script_open(&script, &config);
    client = script_client(1);
    script_connect(&script, &client);
    script_writer(&script, &client, 0, STREAMS);
    port.base = (struct rp_port_base){.transport = &track_transport, .mtu = 1400};
    port.send = script.port.send;
    while (next_sequence < 2 * CAPACITY) {
        put_run();
        server_turn();
    }
    CHECK(script_counter(&script, RP_COUNT_steps_committed) == next_sequence);
    put_update();
    server_turn();
    put_sample_512();
    server_turn();
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

static void tree_open(void)
{
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

static void tree_draw(void)
{
    uint32_t answers[TARGETS];
    rp_tree_draw(&part.tree, part.targets, answers, TARGETS);
}

static void tree_refresh(void)
{
    rp_tree_refresh(&part.tree, part.slots, TARGETS);
}

static void powers(void)
{
    uint64_t mass[TARGETS], saturated = 0;
    rp_power_masses(&part.power, part.priorities, mass, TARGETS, rp_tree_mass_max(CAPACITY),
                    &saturated);
}

/* ---- the rows ---- */

static const struct row {
    const char *name;
    void (*open)(void);
    void (*prepare)(void); /* one datagram of a turn; NULL: none */
    void (*work)(void);
    uint32_t burst;
    uint32_t items; /* operations of one datagram, or of the work */
} rows[] = {
    {"push_run", server_open, put_run, server_turn, 8, 24},
    {"push_single", server_open, put_single, server_turn, 8, 1},
    {"push_single_alone", server_open, put_single, server_turn, 1, 1},
    {"push_extend", server_open, put_extend, server_turn, 8, STREAMS},
    {"create", server_open, put_creates, server_turn, 8, 16},
    {"sample_32", server_open, put_sample_32, server_turn, 4, 1},
    {"sample_512", server_open, put_sample_512, server_turn, 4, 1},
    {"pull", server_open, put_pull, server_turn, 8, 1},
    {"update", server_open, put_update, server_turn, 8, KEYS},
    {"ping", server_open, put_ping, server_turn, 8, 1},
    {"draw", tree_open, NULL, tree_draw, 1, TARGETS},
    {"tree_refresh", tree_open, NULL, tree_refresh, 1, TARGETS},
    {"power", tree_open, NULL, powers, 1, TARGETS},
};

/* The one function that callgrind collects. */
__attribute__((noinline)) static void measured(void (*work)(void))
{
    work();
    __asm__ volatile("" ::: "memory");
}

static void run(const struct row *row, uint32_t rounds)
{
    row->open();
    printf("operations\t%u\n", rounds * TURNS * row->burst * row->items);
    uint64_t sent = port.sent;
    for (uint32_t round = 0; round < WARM + rounds; round++) {
        double spent = 0;
        for (uint32_t i = 0; i < TURNS; i++) {
            while (row->prepare && port.in_count < row->burst) {
                row->prepare();
            }
            double start = bench_ns();
            if (round < WARM) {
                row->work();
            } else {
                measured(row->work);
            }
            spent += bench_ns() - start;
        }
        if (round >= WARM) {
            printf("round\t%.3f\n", spent / (TURNS * row->burst * row->items));
        }
    }
    CHECK(row->prepare == NULL || port.sent - sent >= (WARM + rounds) * TURNS * row->burst,
          "not every request was answered");
}

int main(int count, char **arguments)
{
    uint32_t rounds = count > 2 ? (uint32_t)atoi(arguments[2]) : 20;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (count < 2) {
            printf("%s\n", rows[i].name);
        } else if (strcmp(arguments[1], rows[i].name) == 0) {
            run(&rows[i], rounds);
            return 0;
        }
    }
    CHECK(count < 2, "there is no row %s", arguments[1]);
    return 0;
}
