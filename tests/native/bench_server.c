/* bench_server.c: what the server itself costs: datagrams handed over in memory, no network, one
 * core.
 *
 *     bench_server [bursts of a round, default 100]
 *
 * A burst is one turn's worth of requests of 48-byte steps; making them and the copies of a port
 * are left out of the time.
 */
#include "bench.h"
#include "script.h"

enum { ROUNDS = 40, BURST = 32, CAPACITY = 1 << 17, WINDOW = 1 << 12, STEP = 48 };

/* ---- a port that costs nothing: prepared datagrams in, answers dropped ---- */

struct bench_port {
    struct rp_port_base base;
    struct rp_packet in[RP_BURST];
    uint32_t in_count;
    uint8_t *send;
    uint64_t sent;
    uint64_t sent_bytes;
};

static uint32_t bench_rx(struct rp_port *opaque, struct rp_packet *packets, uint32_t count)
{
    struct bench_port *port = (void *)opaque;
    count = port->in_count < count ? port->in_count : count;
    memcpy(packets, port->in, count * sizeof *packets);
    port->in_count = 0;
    return count;
}

static void bench_release(struct rp_port *opaque, struct rp_packet *packets, uint32_t count)
{
    (void)opaque;
    (void)packets;
    (void)count;
}

static uint32_t bench_lease(struct rp_port *opaque, struct rp_packet *packets, uint32_t count)
{
    struct bench_port *port = (void *)opaque;
    for (uint32_t i = 0; i < count; i++) {
        packets[i].data = port->send + (size_t)i * port->base.mtu;
        packets[i].capacity = port->base.mtu;
        packets[i].size = 0;
    }
    return count;
}

static void bench_send(struct rp_port *opaque, struct rp_packet *packets, uint32_t count)
{
    struct bench_port *port = (void *)opaque;
    for (uint32_t i = 0; i < count; i++) {
        port->sent += packets[i].size > 0;
        port->sent_bytes += packets[i].size;
    }
}

static const struct rp_transport bench_transport = {.name = "bench", .rx_burst = bench_rx,
                                                    .rx_release = bench_release,
                                                    .tx_lease = bench_lease,
                                                    .tx_send = bench_send};

/* ---- the server ---- */

static const struct rp_column columns[1] = {{0, STEP, 0}};
static const struct rp_pick picks[1] = {{0, 0}};
static const struct rp_plan plans[1] = {{"plain", picks, 1}};
static struct rp_table_config table = {
    .name = "bench", .capacity = CAPACITY, .step_bytes = STEP, .columns = columns,
    .column_count = 1, .plans = plans, .plan_count = 1, .alpha = 0.6, .writers_max = 1,
    .streams_max = 1, .window = WINDOW, .pieces_max = 1};

static struct script script;
static struct script_client client;
static struct bench_port port;
static uint8_t datagrams[BURST][2048] __attribute__((aligned(64)));
static uint64_t next_step;

static void put(uint32_t index, uint8_t op, const void *body, uint32_t size)
{
    static uint64_t next_id[RP_OP_COUNT]; /* ids count by operation, from 1 */
    uint8_t *data = datagrams[index];
    uint32_t padded = size > RP_REQUEST_BODY_MIN ? size : RP_REQUEST_BODY_MIN;
    struct rp_message message = {.op = op, .want = 64, .id = ++next_id[op]};
    memset(rp_packet_body(data), 0, padded);
    memcpy(rp_packet_body(data), body, size);
    size = rp_packet_seal(data, &message, padded, client.connection, ++client.packet);
    port.in[index] = (struct rp_packet){.data = data, .size = size, .peer = client.peer};
    port.in_count = index + 1;
}

static void open_all(void)
{
    struct rp_server_config config = script_config(&table);
    config.table_count = 1;
    config.batch_max = 4096;
    config.records = 8;
    config.weights_max = 0;
    script_open(&script, &config);
    client = script_client(1);
    script_connect(&script, &client);
    script_writer(&script, &client, 0, 1);
    port.base = (struct rp_port_base){.transport = &bench_transport, .mtu = 1400};
    port.send = script.port.send;
}

static double turn(void)
{
    double start = bench_ns();
    rp_server_turn(script.server, (struct rp_port *)&port, script.now_ns += 1000);
    return bench_ns() - start;
}

