/* What the client itself costs: one SAMPLE at a time, and steps pushed one by one, against a real
 * server whose turns are left out of the count; datagrams change hands in memory. Prints ns per
 * batch and per step, best of several rounds. */
#include <time.h>

#include "client.h"
#include "script.h"

enum { ROUNDS = 7, TIMES = 2000, QUEUE = 256 };

struct bench_port { /* what one end sends lies ready for the other, without a copy */
    struct rp_port_base base;
    struct bench_port *other;
    struct rp_packet queue[QUEUE];
    uint32_t count, lent, leased, next;
    uint8_t *buffers; /* QUEUE of them, used in turn */
};

static uint32_t bench_rx(struct rp_port *opaque, struct rp_packet *packets, uint32_t count)
{
    struct bench_port *port = (void *)opaque;
    count = port->count < count ? port->count : count;
    memcpy(packets, port->queue, count * sizeof *packets);
    port->lent = count;
    return count;
}

static void bench_release(struct rp_port *opaque, struct rp_packet *packets, uint32_t count)
{
    struct bench_port *port = (void *)opaque;
    (void)packets;
    memmove(port->queue, port->queue + count, (port->count - count) * sizeof *port->queue);
    port->count -= count;
}

static uint32_t bench_lease(struct rp_port *opaque, struct rp_packet *packets, uint32_t count)
{
    struct bench_port *port = (void *)opaque;
    for (uint32_t i = 0; i < count; i++) {
        packets[i] = (struct rp_packet){
            .data = port->buffers + (size_t)((port->next + i) % QUEUE) * port->base.mtu,
            .capacity = port->base.mtu};
    }
    return count;
}

static void bench_send(struct rp_port *opaque, struct rp_packet *packets, uint32_t count)
{
    struct bench_port *port = (void *)opaque;
    for (uint32_t i = 0; i < count; i++) {
        if (packets[i].size > 0) {
            CHECK(port->other->count < QUEUE / 2);
            packets[i].peer = port->base.address;
            port->other->queue[port->other->count++] = packets[i];
        }
    }
    port->next = (port->next + count) % QUEUE;
}

static const struct rp_transport bench_transport = {.name = "bench",
                                                    .rx_burst = bench_rx,
                                                    .rx_release = bench_release,
                                                    .tx_lease = bench_lease,
                                                    .tx_send = bench_send};

static struct bench_port ports[2]; /* server, client */
static struct script script;
static struct rp_client *client;
static uint64_t now_ns = 1000000000000ull;
static uint64_t client_ns; /* spent in the client since it was set to 0 */

static uint64_t clock_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static void turn(void)
{
    uint64_t before = clock_ns();
    rp_client_turn(client, (struct rp_port *)&ports[1], now_ns);
    client_ns += clock_ns() - before;
    rp_server_turn(script.server, (struct rp_port *)&ports[0], now_ns);
    now_ns += 10000;
}

static void wait_for(int ticket)
{
    CHECK(ticket > 0, "%d", ticket);
    while (rp_client_poll(client, ticket) == RP_PENDING) {
        turn();
    }
    CHECK(rp_client_poll(client, ticket) == 0, "%d", rp_client_poll(client, ticket));
    rp_client_take(client, ticket);
}

static void connect_client(void)
{
    static struct rp_table_config tables[2];
    static struct rp_server_config config;
    char error[256];
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    tables[1].capacity = 1 << 16;
    tables[1].window = 1 << 10;
    config = script_config(tables);
    script_open(&script, &config);
    for (uint32_t i = 0; i < 2; i++) {
        ports[i].base = (struct rp_port_base){
            .transport = &bench_transport, .mtu = 1400, .receive_budget = 64};
        ports[i].base.address = (struct rp_peer){4, {(uint8_t)(i + 1)}};
        ports[i].other = &ports[1 - i];
        ports[i].buffers = aligned_alloc(64, QUEUE * 1400);
    }
    struct rp_client_options options = {
        .mtu = 1400, .receive_budget = 64, .nonce = 3, .unacknowledged_max = 1 << 20};
    size_t bytes = rp_client_bytes(&options, error);
    printf("  client memory at its defaults: %.1f MiB\n", (double)bytes / (1 << 20));
    CHECK(rp_client_open(&client, aligned_alloc(64, bytes), bytes, &options,
                         &ports[0].base.address, now_ns, error) == 0, "%s", error);
    while (rp_client_state(client) != 1) {
        turn();
    }
}

static void bench_push(const struct rp_table_info *info)
{
    uint64_t best = UINT64_MAX, step[2] = {1, 2};
    struct rp_push_state state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        client_ns = 0;
        for (uint32_t i = 0; i < TIMES; i++) {
            uint64_t before = clock_ns();
            for (uint32_t k = 0; k < 8; k++) {
                CHECK(rp_client_push(client, info->number, 0, (const uint8_t *)step, 1, RP_RUN_ITEM,
                                     NULL) == 1);
            }
            client_ns += clock_ns() - before;
            turn();
        }
        best = client_ns < best ? client_ns : best;
    }
    do {
        rp_client_flush(client, info->number);
        turn();
        rp_client_push_state(client, info->number, &state);
    } while (state.messages_open > 0);
    CHECK(state.steps_stored == 8ull * ROUNDS * TIMES);
    printf("  push: %.0f ns a step of 16 bytes, posted one by one\n", (double)best / TIMES / 8);
}

static void bench_sample(const struct rp_table_info *info, uint32_t count)
{
    static uint64_t values[64], rewards[64], keys[64], masses[64], totals[64], ages[64];
    static uint16_t behind[64], ahead[64];
    static uint32_t drawables[64];
    static uint8_t valid[64];
    struct rp_landing_column columns[2] = {{(uint8_t *)values, 8, 0, 8},
                                           {(uint8_t *)rewards, 8, 8, 8}};
    struct rp_landing landing = {columns, 2, info->item_bytes[0], keys, masses, behind, ahead,
                                 totals, drawables, ages, valid};
    struct rp_sample request = {.count = count};
    uint64_t best = UINT64_MAX;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        client_ns = 0;
        for (uint32_t i = 0; i < TIMES; i++) {
            uint64_t before = clock_ns();
            int ticket = rp_client_sample(client, info->number, &request, NULL, &landing,
                                          now_ns + 1000000000);
            client_ns += clock_ns() - before;
            wait_for(ticket);
        }
        best = client_ns < best ? client_ns : best;
    }
    printf("  sample of %u items of 16 bytes: %.0f ns, three clock readings in it\n", count,
           (double)best / TIMES);
}

int main(void)
{
    struct rp_table_info info;
    struct rp_writer_granted granted;
    connect_client();
    wait_for(rp_client_table(client, "rows", &info, now_ns + 1000000000));
    wait_for(rp_client_writer(client, &info, 1, &granted, now_ns + 1000000000));
    bench_push(&info);
    bench_sample(&info, 1);
    bench_sample(&info, 32);
    bench_sample(&info, 64);
    return check_done("bench_client");
}
