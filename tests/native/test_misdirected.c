/* Two shards on one card, shown over kernel UDP: the card is a few lines here that hand each
 * datagram to the queue its hash picks, as a network card would. Clients that land on the wrong
 * shard are told, move and go on; nobody else can move them. */
#include <arpa/inet.h>
#include <unistd.h>

#include "client/client.h"
#include "drive/clock.h"
#include "dpdk/steer.c"
#include "protocol/flow.h"
#include "script.h"
#include "transport/transport_udp.h"
#include "transport/url.h"

enum { SHARDS = 2, QUEUE_MAX = 256, MTU = 1400, SHARD_OF = RP_PEER_BYTES - 1, PATIENCE_S = 20 };

struct held { /* on a queue: a copy */
    _Alignas(8) uint8_t data[MTU];
    struct rp_packet packet;
};

struct card {
    struct shard {
        struct rp_port_base base; /* the port its engine sees */
        struct card *card;
        struct rp_port *socket;
        struct rp_server *server;
        uint8_t *region;
        struct held queue[QUEUE_MAX];
        uint32_t first, count;
        _Alignas(8) uint8_t send[RP_BURST][MTU];
        uint16_t udp_port;
    } shards[SHARDS];
    struct rp_steer steer;
    int hash_known;
    uint16_t always_named; /* not 0: whatever lands where */
    uint32_t attempt;
};

/* ---- the card ---- */

static void flow_of(struct rp_steer_flow *flow, const struct rp_peer *peer, uint16_t to_port) {
    uint16_t from_port;
    memcpy(&from_port, peer->bytes + 2, 2);
    memcpy(flow->from, peer->bytes + 8, 4);
    memcpy(flow->to, (uint8_t[]){127, 0, 0, 1}, 4);
    flow->from_port = ntohs(from_port);
    flow->to_port = to_port;
}

static void deliver(struct card *card, struct rp_packet *packet, uint16_t to) {
    struct rp_steer_flow flow;
    flow_of(&flow, &packet->peer, card->shards[to].udp_port);
    uint16_t queue = rp_steer_queue(&card->steer, &flow);
    struct shard *shard = &card->shards[queue];
    if (shard->count == QUEUE_MAX) {
        return;
    }
    struct held *held = &shard->queue[(shard->first + shard->count++) % QUEUE_MAX];
    memcpy(held->data, packet->data, packet->size);
    held->packet = (struct rp_packet){
        .data = held->data, .size = packet->size, .peer = packet->peer,
        .misdirected = queue != to};
    held->packet.peer.bytes[SHARD_OF] = (uint8_t)to;
    if (queue != to && card->hash_known) {
        held->packet.use_port = rp_steer_port(&card->steer, &flow, to, card->attempt++);
    }
    if (queue != to && card->always_named) {
        held->packet.use_port = card->always_named;
    }
}

static void card_poll(struct card *card) {
    for (uint16_t to = 0; to < SHARDS; to++) {
        struct rp_packet packets[RP_BURST];
        struct rp_port *socket = card->shards[to].socket;
        uint32_t count = rp_udp_rx_burst(socket, packets, RP_BURST);
        for (uint32_t i = 0; i < count; i++) {
            deliver(card, &packets[i], to);
        }
        rp_udp_rx_release(socket, packets, count);
    }
}

/* ---- the port of a shard ---- */

static uint32_t shard_rx(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct shard *shard = (void *)opaque;
    uint32_t lent = 0;
    card_poll(shard->card);
    for (; lent < count && lent < shard->count; lent++) {
        packets[lent] = shard->queue[(shard->first + lent) % QUEUE_MAX].packet;
    }
    return lent;
}

static void shard_release(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct shard *shard = (void *)opaque;
    (void)packets;
    shard->first += count;
    shard->count -= count;
}

static uint32_t shard_lease(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct shard *shard = (void *)opaque;
    for (uint32_t i = 0; i < count; i++) {
        packets[i] = (struct rp_packet){.data = shard->send[i], .capacity = MTU};
    }
    return count;
}

