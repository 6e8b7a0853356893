/* client_world.h: a real server, a client, and a small network between them that may lose, repeat
 * and delay datagrams; for the test_client programs.
 *
 * Time is the world's own: world_run() gives both ends turns and lets the clock jump to whatever is
 * due next. Chance comes from one seed. Every turn of the client is followed by rp_client_check.
 */
#ifndef RP_CLIENT_WORLD_H
#define RP_CLIENT_WORLD_H

#include "client/client.h"
#include "base/random.h"
#include "script.h"

enum { WORLD_MTU = 1400, WORLD_QUEUE = 4096, WORLD_STEPS = 64 };
#define WORLD_MS ((uint64_t)1000000)

struct world;

struct world_datagram {
    uint8_t *data;
    uint32_t size;
    uint64_t due_ns;
    struct rp_peer from;
};

struct world_port {
    struct rp_port_base base;
    struct world *world;
    struct world_port *other;
    struct world_datagram queue[WORLD_QUEUE]; /* on their way here */
    uint32_t count;
    struct world_datagram lent[RP_BURST];
    uint32_t lent_count;
    uint8_t *send;
    uint32_t leased;
    uint64_t sent;
    uint64_t received;
};

struct world {
    struct rp_server *server;
    struct rp_client *client;
    uint8_t *region, *memory;
    size_t region_bytes;
    struct world_port ports[2]; /* server, client */
    struct rp_random random;
    uint64_t now_ns;
    uint32_t lose, repeat, late; /* of a thousand */
    uint64_t delay_ns; /* of every datagram, beside the 20 us of this network */
    int deaf; /* 1: the server gets no turns */
    uint32_t queues; /* of the server's card: multiples of it land on its own; 0: one queue */
    int names_port;  /* 1: the card's hash is known */
    int stuck;       /* 1: the client cannot move */
    int full;        /* 1: there are no packets to send in */
};

static inline uint32_t world_dice(struct world *world, uint32_t permille) {
    return rp_random_below(&world->random, 1000) < permille;
}

/* What a card with several queues does: the world's one server is the shard asked for and the one
 * it was not meant for. */
static void world_misdirect(struct world_port *port, struct rp_packet *packet) {
    struct world *world = port->world;
    uint8_t at = packet->peer.bytes[0];
    if (port == &world->ports[0] && world->queues && at % world->queues) {
        packet->misdirected = 1;
        packet->use_port =
            (uint16_t)(world->names_port ? at - at % world->queues + world->queues : 0);
    }
}

static int world_rebind(struct rp_port *opaque, uint16_t local) {
    struct world_port *port = (void *)opaque;
    CHECK(port->leased == 0 && port->lent_count == 0, "between bursts");
    if (port->world->stuck) {
        return -RP_SYSTEM;
    }
    memset(port->base.address.bytes, local ? local : port->base.address.bytes[0] + 1, 4);
    return 0;
}

static uint32_t world_rx(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct world_port *port = (void *)opaque;
    uint32_t lent = 0, kept = 0;
    for (uint32_t i = 0; i < port->count; i++) {
        struct world_datagram *datagram = &port->queue[i];
        if (lent == count || datagram->due_ns > port->world->now_ns) {
            port->queue[kept++] = *datagram;
            continue;
        }
        port->lent[lent] = *datagram;
        packets[lent] = (struct rp_packet){
            .data = datagram->data, .size = datagram->size, .peer = datagram->from};
        world_misdirect(port, &packets[lent]);
        lent++;
    }
    port->count = kept;
    port->lent_count = lent;
    port->received += lent;
    return lent;
}

static void world_release(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct world_port *port = (void *)opaque;
    (void)packets;
    CHECK(count == port->lent_count);
    for (uint32_t i = 0; i < count; i++) {
        free(port->lent[i].data);
    }
    port->lent_count = 0;
}

static uint32_t world_lease(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct world_port *port = (void *)opaque;
    CHECK(port->leased == 0 && count <= RP_BURST);
    count = port->world->full ? 0 : count;
    for (uint32_t i = 0; i < count; i++) {
        packets[i] = (struct rp_packet){.data = port->send + (size_t)i * port->base.mtu,
                                        .capacity = port->base.mtu};
    }
    port->leased = count;
    return count;
}

static void world_put(struct world_port *from, const struct rp_packet *packet) {
    struct world *world = from->world;
    struct world_port *to = from->other;
    uint32_t late = world_dice(world, world->late);
    uint64_t late_ns = late ? rp_random_below(&world->random, 3 * WORLD_MS) : 0;
    if (world_dice(world, world->lose) || to->count == WORLD_QUEUE) {
        return;
    }
    uint8_t *data = malloc(packet->size);
    memcpy(data, packet->data, packet->size);
    to->queue[to->count++] = (struct world_datagram){data, packet->size,
                                                     world->now_ns + 20000 + world->delay_ns
                                                         + late_ns,
                                                     from->base.address};
}

