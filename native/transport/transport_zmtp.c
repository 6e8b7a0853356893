/* Bursts over ZMTP connections, see transport_zmtp.h. Connections with something to read stand in a
 * ring, each once, and are visited in turn, a few frames and at most one recv(2) a visit: so none
 * makes the others wait long.
 */
#include "transport/transport_zmtp.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/minmax.h"
#include "os/sockets.h"
#include "protocol/status.h"
#include "transport/transport_udp.h"
#include "transport/transport_zmq.h"
#include "transport/transport_zmtp_parts.h"

static struct zmtp_port *own(struct rp_port *port) {
    return (struct zmtp_port *)(void *)port;
}

static size_t rp_zmtp_memory(void) {
    return (size_t)RP_ZMTP_CONNECTIONS_MAX * (RP_ZMTP_IN_BYTES + RP_ZMTP_OUT_BYTES);
}

/* ---- bursts ---- */

static void look(struct zmtp_port *port) {
    struct rp_ready_event events[EVENTS];
    uint32_t count = rp_ready_look(&port->ready, events, EVENTS);
    for (uint32_t i = 0; i < count; i++) {
        if (events[i].key == LISTENER) {
            rp_zmtp_accept(port);
            continue;
        }
        if (events[i].key == RP_READY_SECOND) {
            rp_zmtp_second(port);
            continue;
        }
        struct connection *connection = &port->connections[events[i].key];
        if (connection->stage != FREE && (events[i].events & RP_READY_OUT)) {
            rp_zmtp_drain(port, connection);
        }
        if (connection->stage != FREE && (events[i].events & RP_READY_IN)) {
            rp_zmtp_queue(port, connection);
        }
    }
}

/* A visit: the frames that are there, else one look at the socket. A connection that had some stays
 * in the ring. */
static uint32_t visit(struct zmtp_port *port, struct connection *connection,
                      struct rp_packet *packets, uint32_t count) {
    uint32_t before = connection->in_first;
    uint32_t lent = rp_zmtp_take(port, connection, packets, count);
    int moved = lent || (connection->stage != FREE && connection->in_first != before);
    if (!moved && connection->stage != FREE && rp_zmtp_read(port, connection)) {
        lent = rp_zmtp_take(port, connection, packets, count);
        moved = 1;
    }
    if (moved && connection->stage != FREE) {
        rp_zmtp_queue(port, connection);
    }
    return lent;
}

static uint32_t zmtp_rx_burst(struct rp_port *opaque, struct rp_packet *packets, uint32_t count) {
    struct zmtp_port *port = own(opaque);
    uint32_t lent = 0;
    assert(count <= RP_BURST);
    look(port);
    count = rp_min(count, port->slots.free_count);
    for (uint32_t i = 0; i < 4 * count && lent < count && port->ring_count; i++) {
        struct connection *connection = &port->connections[port->ring[port->ring_first]];
        port->ring_first = (port->ring_first + 1) % RP_ZMTP_CONNECTIONS_MAX;
        port->ring_count--;
        connection->queued = 0;
        if (connection->stage != FREE) {
            lent += visit(port, connection, packets + lent, count - lent);
        }
    }
    port->base.left_behind = port->ring_count > 0; /* connections that may have more */
    return lent;
}

static void zmtp_rx_release(struct rp_port *port, struct rp_packet *packets, uint32_t count) {
    rp_slots_release(&own(port)->slots, packets, count);
}

static uint32_t zmtp_tx_lease(struct rp_port *port, struct rp_packet *packets, uint32_t count) {
    return rp_lease_take(&own(port)->lease, packets, count, rp_port_base(port)->mtu);
}

static uint32_t write_head(uint8_t *head, uint32_t size, int more) {
    head[0] = (uint8_t)((more ? MORE : 0) | (size > UINT8_MAX ? LONG : 0));
    if (size <= UINT8_MAX) {
        head[1] = (uint8_t)size;
        return SHORT_HEAD;
    }
    for (uint32_t i = 0; i < 8; i++) { /* big-endian */
        head[8 - i] = (uint8_t)((uint64_t)size >> 8 * i);
    }
    return LONG_HEAD;
}

/* The connection an address names, or null: gone. */
static struct connection *find(struct zmtp_port *port, const struct rp_peer *peer) {
    uint32_t index, generation;
    memcpy(&index, peer->bytes, 4);
    memcpy(&generation, peer->bytes + 4, 4);
    if (peer->size != 16 || index >= RP_ZMTP_CONNECTIONS_MAX) {
        return NULL;
    }
    struct connection *connection = &port->connections[index];
    return connection->stage == OPEN && connection->generation == generation ? connection : NULL;
}