/* From the address it was sent to, whoever answers. */
static void send_from(struct rp_port *socket, const struct rp_peer *to, const uint8_t *data,
                      uint32_t size) {
    struct rp_packet packet;
    CHECK(rp_udp_tx_lease(socket, &packet, 1) == 1);
    memcpy(packet.data, data, size);
    packet.size = size;
    packet.peer = *to;
    packet.peer.bytes[SHARD_OF] = 0;
    rp_udp_tx_send(socket, &packet, 1);
}

static void shard_send(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct shard *shard = (void *)opaque;
    for (uint32_t i = 0; i < count; i++) {
        if (packets[i].size) {
            uint8_t from = packets[i].peer.bytes[SHARD_OF];
            send_from(shard->card->shards[from].socket, &packets[i].peer, packets[i].data,
                      packets[i].size);
        }
    }
}

static const struct rp_transport shard_transport = {.name = "shard",
                                                    .rx_burst = shard_rx,
                                                    .rx_release = shard_release,
                                                    .tx_lease = shard_lease,
                                                    .tx_send = shard_send};

static void shard_open(struct card *card, uint32_t index, const struct rp_server_config *config) {
    struct shard *shard = &card->shards[index];
    struct rp_port_options options = {.serve = 1, .mtu = MTU};
    struct rp_peer own;
    uint8_t entropy[32];
    uint16_t port;
    char error[256] = "";
    script_entropy(entropy, (uint8_t)(index + 1));
    shard->card = card;
    CHECK(rp_port_open(&shard->socket, "udp://127.0.0.1:0", &options, &own, NULL, error) == 0, "%s",
          error);
    memcpy(&port, own.bytes + 2, 2);
    shard->udp_port = ntohs(port);
    shard->base = (struct rp_port_base){
        .transport = &shard_transport, .mtu = MTU, .receive_budget = config->receive_budget};
    size_t bytes = rp_server_bytes(config, error);
    CHECK(bytes > 0, "%s", error);
    shard->region = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(shard->region, 0, bytes);
    CHECK(rp_server_create(&shard->server, shard->region, bytes, config, entropy, rp_clock_ns(),
                           error) == 0, "%s", error);
}

static struct card *card_open(uint64_t seed) {
    struct rp_table_config tables[2];
    script_tables(tables);
    struct rp_server_config config = script_config(tables);
    struct card *card = calloc(1, sizeof *card);
    struct rp_random random;
    rp_random_seed(&random, seed);
    card->hash_known = 1;
    card->steer.table_size = 128;
    for (uint32_t i = 0; i < RP_STEER_KEY; i++) {
        card->steer.key[i] = (uint8_t)rp_random_next(&random);
    }
    for (uint32_t i = 0; i < card->steer.table_size; i++) {
        card->steer.table[i] = (uint16_t)(i % SHARDS);
    }
    for (uint32_t i = 0; i < SHARDS; i++) {
        shard_open(card, i, &config);
    }
    return card;
}

static void card_close(struct card *card) {
    for (uint32_t i = 0; i < SHARDS; i++) {
        rp_server_check(card->shards[i].server);
        rp_port_close(card->shards[i].socket);
        free(card->shards[i].region);
    }
    free(card);
}

static uint64_t count_of(const struct card *card, uint32_t shard, int counter) {
    return rp_server_counters(card->shards[shard].server)[counter];
}

/* ---- clients over plain UDP sockets ---- */

struct visitor {
    struct rp_client *client;
    struct rp_port *port;
    uint8_t *memory;
    uint32_t shard;
};

static uint16_t local_port(const struct visitor *visitor) {
    uint16_t port;
    memcpy(&port, rp_port_base(visitor->port)->address.bytes + 2, 2);
    return ntohs(port);
}

static uint16_t lands_on(const struct card *card, const struct visitor *visitor) {
    struct rp_steer_flow flow;
    flow_of(&flow, &rp_port_base(visitor->port)->address, card->shards[visitor->shard].udp_port);
    return rp_steer_queue(&card->steer, &flow);
}