static void world_send(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct world_port *port = (void *)opaque;
    CHECK(count == port->leased);
    port->leased = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (packets[i].size > 0) {
            port->sent++;
            world_put(port, &packets[i]);
            if (world_dice(port->world, port->world->repeat)) {
                world_put(port, &packets[i]);
            }
        }
    }
}

static uint32_t world_facts(struct rp_port *port, struct rp_fact *facts) {
    uint32_t count = 0;
    (void)port;
    while (count < RP_FACTS_MAX) {
        rp_fact_add(facts, &count, RP_FACT_OUT, "fact", "", count + 1);
    }
    return count;
}

/* Addresses of 100 and more are other hosts'. */
static uint64_t world_host(struct rp_port *port, const struct rp_peer *peer) {
    (void)port;
    return peer->bytes[0] >= 100 ? peer->bytes[0] : 0;
}

static const struct rp_transport world_transport = {.name = "world",
                                                    .rx_burst = world_rx,
                                                    .rx_release = world_release,
                                                    .tx_lease = world_lease,
                                                    .tx_send = world_send,
                                                    .facts = world_facts,
                                                    .host = world_host,
                                                    .rebind = world_rebind};

static void world_port_open(struct world *world, uint32_t index, uint32_t mtu, uint32_t budget) {
    struct world_port *port = &world->ports[index];
    port->base = (struct rp_port_base){
        .transport = &world_transport, .mtu = mtu, .receive_budget = budget};
    port->base.address.size = 4;
    memset(port->base.address.bytes, (int)index + 1, 4);
    port->world = world;
    port->other = &world->ports[1 - index];
    port->send = aligned_alloc(8, (size_t)RP_BURST * mtu);
}

SCRIPT_UNUSED static void world_server(struct world *world, const struct rp_server_config *config,
                                       uint8_t salt) {
    char error[256];
    uint8_t entropy[32];
    free(world->region);
    script_entropy(entropy, salt);
    world->region_bytes = rp_server_bytes(config, error);
    CHECK(world->region_bytes > 0, "%s", error);
    world->region = aligned_alloc(64, (world->region_bytes + 63) / 64 * 64);
    memset(world->region, 0, world->region_bytes);
    CHECK(rp_server_create(&world->server, world->region, world->region_bytes, config, entropy,
                           world->now_ns, error) == 0, "%s", error);
}

SCRIPT_UNUSED static void world_client(struct world *world,
                                       const struct rp_client_options *options) {
    char error[256];
    size_t bytes = rp_client_bytes(options, error);
    CHECK(bytes > 0, "%s", error);
    free(world->memory);
    world->memory = aligned_alloc(64, bytes);
    memset(world->memory, 0xA5, bytes);
    CHECK(rp_client_open(&world->client, world->memory, bytes, options,
                         &world->ports[0].base.address, world->now_ns, error) == 0, "%s", error);
}

/* The script's server, with no limiter on its table of rows. */
SCRIPT_UNUSED static struct rp_server_config world_config(struct rp_table_config tables[2]) {
    script_tables(tables);
    tables[1].samples_per_insert = 0;
    return script_config(tables);
}

SCRIPT_UNUSED static struct rp_client_options world_options(void) {
    return (struct rp_client_options){.mtu = WORLD_MTU, .receive_budget = 64, .requests_max = 16,
                                      .messages_max = 32, .batch_max = 256, .tables_max = 2,
                                      .retry_us_min = 2000, .retry_us_max = 100000, .nonce = 99,
                                      .seed = 5};
}

SCRIPT_UNUSED static struct world *world_open(const struct rp_server_config *config,
                                              uint64_t seed) {
    struct world *world = calloc(1, sizeof *world);
    struct rp_client_options options = world_options();
    rp_random_seed(&world->random, seed);
    world->now_ns = 1000000000000ull;
    world_port_open(world, 0, config->mtu, config->receive_budget);
    world_port_open(world, 1, WORLD_MTU, 64);
    world_server(world, config, 1);
    world_client(world, &options);
    return world;
}

SCRIPT_UNUSED static void world_close(struct world *world) {
    CHECK(rp_client_counters(world->client)[RP_COUNT_datagrams_in] == world->ports[1].received,
          "each datagram that came is counted as one");
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < world->ports[i].count; k++) {
            free(world->ports[i].queue[k].data);
        }
        free(world->ports[i].send);
    }
    free(world->region);
    free(world->memory);
    free(world);
}

/* ---- datagrams on their way ---- */

SCRIPT_UNUSED static struct rp_message *world_message(const struct world_datagram *datagram) {
    return (void *)(datagram->data + sizeof(struct rp_outer));
}

/* The first one with this operation, counted from `from`, on its way to a port; null: none. */
SCRIPT_UNUSED static struct world_datagram *world_find(struct world_port *port, uint8_t op,
                                                       uint32_t from) {
    for (uint32_t i = from; i < port->count; i++) {
        if (world_message(&port->queue[i])->op == op) {
            return &port->queue[i];
        }
    }
    return NULL;
}

