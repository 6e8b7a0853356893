/* bench_track_client.c: the client's operations for `make bench-track`: see bench_track.h.
 *
 * A real server answers, whose turns lie outside of measured(); datagrams change hands in memory.
 */
#include "bench_track.h"
#include "client/client.h"
#include "script.h"

enum { TIMES = 64, QUEUE = 256, STEPS = 8 };

struct track_port { /* what one end sends lies ready for the other, without a copy */
    struct rp_port_base base;
    struct track_port *other;
    struct rp_packet queue[QUEUE];
    uint32_t count, lent, leased, next;
    uint8_t *buffers; /* QUEUE of them, used in turn */
};

static uint32_t track_rx(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct track_port *port = (void *)opaque;
    count = port->count < count ? port->count : count;
    memcpy(packets, port->queue, count * sizeof *packets);
    port->lent = count;
    return count;
}

static void track_release(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct track_port *port = (void *)opaque;
    (void)packets;
    memmove(port->queue, port->queue + count, (port->count - count) * sizeof *port->queue);
    port->count -= count;
}

static uint32_t track_lease(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct track_port *port = (void *)opaque;
    for (uint32_t i = 0; i < count; i++) {
        size_t at = (size_t)((port->next + i) % QUEUE) * port->base.mtu;
        packets[i] = (struct rp_packet){.data = port->buffers + at, .capacity = port->base.mtu};
    }
    return count;
}

static void track_send(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct track_port *port = (void *)opaque;
    for (uint32_t i = 0; i < count; i++) {
        if (packets[i].size > 0) {
            CHECK(port->other->count < QUEUE / 2);
            packets[i].peer = port->base.address;
            port->other->queue[port->other->count++] = packets[i];
        }
    }
    port->next = (port->next + count) % QUEUE;
}

static const struct rp_transport track_transport = {.name = "track",
                                                    .rx_burst = track_rx,
                                                    .rx_release = track_release,
                                                    .tx_lease = track_lease,
                                                    .tx_send = track_send};

static struct track_port ports[2]; /* server, client */
static struct script script;
static struct rp_client *client;
static struct rp_table_info info;
static uint64_t now_ns = 1000000000000ull;

static void client_turn(void) {
    rp_client_turn(client, (struct rp_port *)&ports[1], now_ns);
}

static void turn(void) {
    counted(client_turn);
    rp_server_turn(script.server, (struct rp_port *)&ports[0], now_ns);
    now_ns += 10000;
}

static void wait_for(int ticket) {
    CHECK(ticket > 0, "%d", ticket);
    while (rp_client_poll(client, ticket) == RP_PENDING) {
        turn();
    }
    CHECK(rp_client_poll(client, ticket) == 0, "%d", rp_client_poll(client, ticket));
    rp_client_take(client, ticket);
}

static void connect_client(void) {
    static struct rp_table_config tables[2];
    static struct rp_server_config config;
    struct rp_writer_granted granted;
    char error[256];
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    tables[1].capacity = 1 << 15;
    tables[1].window = 1 << 10;
    config = script_config(tables);
    config.batch_max = 512;
    script_open(&script, &config);
    for (uint32_t i = 0; i < 2; i++) {
        ports[i].base = (struct rp_port_base){
            .transport = &track_transport, .mtu = 1400, .receive_budget = 64};
        ports[i].base.address = (struct rp_peer){4, {(uint8_t)(i + 1)}};
        ports[i].other = &ports[1 - i];
        ports[i].buffers = aligned_alloc(64, QUEUE * 1408);
    }
    struct rp_client_options options = {.mtu = 1400, .receive_budget = 64, .nonce = 3};
    size_t bytes = (rp_client_bytes(&options, error) + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    CHECK(memory, "no memory");
    memset(memory, 0, bytes);
    CHECK(rp_client_open(&client, memory, bytes, &options, &ports[0].base.address, now_ns,
                         error) == 0, "%s", error);
    while (rp_client_state(client) != 1) {
        turn();
    }
    wait_for(rp_client_table(client, "rows", &info, now_ns + 1000000000));
    wait_for(rp_client_writer(client, &info, 1, &granted, now_ns + 1000000000));
}

/* ---- the rows ---- */

static int ticket;
static uint32_t batch;

static void post_steps(void) {
    static const uint64_t step[2] = {1, 2};
    for (uint32_t k = 0; k < STEPS; k++) {
        CHECK(rp_client_push(client, info.number, 0, (const uint8_t *)step, 1, RP_RUN_ITEM, NULL)
              == 1);
    }
}

static void push(void) {
    counted(post_steps);
    turn();
}

static void post_block(void) {
    static const uint64_t steps[32][2];
    CHECK(rp_client_push(client, info.number, 0, (const uint8_t *)steps, 32, RP_RUN_ITEM, NULL)
          == 32);
}

static void push_block(void) {
    counted(post_block);
    turn();
}

static void post_sample(void) {
    static uint64_t values[512], rewards[512], keys[512], masses[512], totals[512], ages[512];
    static uint16_t behind[512], ahead[512];
    static uint32_t drawables[512];
    static uint8_t valid[512];
    static struct rp_landing_column columns[2] = {{(uint8_t *)values, 8, 0, 8},
                                                  {(uint8_t *)rewards, 8, 8, 8}};
    static struct rp_landing landing;
    landing = (struct rp_landing){columns, 2, info.item_bytes[0], keys, masses, behind, ahead,
                                  totals, drawables, ages, valid};
    struct rp_sample request = {.count = batch};
    ticket = rp_client_sample(client, info.number, &request, NULL, &landing, now_ns + 1000000000);
}

static void sample(void) {
    counted(post_sample);
    wait_for(ticket);
}

static void post_update(void) {
    static uint64_t keys[64];
    static double priorities[64];
    for (uint32_t i = 0; i < 64; i++) {
        keys[i] = info.capacity + i;
        priorities[i] = 1.0 + i;
    }
    ticket = rp_client_update(client, info.number, info.epoch, keys, priorities, 64, NULL,
                              now_ns + 1000000000);
}

static void update(void) {
    counted(post_update);
    wait_for(ticket);
}

static void sample_32(void) {
    batch = 32;
    sample();
}

static void sample_512(void) {
    batch = 512;
    sample();
}

static void client_open(void) {
    connect_client();
    for (uint32_t i = 0; i < 600; i++) { /* something to draw */
        push_block();
    }
}

static const struct row rows[] = {
    {"client_push", client_open, push, TIMES, STEPS},
    {"client_push_block", client_open, push_block, TIMES, 32},
    {"client_land_32", client_open, sample_32, TIMES, 1},
    {"client_land_512", client_open, sample_512, TIMES, 1},
    {"client_update", client_open, update, TIMES, 64},
};

int main(int count, char **arguments) {
    return track_main(rows, sizeof rows / sizeof rows[0], count, arguments);
}