/* packets[0 .. count) of one peer as one message: straight into the socket, the rest behind what
 * waits. All of it or nothing: 1 or 0. */
static int send_message(struct zmtp_port *port, const struct rp_packet *packets, uint32_t count) {
    struct connection *connection = find(port, &packets[0].peer);
    uint8_t heads[RP_BURST][LONG_HEAD];
    struct iovec parts[2 * RP_BURST];
    uint32_t used = 0, bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (packets[i].size) {
            uint32_t head = write_head(heads[i], packets[i].size, i + 1 < count);
            parts[used++] = (struct iovec){heads[i], head};
            parts[used++] = (struct iovec){packets[i].data, packets[i].size};
            bytes += head + packets[i].size;
        }
    }
    uint8_t *target = connection ? rp_zmtp_room(connection, bytes) : NULL;
    if (!target) {
        return 0;
    }
    rp_zmtp_answered(port, connection, packets[count - 1].session); /* the last has bytes */
    size_t skip = 0;
    if (!connection->stalled) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = used};
        ssize_t sent = sendmsg(connection->socket, &message, RP_SEND_FLAGS);
        skip = sent > 0 ? (size_t)sent : 0;
    }
    for (uint32_t i = 0; i < used; i += 2) { /* a frame is kept whole, though it began to leave */
        size_t head = parts[i].iov_len, frame = head + parts[i + 1].iov_len;
        if (skip < frame) {
            memcpy(target, parts[i].iov_base, head);
            memcpy(target + head, parts[i + 1].iov_base, frame - head);
            target += frame;
            connection->out_first += (uint32_t)skip; /* nothing waited, where anything left */
            connection->out_end += (uint32_t)frame;
        }
        skip -= rp_min(skip, frame);
    }
    if (!connection->stalled && connection->out_end) {
        rp_zmtp_drain(port, connection); /* stalls it, or ends it where the socket has an error */
    }
    return 1;
}

static void send_or_count(struct rp_port *opaque, const struct rp_packet *packets, uint32_t count) {
    struct zmtp_port *port = own(opaque);
    if (!send_message(port, packets, count)) {
        for (uint32_t i = 0; i < count; i++) {
            port->base.dropped_out += packets[i].size != 0;
        }
    }
}

static void zmtp_tx_send(struct rp_port *port, struct rp_packet *packets, uint32_t count) {
    rp_lease_send(&own(port)->lease, port, packets, count, send_or_count);
}

/* ---- waiting, opening, closing ---- */

static int zmtp_wait(struct rp_port *opaque, uint64_t timeout_ns) {
    struct zmtp_port *port = own(opaque);
    return port->ring_count || rp_ready_sleep(&port->ready, &port->wake, timeout_ns);
}

static void zmtp_wake(struct rp_port *opaque) {
    rp_wake_set(&own(opaque)->wake);
}

static void zmtp_close(struct rp_port *opaque) {
    struct zmtp_port *port = own(opaque);
    for (uint32_t i = 0; i < RP_ZMTP_CONNECTIONS_MAX; i++) {
        if (port->connections[i].stage != FREE) {
            close(port->connections[i].socket); /* what it was sent still leaves */
        }
    }
    if (port->newcomer >= 0) {
        close(port->newcomer);
    }
    if (port->listener >= 0) {
        close(port->listener);
    }
    rp_ready_close(&port->ready);
    rp_wake_close(&port->wake);
    if (port->memory) {
        munmap(port->memory, rp_zmtp_memory());
    }
    free(port->slots.memory);
    free(port->lease.memory);
    free(port);
}

static uint32_t zmtp_facts(struct rp_port *opaque, struct rp_fact *facts) {
    const struct zmtp_port *port = own(opaque);
    uint32_t count = 0;
    rp_fact_add(facts, &count, RP_FACT_IN, "unusable",
                "frames that are empty, or larger than the mtu", port->base.dropped_in);
    rp_fact_add(facts, &count, RP_FACT_OUT, "not_taken",
                "datagrams to a peer that has gone, or whose queue is full",
                port->base.dropped_out);
    rp_fact_add(facts, &count, RP_FACT_COUNT, "connections_ended",
                "connections ended for what they said: not ZMTP 3 without keys, or too much",
                port->ended);
    rp_fact_add(facts, &count, RP_FACT_COUNT, "connections_refused",
                "connections refused: every place was in use", port->refused);
    rp_fact_add(facts, &count, RP_FACT_COUNT, "connections_displaced",
                "connections ended for a newcomer: no session, or long unused", port->displaced);
    rp_fact_add(facts, &count, RP_FACT_COUNT, "accepts_failed",
                "seconds in which the system had no descriptor for newcomers",
                port->not_accepted);
    rp_fact_add(facts, &count, RP_FACT_LEVEL, "connections", "connections there are", port->open);
    return count;
}

