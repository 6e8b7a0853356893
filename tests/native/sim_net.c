/* The simulator's network: see sim_net.h. */
#include "sim_net.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "protocol/flow.h"
#include "sim.h"
#include "protocol/status.h"

uint32_t sim_chance(struct rp_random *random, uint32_t permille) {
    return rp_random_below(random, 1000) < permille;
}

static int earlier(const struct sim_datagram *a, const struct sim_datagram *b) {
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void inbox_push(struct sim_port *port, const struct sim_datagram *datagram) {
    uint32_t i = port->inbox_count++;
    while (i > 0 && earlier(datagram, &port->inbox[(i - 1) / 2])) {
        port->inbox[i] = port->inbox[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    port->inbox[i] = *datagram;
}

static struct sim_datagram inbox_pop(struct sim_port *port) {
    struct sim_datagram first = port->inbox[0];
    struct sim_datagram last = port->inbox[--port->inbox_count];
    uint32_t i = 0;
    for (uint32_t child = 1; child < port->inbox_count; child = 2 * i + 1) {
        if (child + 1 < port->inbox_count
            && earlier(&port->inbox[child + 1], &port->inbox[child])) {
            child++;
        }
        if (!earlier(&port->inbox[child], &last)) {
            break;
        }
        port->inbox[i] = port->inbox[child];
        i = child;
    }
    if (port->inbox_count > 0) {
        port->inbox[i] = last;
    }
    return first;
}

static struct rp_peer address(uint32_t number, uint32_t generation) {
    struct rp_peer peer = {.size = 8};
    memcpy(peer.bytes, &number, 4);
    memcpy(peer.bytes + 4, &generation, 4);
    return peer;
}

static struct sim_port *port_at(struct sim_net *net, const struct rp_peer *peer) {
    for (uint32_t i = 0; i < net->port_count; i++) {
        if (net->ports[i] && memcmp(&net->ports[i]->base.address, peer, sizeof *peer) == 0) {
            return net->ports[i];
        }
    }
    return NULL;
}

/* ---- sending ---- */

static void damage(struct sim_net *net, struct sim_datagram *datagram) {
    if (datagram->size == 0) {
        return;
    }
    if (sim_chance(&net->random, net->faults.cut)) {
        datagram->size = (uint32_t)rp_random_below(&net->random, datagram->size);
        net->damaged++;
    } else if (sim_chance(&net->random, net->faults.flip)) {
        uint64_t bit = rp_random_below(&net->random, 8 * (uint64_t)datagram->size);
        datagram->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        net->damaged++;
    }
}

static void deliver(struct sim_net *net, struct sim_port *to, const struct sim_port *from,
                    const uint8_t *data, uint32_t size) {
    if (to->inbox_count == SIM_INBOX_MAX) {
        net->lost++;
        return;
    }
    struct sim_datagram datagram = {
        .order = net->order++, .size = size, .from = from->base.address, .to = to->base.address};
    datagram.at =
        net->now + net->faults.delay_ns + rp_random_below(&net->random, net->faults.delay_ns + 1);
    if (sim_chance(&net->random, net->faults.late)) {
        datagram.at += rp_random_below(&net->random, net->faults.late_ns + 1);
        net->delayed++;
    }
    datagram.data = malloc(size + 8);
    CHECK(datagram.data != NULL);
    memcpy(datagram.data, data, size);
    damage(net, &datagram);
    inbox_push(to, &datagram);
}

void sim_net_send(struct sim_net *net, const struct sim_port *from, const struct rp_peer *to,
                  const uint8_t *data, uint32_t size) {
    struct sim_port *port = port_at(net, to);
    net->sent++;
    if (!port || net->now < from->partitioned_until || net->now < port->partitioned_until
        || sim_chance(&net->random, net->faults.lose)) {
        net->lost++;
        return;
    }
    deliver(net, port, from, data, size);
    if (sim_chance(&net->random, net->faults.repeat)) {
        net->repeated++;
        deliver(net, port, from, data, size);
    }
}

static void digest(struct sim_net *net, const struct rp_packet *packet) {
    uint64_t hash = net->digest ^ packet->size;
    for (uint32_t i = 0; i + 8 <= packet->size; i += 8) {
        uint64_t word;
        memcpy(&word, packet->data + i, 8);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    net->digest = hash;
}

/* ---- an old UPDATE once more ---- */

static const struct rp_outer *outer_of(const uint8_t *data) {
    return (const void *)data;
}

static const struct rp_message *message_of(const uint8_t *data) {
    return (const void *)(data + sizeof(struct rp_outer));
}

static int common_key(const uint8_t *one, const uint8_t *other) {
    const struct rp_update *first = (const void *)(one + RP_HEADER_BYTES);
    const struct rp_update *second = (const void *)(other + RP_HEADER_BYTES);
    const struct rp_update_entry *keys = (const void *)(first + 1);
    const struct rp_update_entry *others = (const void *)(second + 1);
    for (uint32_t i = 0; i < first->count; i++) {
        for (uint32_t j = 0; j < second->count; j++) {
            if (keys[i].key == others[j].key) {
                return 1;
            }
        }
    }
    return 0;
}

/* A client's UPDATE: the one to keep, or one that may make the kept one worth sending again. */
static void update_sent(struct sim_port *port, const struct rp_packet *packet) {
    struct sim_kept *kept = &port->kept;
    const struct rp_message *message = message_of(packet->data);
    const struct rp_message *old = message_of(kept->data);
    if (kept->size == 0 || outer_of(kept->data)->connection != outer_of(packet->data)->connection
        || message->id >= old->id + RP_UPDATE_RECORDS) {
        memcpy(kept->data, packet->data, packet->size);
        *kept = (struct sim_kept){.data = kept->data, .size = packet->size};
    } else if (kept->newer == 0 && message->id > old->id && message->table == old->table
               && common_key(packet->data, kept->data)) {
        kept->newer = message->id;
    }
}

/* The server's answer to an UPDATE that went well. */
static void update_answered(struct sim_net *net, const struct rp_packet *packet) {
    struct sim_port *to = port_at(net, &packet->peer);
    if (to && to->kept.size > 0 && to->kept.newer == message_of(packet->data)->id
        && outer_of(to->kept.data)->connection == outer_of(packet->data)->connection) {
        to->kept.armed = 1;
    }
}

static void updates_note(struct sim_port *port, const struct rp_packet *packet) {
    const struct rp_message *message = message_of(packet->data);
    const struct rp_answer *answer = (const void *)(packet->data + RP_HEADER_BYTES);
    if (message->op == RP_OP_UPDATE) {
        update_sent(port, packet);
    } else if (message->op == (RP_OP_UPDATE | RP_ANSWER) && answer->status == RP_OK) {
        update_answered(port->net, packet);
    }
}

/* Sends the kept UPDATE in this datagram's place, as it was but for the packet number. */
static int sent_again(struct sim_port *port, const struct rp_packet *packet) {
    struct sim_kept *kept = &port->kept;
    const struct rp_outer *outer = outer_of(packet->data);
    if (!kept->armed || outer_of(kept->data)->connection != outer->connection
        || !sim_chance(&port->net->random, port->net->faults.again)) {
        return 0;
    }
    struct rp_message message = *message_of(kept->data);
    rp_packet_seal(kept->data, &message, message.size, outer->connection, outer->packet);
    sim_net_send(port->net, port, &packet->peer, kept->data, kept->size);
    port->net->again++;
    kept->size = 0;
    kept->armed = 0;
    return 1;
}

/* What the engine sends is always whole and valid: only the network damages it. */
static void send_one(struct sim_port *port, const struct rp_packet *packet) {
    struct rp_view view;
    CHECK(packet->size <= port->base.mtu, "%u bytes sent, mtu %u", packet->size, port->base.mtu);
    int status = rp_packet_open(packet->data, packet->size, port->base.mtu, &view);
    CHECK(status == 0, "the engine sent a datagram that does not open: status %d", status);
    digest(port->net, packet);
    port->net->snoop(port->net->context, port, packet);
    if (port->net->faults.again > 0) {
        if (sent_again(port, packet)) {
            return;
        }
        updates_note(port, packet);
    }
    sim_net_send(port->net, port, &packet->peer, packet->data, packet->size);
}

/* ---- the burst interface ---- */

static struct sim_port *port_of(struct rp_port *face) {
    return (struct sim_port *)(void *)face;
}

/* The queue of the server's card that an address is steered to. The first port is the server's. */
static uint32_t queue_of(const struct sim_net *net, const struct rp_peer *from) {
    uint32_t number, generation;
    memcpy(&number, from->bytes, 4);
    memcpy(&generation, from->bytes + 4, 4);
    return net->shards > 1 ? (number * 5 + generation * 7) % net->shards : 0;
}

/* The next datagram that has arrived, in a buffer of exactly its size; 0 if there is none. */
static int receive_one(struct sim_port *port, struct rp_packet *packet) {
    while (port->inbox_count > 0 && port->inbox[0].at <= port->net->now) {
        struct sim_datagram datagram = inbox_pop(port);
        if (memcmp(&datagram.to, &port->base.address, sizeof datagram.to) != 0) {
            free(datagram.data); /* the port has moved meanwhile */
            continue;
        }
        uint8_t *exact = malloc(datagram.size ? datagram.size : 1);
        CHECK(exact != NULL);
        memcpy(exact, datagram.data, datagram.size);
        free(datagram.data);
        uint32_t place = port->lent_count++;
        port->lent[place] = exact;
        *packet = (struct rp_packet){
            .data = exact, .size = datagram.size, .capacity = datagram.size, .peer = datagram.from};
        if (port->number == 0 && queue_of(port->net, &datagram.from) != 0) {
            packet->misdirected = 1;
            packet->use_port = (uint16_t)rp_random_below(&port->net->random, 3);
        }
        return 1;
    }
    return 0;
}

static uint32_t rx_burst(struct rp_port *face, struct rp_packet *packets, uint32_t count) {
    struct sim_port *port = port_of(face);
    CHECK(count <= RP_BURST);
    sim_process_port(1);
    port->net->pause(port->net->context, port);
    uint32_t got = 0;
    while (got < count && port->lent_count < SIM_LENT_MAX && receive_one(port, &packets[got])) {
        got++;
    }
    sim_process_port(0);
    return got;
}

static void rx_release(struct rp_port *face, struct rp_packet *packets, uint32_t count) {
    struct sim_port *port = port_of(face);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = 0;
        while (place < port->lent_count && port->lent[place] != packets[i].data) {
            place++;
        }
        CHECK(place < port->lent_count, "released what was not lent");
        free(port->lent[place]);
        port->lent[place] = port->lent[--port->lent_count];
    }
}

static uint32_t tx_lease(struct rp_port *face, struct rp_packet *packets, uint32_t count) {
    struct sim_port *port = port_of(face);
    CHECK(count <= RP_BURST && port->leased_count == 0, "a lease while one is open");
    if (count > 0 && sim_chance(&port->net->random, port->net->faults.short_lease)) {
        count = (uint32_t)rp_random_below(&port->net->random, count + 1);
    }
    for (uint32_t i = 0; i < count; i++) {
        memset(port->leased[i], 0xA5, port->base.mtu);
        packets[i] = (struct rp_packet){.data = port->leased[i], .capacity = port->base.mtu};
    }
    port->leased_count = count;
    return count;
}

static void tx_send(struct rp_port *face, struct rp_packet *packets, uint32_t count) {
    struct sim_port *port = port_of(face);
    CHECK(count == port->leased_count, "%u given back of %u leased", count, port->leased_count);
    sim_process_port(1);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(packets[i].data == port->leased[i], "leased packets come back in order");
        if (packets[i].size > 0) {
            port->net->pause(port->net->context, port);
            send_one(port, &packets[i]);
        }
    }
    port->leased_count = 0;
    sim_process_port(0);
}

static int port_wait(struct rp_port *face, uint64_t timeout_ns) {
    (void)timeout_ns;
    struct sim_port *port = port_of(face);
    return port->inbox_count > 0 && port->inbox[0].at <= port->net->now;
}

/* A port that cannot be had, now and then: another one will be named. */
static int port_rebind(struct rp_port *face, uint16_t local) {
    struct sim_port *port = port_of(face);
    if (local == 2) {
        return -RP_SYSTEM;
    }
    sim_port_move(port);
    return 0;
}

static void port_close(struct rp_port *face) {
    (void)face;
}

static const struct rp_transport sim_transport = {
    .name = "simulated",
    .rx_burst = rx_burst,
    .rx_release = rx_release,
    .tx_lease = tx_lease,
    .tx_send = tx_send,
    .wait = port_wait,
    .close = port_close,
    .rebind = port_rebind,
};

/* ---- life of a port ---- */

struct sim_port *sim_port_open(struct sim_net *net, uint32_t mtu, uint32_t receive_budget) {
    CHECK(net->port_count < SIM_PORTS_MAX);
    struct sim_port *port = calloc(1, sizeof *port);
    CHECK(port != NULL);
    port->net = net;
    port->number = net->port_count;
    port->base.transport = &sim_transport;
    port->base.mtu = mtu;
    port->base.receive_budget = receive_budget;
    port->base.early = mtu > 4000 ? 2 : 0;
    port->base.address = address(port->number, 0);
    for (uint32_t i = 0; i < RP_BURST; i++) {
        port->leased[i] = malloc(mtu);
        CHECK(port->leased[i] != NULL);
    }
    port->kept.data = malloc(mtu);
    CHECK(port->kept.data != NULL);
    net->ports[net->port_count++] = port;
    return port;
}

void sim_port_reset(struct sim_port *port) {
    while (port->lent_count > 0) {
        free(port->lent[--port->lent_count]);
    }
    port->leased_count = 0;
}

void sim_port_move(struct sim_port *port) {
    port->generation++;
    port->base.address = address(port->number, port->generation);
}

void sim_port_close(struct sim_port *port) {
    sim_port_reset(port);
    while (port->inbox_count > 0) {
        free(port->inbox[--port->inbox_count].data);
    }
    for (uint32_t i = 0; i < RP_BURST; i++) {
        free(port->leased[i]);
    }
    free(port->kept.data);
    port->net->ports[port->number] = NULL;
    free(port);
}

uint64_t sim_port_next(const struct sim_port *port) {
    return port->inbox_count > 0 ? port->inbox[0].at : UINT64_MAX;
}