/* How many of this operation are on their way to the server. */
SCRIPT_UNUSED static uint32_t world_asked(const struct world *world, uint8_t op) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < world->ports[0].count; i++) {
        count += world_message(&world->ports[0].queue[i])->op == op;
    }
    return count;
}

/* Takes the first one of this operation off its way to the server. */
SCRIPT_UNUSED static void world_lose(struct world *world, uint8_t op) {
    struct world_port *port = &world->ports[0];
    struct world_datagram *datagram = world_find(port, op, 0);
    CHECK(datagram != NULL, "no datagram of this kind is under way");
    free(datagram->data);
    memmove(datagram, datagram + 1,
            (size_t)(&port->queue[--port->count] - datagram) * sizeof *datagram);
}

/* Loses whatever is under way, both ways. */
SCRIPT_UNUSED static void world_lose_all(struct world *world) {
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < world->ports[i].count; k++) {
            free(world->ports[i].queue[k].data);
        }
        world->ports[i].count = 0;
    }
}

/* Behind a change: the checksum is made right again. */
SCRIPT_UNUSED static void world_reseal(struct world_datagram *datagram) {
    memset(datagram->data + offsetof(struct rp_outer, tag), 0, 16);
    uint32_t crc = rp_crc32c(0, datagram->data, datagram->size);
    memcpy(datagram->data + offsetof(struct rp_outer, tag), &crc, 4);
}

/* A turn of the client alone: what it sends now lies on its way to the server. */
SCRIPT_UNUSED static void world_client_turn(struct world *world) {
    rp_client_turn(world->client, (struct rp_port *)&world->ports[1], world->now_ns);
    rp_client_check(world->client);
}

/* A partition that outlasts the session: whatever either end sends is lost until the server has
 * given it up. */
SCRIPT_UNUSED static void world_expire(struct world *world, uint64_t idle_ns) {
    uint64_t end = world->now_ns + 2 * idle_ns;
    while (rp_server_sessions(world->server) > 0) {
        CHECK(world->now_ns < end, "the session is still there");
        world_lose_all(world);
        world->now_ns += idle_ns / 50;
        rp_server_turn(world->server, (struct rp_port *)&world->ports[0], world->now_ns);
        world_client_turn(world);
    }
    world_lose_all(world);
}

/* ---- time ---- */

static uint64_t world_next(const struct world *world) {
    uint64_t next = rp_client_deadline(world->client);
    for (uint32_t i = world->deaf ? 1 : 0; i < 2; i++) {
        for (uint32_t k = 0; k < world->ports[i].count; k++) {
            uint64_t due = world->ports[i].queue[k].due_ns;
            next = due < next ? due : next;
        }
    }
    return next;
}

SCRIPT_UNUSED static void world_turn(struct world *world) {
    struct world_port *ports = world->ports;
    if (!world->deaf) {
        rp_server_turn(world->server, (struct rp_port *)&ports[0], world->now_ns);
    }
    rp_client_turn(world->client, (struct rp_port *)&ports[1], world->now_ns);
    rp_client_check(world->client);
}

/* On to what is due next, at most `most_ns` further. */
SCRIPT_UNUSED static void world_advance(struct world *world, uint64_t most_ns) {
    uint64_t next = world_next(world);
    uint64_t most = world->now_ns + most_ns;
    next = next < most ? next : most;
    world->now_ns = next > world->now_ns ? next : world->now_ns + 1000;
}

SCRIPT_UNUSED static void world_step(struct world *world, uint64_t most_ns) {
    world_turn(world);
    world_advance(world, most_ns);
}

SCRIPT_UNUSED static void world_run(struct world *world, uint64_t duration_ns) {
    uint64_t end = world->now_ns + duration_ns;
    while (world->now_ns < end) {
        world_step(world, end - world->now_ns);
    }
}

/* Runs until the ticket has ended, frees it, and returns its status. */
SCRIPT_UNUSED static int world_wait(struct world *world, int ticket) {
    CHECK(ticket > 0, "ticket %d", ticket);
    uint64_t end = world->now_ns + 100000 * WORLD_MS;
    while (world_turn(world), rp_client_poll(world->client, ticket) == RP_PENDING) {
        CHECK(world->now_ns < end, "the ticket never ends");
        world_advance(world, 1000 * WORLD_MS);
    }
    int status = rp_client_poll(world->client, ticket);
    rp_client_take(world->client, ticket);
    return status;
}

SCRIPT_UNUSED static void world_connect(struct world *world) {
    for (uint32_t i = 0; rp_client_state(world->client) == 0; i++) {
        CHECK(i < 10000, "the session never opens");
        world_step(world, 10 * WORLD_MS);
    }
    CHECK(rp_client_state(world->client) == 1, "state %d", rp_client_state(world->client));
}

SCRIPT_UNUSED static uint64_t world_later(const struct world *world, uint64_t ms) {
    return world->now_ns + ms * WORLD_MS;
}

#endif