/* ---- what is measured ---- */

static void put_push(uint32_t index)
{
    static struct script_push push;
    static uint8_t bytes[16 * STEP];
    uint16_t count = 16;
    script_push_begin(&push, rp_table_epoch(rp_server_table(script.server, 0)));
    struct rp_run run = {.sequence = next_step, .step = next_step, .flags = RP_RUN_ITEM,
                         .count = count, .piece_count = 1, .size = count * STEP};
    script_push_bytes(&push, run, bytes);
    next_step += count;
    put(index, RP_OP_PUSH, push.body, push.size);
}

/* One run of 27 x 48 bytes with the running maximum: a whole datagram of 1400. */
static void put_run(uint32_t index)
{
    static struct script_push push;
    static uint8_t bytes[27 * STEP];
    script_push_begin(&push, rp_table_epoch(rp_server_table(script.server, 0)));
    struct rp_run run = {.sequence = next_step, .step = next_step, .flags = RP_RUN_ITEM,
                         .count = 27, .piece_count = 1, .size = sizeof bytes};
    script_push_bytes(&push, run, bytes);
    next_step += 27;
    put(index, RP_OP_PUSH, push.body, push.size);
}

static uint32_t sample_count;

static void put_sample(uint32_t index)
{
    struct rp_sample request = {.count = sample_count, .budget = 32};
    put(index, RP_OP_SAMPLE, &request, sizeof request);
}

static void put_ping(uint32_t index)
{
    put(index, RP_OP_PING, NULL, 0);
}

static void put_update(uint32_t index)
{
    static struct {
        struct rp_update update;
        struct rp_update_entry entries[80];
    } body;
    static uint64_t id;
    id++;
    body.update = (struct rp_update){rp_table_epoch(rp_server_table(script.server, 0)), 80, 0};
    for (uint32_t i = 0; i < 80; i++) {
        uint64_t back = (id * 7919 + i * 104729) % (CAPACITY / 2);
        body.entries[i] = (struct rp_update_entry){CAPACITY + next_step - 1 - back, 1.0 + i};
    }
    put(index, RP_OP_UPDATE, &body, sizeof body);
}

/* `items` of a request; the time is that of the turns alone. */
static void measure(const char *name, void (*make)(uint32_t), uint32_t burst, uint32_t turns,
                    uint32_t items)
{
    static struct bench_rounds rounds;
    char workload[64];
    struct bench_row row = {name, "memory", workload, items};
    snprintf(workload, sizeof workload, "48 B steps, bursts of %u", burst);
    rounds.count = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double spent = 0;
        for (uint32_t i = 0; i < turns; i++) {
            for (uint32_t j = 0; j < burst; j++) {
                make(j);
            }
            spent += turn();
        }
        bench_keep(&rounds, (double)turns * burst * items * 1e3 / spent);
    }
    bench_rate(&row, &rounds, "M/s");
}

int main(int count, char **arguments)
{
    uint32_t turns = count > 1 ? (uint32_t)atoi(arguments[1]) : 100;
    CHECK(turns >= 1);
    open_all();
    for (uint32_t i = 0; i < CAPACITY / (16 * BURST) + 8; i++) {
        for (uint32_t j = 0; j < BURST; j++) {
            put_push(j);
        }
        turn();
    }
    CHECK(script_counter(&script, RP_COUNT_steps_committed) == next_step);
    for (uint32_t burst = 1; burst <= BURST; burst += BURST - 1) {
        measure("server_ping", put_ping, burst, turns, 1);
        sample_count = 32;
        measure("server_sample", put_sample, burst, turns, 32);
        sample_count = 512;
        measure("server_sample", put_sample, burst, turns / 4 + 1, 512);
        measure("server_push", put_run, burst, turns, 27);
        measure("server_update", put_update, burst, turns, 80);
    }
    CHECK(script_counter(&script, RP_COUNT_drop_size) == 0);
    CHECK(script_counter(&script, RP_COUNT_samples_forgotten) == 0);
    CHECK(script_counter(&script, RP_COUNT_pushes_repeated) == 0);
    CHECK(port.sent > 0);
    return check_done("bench_server");
}