/* A client of `shard` whose first port lands there (wrong 0) or on another (1). */
static void visitor_open(struct card *card, struct visitor *visitor, uint32_t shard, int wrong) {
    struct rp_port *tried[64];
    struct rp_port_options options = {.mtu = MTU};
    struct rp_client_options wanted = {.mtu = MTU, .retry_us_min = 20000, .retry_us_max = 200000,
                                       .nonce = 77 + shard, .seed = 5,
                                       .connect_timeout_ns = 1000000000ull * PATIENCE_S};
    struct rp_peer server;
    char url[64], error[256] = "";
    uint32_t tries = 0;
    visitor->shard = shard;
    snprintf(url, sizeof url, "udp://127.0.0.1:%u", card->shards[shard].udp_port);
    do {
        CHECK(tries < 64, "no port lands there");
        CHECK(rp_port_open(&visitor->port, url, &options, &server, NULL, error) == 0, "%s", error);
        tried[tries++] = visitor->port;
    } while ((lands_on(card, visitor) != shard) != wrong);
    while (--tries > 0) { /* kept until now, so that each was another port */
        rp_port_close(tried[tries - 1]);
    }
    size_t bytes = rp_client_bytes(&wanted, error);
    visitor->memory = aligned_alloc(64, bytes);
    CHECK(rp_client_open(&visitor->client, visitor->memory, bytes, &wanted, &server, rp_clock_ns(),
                         error) == 0, "%s", error);
}

static void visitor_close(struct visitor *visitor) {
    rp_client_check(visitor->client);
    rp_port_close(visitor->port);
    free(visitor->memory);
}

static uint64_t told(const struct visitor *visitor, int counter) {
    return rp_client_counters(visitor->client)[counter];
}

static void turn(struct card *card, struct visitor *visitors, uint32_t count) {
    for (uint32_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &card->shards[i];
        rp_server_turn(shard->server, (struct rp_port *)(void *)&shard->base, rp_clock_ns());
    }
    for (uint32_t i = 0; i < count; i++) {
        rp_client_turn(visitors[i].client, visitors[i].port, rp_clock_ns());
    }
}

static void connect_all(struct card *card, struct visitor *visitors, uint32_t count) {
    uint64_t end = rp_clock_ns() + 1000000000ull * PATIENCE_S;
    for (uint32_t open = 0; open < count;) {
        CHECK(rp_clock_ns() < end, "the sessions never open");
        turn(card, visitors, count);
        open = 0;
        for (uint32_t i = 0; i < count; i++) {
            open += rp_client_state(visitors[i].client) != 0;
        }
    }
}

static int wait_for(struct card *card, struct visitor *visitor, int ticket) {
    uint64_t end = rp_clock_ns() + 1000000000ull * PATIENCE_S;
    CHECK(ticket > 0, "ticket %d", ticket);
    while (rp_client_poll(visitor->client, ticket) == RP_PENDING) {
        CHECK(rp_clock_ns() < end, "the ticket never ends");
        turn(card, visitor, 1);
    }
    int status = rp_client_poll(visitor->client, ticket);
    rp_client_take(visitor->client, ticket);
    return status;
}

static int ping(struct card *card, struct visitor *visitor) {
    return wait_for(card, visitor,
                    rp_client_ping(visitor->client,
                                   rp_clock_ns() + 1000000000ull * PATIENCE_S / 2));
}

/* ---- situations ---- */

/* 1. Given four clients, two of each shard, one of them at a port that lands on the other shard.
 *    Expect these to be told once, by the shard they landed on, and all four to have sessions. */
static void situation_told(void) {
    struct card *card = card_open(1);
    struct visitor visitors[4];
    for (uint32_t i = 0; i < 4; i++) {
        visitor_open(card, &visitors[i], i / 2, i % 2);
    }
    connect_all(card, visitors, 4);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK(rp_client_state(visitors[i].client) == 1);
        CHECK(told(&visitors[i], RP_COUNT_rebinds) == i % 2, "moved once, where it had to");
        CHECK(lands_on(card, &visitors[i]) == visitors[i].shard);
        CHECK(ping(card, &visitors[i]) == 0);
    }
    for (uint32_t i = 0; i < SHARDS; i++) {
        CHECK(rp_server_sessions(card->shards[i].server) == 2);
        CHECK(count_of(card, i, RP_COUNT_wrong_queue) == 1);
        CHECK(count_of(card, i, RP_COUNT_unknown_session) == 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        visitor_close(&visitors[i]);
    }
    card_close(card);
    check_group("1 told once, and in");
}