static uint64_t zmtp_host(struct rp_port *port, const struct rp_peer *peer) {
    uint64_t host;
    (void)port;
    memcpy(&host, peer->bytes + 8, sizeof host);
    return host;
}

static const struct rp_transport zmtp_transport = {
    .name = "zmq",
    .host = zmtp_host,
    .rx_burst = zmtp_rx_burst,
    .rx_release = zmtp_rx_release,
    .tx_lease = zmtp_tx_lease,
    .tx_send = zmtp_tx_send,
    .wait = zmtp_wait,
    .close = zmtp_close,
    .wake = zmtp_wake,
    .facts = zmtp_facts,
};

static struct zmtp_port *make_port(uint32_t mtu) {
    struct zmtp_port *port = calloc(1, sizeof *port);
    if (!port) {
        return NULL;
    }
    port->base.transport = &zmtp_transport;
    port->base.mtu = mtu;
    port->base.receive_budget = RP_ZMQ_RECEIVE_BUDGET;
    port->listener = port->newcomer = -1;
    int failed = rp_ready_open(&port->ready, RP_ZMTP_CONNECTIONS_MAX + 1);
    failed = rp_wake_open(&port->wake) || failed;
    int why = failed ? errno : ENOMEM;
    port->memory = mmap(NULL, rp_zmtp_memory(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    port->memory = port->memory == MAP_FAILED ? NULL : port->memory;
    if (!rp_slots_open(&port->slots, mtu) || !rp_lease_open(&port->lease, mtu) || !port->memory
        || failed) {
        zmtp_close((struct rp_port *)(void *)port);
        errno = why;
        return NULL;
    }
    for (size_t i = 0; i < RP_ZMTP_CONNECTIONS_MAX; i++) {
        port->connections[i].in = port->memory + i * (RP_ZMTP_IN_BYTES + RP_ZMTP_OUT_BYTES);
        port->connections[i].out = port->connections[i].in + RP_ZMTP_IN_BYTES;
    }
    return port;
}

static int listen_at(struct zmtp_port *port, struct sockaddr_in6 *address, const char *url,
                     char *error) {
    int one = 1;
    socklen_t size = address->sin6_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof *address;
    struct sockaddr *where = (struct sockaddr *)(void *)address;
    port->listener = rp_socket_open(address->sin6_family, SOCK_STREAM);
    int failed = port->listener < 0
        || setsockopt(port->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0
        || bind(port->listener, where, size) < 0
        || listen(port->listener, RP_ZMTP_CONNECTIONS_MAX) < 0
        || getsockname(port->listener, where, &size) < 0
        || rp_ready_add(&port->ready, port->listener, LISTENER, RP_READY_IN) < 0;
    if (failed) {
        snprintf(error, RP_URL_ERROR_BYTES, "%.100s: %s", url,
                 errno == EADDRINUSE
                     ? "the port is taken by another program, or by an earlier server of this one: "
                       "close that, choose another port, or 0 for any"
                     : strerror(errno));
        return -RP_SYSTEM;
    }
    return 0;
}

int rp_zmtp_open(struct rp_port **opened, const struct rp_url *url,
                 const struct rp_port_options *options, struct rp_peer *server, char *bound,
                 char *error) {
    struct sockaddr_in6 address;
    char text[RP_URL_TEXT_BYTES], where[RP_URL_TEXT_BYTES];
    snprintf(text, sizeof text, "zmq+tcp://%.60s:%u", url->host, url->port);
    int status = rp_udp_resolve(&address, url, error);
    if (status) {
        return status;
    }
    if (!options->insecure && !rp_udp_is_loopback(&address)) {
        return rp_zmq_unguarded(text, error);
    }
    struct zmtp_port *port = make_port(options->mtu);
    if (!port) {
        int why = errno; /* EMFILE among them */
        snprintf(error, RP_URL_ERROR_BYTES, "%.100s: no port: %s", text, strerror(why));
        return why == ENOMEM ? -RP_NO_MEMORY : -RP_SYSTEM;
    }
    status = listen_at(port, &address, text, error);
    if (status) {
        zmtp_close((struct rp_port *)(void *)port);
        return status;
    }
    rp_udp_own(&port->own);
    rp_udp_print(where, sizeof where, &address);
    snprintf(bound, RP_URL_TEXT_BYTES, "zmq+tcp://%.100s", strstr(where, "://") + 3);
    port->base.address.size = 1;
    *server = port->base.address;
    *opened = (struct rp_port *)(void *)port;
    return 0;
}