/* 2. Given an open session and a card whose table is turned round. Expect the session to go on. */
static void situation_table_changed(void) {
    struct card *card = card_open(2);
    struct visitor visitor;
    visitor_open(card, &visitor, 0, 0);
    connect_all(card, &visitor, 1);
    uint64_t session = rp_client_session(visitor.client);
    for (uint32_t i = 0; i < card->steer.table_size; i++) {
        card->steer.table[i] = (uint16_t)((i + 1) % SHARDS);
    }
    CHECK(ping(card, &visitor) == 0);
    CHECK(rp_client_session(visitor.client) == session);
    CHECK(told(&visitor, RP_COUNT_rebinds) == 1 && told(&visitor, RP_COUNT_reconnects) == 0);
    CHECK(count_of(card, 0, RP_COUNT_address_changed) == 1);
    visitor_close(&visitor);
    card_close(card);
    check_group("2 a table that changes under a session");
}

/* 3. Given a card whose hash nobody knows. Expect clients to try ports until one lands. */
static void situation_unknown_hash(void) {
    struct card *card = card_open(3);
    struct visitor visitors[8];
    card->hash_known = 0;
    for (uint32_t i = 0; i < 8; i++) {
        visitor_open(card, &visitors[i], i % 2, 1);
    }
    connect_all(card, visitors, 8);
    for (uint32_t i = 0; i < 8; i++) {
        CHECK(rp_client_state(visitors[i].client) == 1);
        CHECK(told(&visitors[i], RP_COUNT_rebinds) >= 1 && lands_on(card, &visitors[i]) == i % 2);
        visitor_close(&visitors[i]);
    }
    card_close(card);
    check_group("3 a hash that nobody knows");
}

static int take_port(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int taken = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(taken >= 0);
    if (bind(taken, (struct sockaddr *)(void *)&address, sizeof address) != 0) {
        close(taken);
        return -1; /* somebody has it: as good */
    }
    return taken;
}

/* 4. Given that the first three ports it is told are taken. Expect it to ask on and be told a
 *    fourth; given that it is always told one that is taken, the typed error, in bounded tries. */
static void situation_port_taken(void) {
    struct card *card = card_open(4);
    struct visitor visitor;
    struct rp_steer_flow flow;
    int taken[3];
    visitor_open(card, &visitor, 1, 1);
    flow_of(&flow, &rp_port_base(visitor.port)->address, card->shards[1].udp_port);
    for (uint32_t i = 0; i < 3; i++) {
        taken[i] = take_port(rp_steer_port(&card->steer, &flow, 1, i));
    }
    connect_all(card, &visitor, 1);
    CHECK(rp_client_state(visitor.client) == 1 && told(&visitor, RP_COUNT_rebinds) == 1);
    CHECK(count_of(card, 0, RP_COUNT_wrong_queue) >= 4);
    visitor_close(&visitor);
    uint16_t named = rp_steer_port(&card->steer, &flow, 1, 0);
    card->always_named = named;
    visitor_open(card, &visitor, 1, 1);
    uint16_t from = local_port(&visitor);
    uint64_t before = count_of(card, 0, RP_COUNT_wrong_queue);
    connect_all(card, &visitor, 1);
    CHECK(rp_client_state(visitor.client) == -RP_WRONG_QUEUE);
    CHECK(count_of(card, 0, RP_COUNT_wrong_queue) - before == 129);
    CHECK(told(&visitor, RP_COUNT_rebinds) == 0 && local_port(&visitor) == from);
    visitor_close(&visitor);
    for (uint32_t i = 0; i < 3; i++) {
        if (taken[i] >= 0) {
            close(taken[i]);
        }
    }
    card_close(card);
    check_group("4 ports that are taken: another is named, and there is an end to it");
}

struct lie {
    const char *what;
    uint64_t connection; /* added to the right one */
    uint32_t packet;
    uint64_t nonce, outer;
    uint16_t reserved;
    int counter;
};

/* A WRONG_QUEUE made up by somebody who can send from the server's address, but saw nothing. */
static void send_lie(struct card *card, const struct visitor *visitor, const struct lie *lie,
                     uint64_t session, uint64_t nonce, uint32_t packet) {
    _Alignas(8) uint8_t data[256];
    struct rp_answer answer = {.status = RP_WRONG_QUEUE, .credit = 1};
    struct rp_refused wrong = {.connection = session + lie->connection,
                               .packet = packet + lie->packet,
                               .reserved = lie->reserved};
    struct rp_message message = {.op = (session ? RP_OP_PING : RP_OP_HELLO) | RP_ANSWER,
                                 .id = nonce + lie->nonce};
    memcpy(data + RP_HEADER_BYTES, &answer, sizeof answer);
    memcpy(data + RP_ANSWER_BYTES, &wrong, sizeof wrong);
    uint32_t size = rp_packet_seal(data, &message, sizeof answer + sizeof wrong, lie->outer, 9);
    send_from(card->shards[visitor->shard].socket, &rp_port_base(visitor->port)->address, data,
              size);
}

static const struct lie lies[] = {
    {"another connection", 1, 0, 0, 0, 0, RP_COUNT_drop_unsolicited},
    {"a datagram not sent yet", 0, 1, 0, 0, 0, RP_COUNT_drop_unsolicited},
    {"a datagram of long ago", 0, 0x80000000, 0, 0, 0, RP_COUNT_drop_unsolicited},
    {"another nonce", 0, 0, 1, 0, 0, RP_COUNT_drop_unsolicited},
    {"under a connection", 0, 0, 0, 5, 0, RP_COUNT_drop_unsolicited},
    {"a reserved field", 0, 0, 0, 0, 1, RP_COUNT_drop_reserved},
};

/* 5. Given lies, before there is a session and in it. Expect each to be dropped and counted, and
 *    the client to stay where it is; the same without a lie moves it. */
static void situation_lies(void) {
    struct card *card = card_open(5);
    struct visitor visitor;
    for (int opened = 0; opened < 2; opened++) {
        visitor_open(card, &visitor, 0, 0);
        uint64_t session = 0, nonce = 77;
        if (opened) {
            connect_all(card, &visitor, 1);
            session = rp_client_session(visitor.client);
        } else {
            rp_client_turn(visitor.client, visitor.port, rp_clock_ns()); /* says HELLO */
        }
        uint16_t from = local_port(&visitor);
        for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
            if (opened && lies[i].nonce) {
                continue; /* the session's number is what is asked for then */
            }
            uint64_t before = told(&visitor, lies[i].counter);
            uint32_t packet = (uint32_t)told(&visitor, RP_COUNT_datagrams_out);
            send_lie(card, &visitor, &lies[i], session, nonce, packet);
            rp_client_turn(visitor.client, visitor.port, rp_clock_ns());
            CHECK(told(&visitor, lies[i].counter) == before + 1, "%s", lies[i].what);
            CHECK(local_port(&visitor) == from && told(&visitor, RP_COUNT_rebinds) == 0);
        }
        uint32_t packet = (uint32_t)told(&visitor, RP_COUNT_datagrams_out);
        for (int i = 0; i < 2; i++) { /* the second is of a datagram sent before it moved */
            send_lie(card, &visitor, &(struct lie){.what = "the truth"}, session, nonce, packet);
            rp_client_turn(visitor.client, visitor.port, rp_clock_ns());
            CHECK(told(&visitor, RP_COUNT_rebinds) == 1 && local_port(&visitor) != from, "%d", i);
        }
        visitor_close(&visitor);
    }
    card_close(card);
    check_group("5 nobody who saw nothing moves a client");
}

int main(void) {
    situation_told();
    situation_table_changed();
    situation_unknown_hash();
    situation_port_taken();
    situation_lies();
    return check_done("test_misdirected");
}
