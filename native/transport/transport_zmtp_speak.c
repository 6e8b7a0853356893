/* Connections of the ZMTP server: how they begin and end, and the protocol they speak.
 *
 *   greeting  64 bytes: FF, 8 bytes, 7F, version 3, minor, mechanism[20], ...
 *   frame     flags (1 more, 2 long, 4 command), size (1 byte, long: 8, big-endian), bytes
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/forks.h"
#include "os/sockets.h"
#include "os/system.h"
#include "transport/transport_zmtp_parts.h"

/* ---- what waits to leave ---- */

/* Bytes of what begins here in `out`: the greeting, or a frame. */
static uint32_t bytes_of(const uint8_t *at) {
    uint32_t size = 0;
    if (at[0] == 0xff) { /* no frame has these flags */
        return GREETING;
    }
    if (!(at[0] & LONG)) {
        return SHORT_HEAD + at[1];
    }
    for (uint32_t i = 5; i < LONG_HEAD; i++) { /* those before it are 0 */
        size = size << 8 | at[i];
    }
    return LONG_HEAD + size;
}

/* Where in `out` the first thing begins that the network has not taken whole. */
static uint32_t first_whole(const struct connection *connection) {
    uint32_t at = 0;
    while (at < connection->out_first
           && at + bytes_of(connection->out + at) <= connection->out_first) {
        at += bytes_of(connection->out + at);
    }
    return at;
}

/* Datagrams that wait, one that has left in part among them. */
static uint32_t datagrams_waiting(const struct connection *connection) {
    uint32_t count = 0;
    uint32_t at = first_whole(connection);
    for (; at < connection->out_end; at += bytes_of(connection->out + at)) {
        count += !(connection->out[at] & COMMAND); /* nor is the greeting one: it has that bit */
    }
    return count;
}

void rp_zmtp_end(struct zmtp_port *port, struct connection *connection) {
    port->base.dropped_out += datagrams_waiting(connection);
    rp_ready_remove(&port->ready, connection->socket);
    rp_forks_hold();
    close(connection->socket);
    connection->stage = FREE;
    rp_forks_allow();
    rp_pages_forget(connection->in, RP_ZMTP_IN_BYTES + RP_ZMTP_OUT_BYTES);
    connection->stalled = 0;
    connection->in_first = connection->in_end = connection->out_first = connection->out_end = 0;
    port->open--;
}

/* It broke the protocol. */
static void expel(struct zmtp_port *port, struct connection *connection) {
    port->ended++;
    rp_zmtp_end(port, connection);
}

void rp_zmtp_queue(struct zmtp_port *port, struct connection *connection) {
    if (!connection->queued) {
        uint32_t at = (port->ring_first + port->ring_count) % RP_ZMTP_CONNECTIONS_MAX;
        connection->queued = 1;
        port->ring[at] = rp_zmtp_index(port, connection);
        port->ring_count++;
    }
}

void rp_zmtp_drain(struct zmtp_port *port, struct connection *connection) {
    ssize_t sent = send(connection->socket, connection->out + connection->out_first,
                        connection->out_end - connection->out_first, RP_SEND_FLAGS);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        rp_zmtp_end(port, connection);
        return;
    }
    connection->out_first += sent > 0 ? (uint32_t)sent : 0;
    int stalled = connection->out_first < connection->out_end;
    if (!stalled) {
        connection->out_first = connection->out_end = 0;
    }
    if (stalled != connection->stalled) {
        connection->stalled = stalled;
        rp_ready_change(&port->ready, connection->socket, rp_zmtp_index(port, connection),
                        stalled ? RP_READY_IN | RP_READY_OUT : RP_READY_IN);
    }
}

uint8_t *rp_zmtp_room(struct connection *connection, uint32_t size) {
    if (RP_ZMTP_OUT_BYTES - connection->out_end < size && connection->out_first) {
        uint32_t gone = first_whole(connection);
        memmove(connection->out, connection->out + gone, connection->out_end - gone);
        connection->out_first -= gone;
        connection->out_end -= gone;
    }
    return RP_ZMTP_OUT_BYTES - connection->out_end < size ? NULL
                                                          : connection->out + connection->out_end;
}

static void say(struct zmtp_port *port, struct connection *connection, const void *bytes,
                uint32_t size) {
    uint8_t *target = rp_zmtp_room(connection, size);
    if (target) { /* else it does not read: its answers are lost to it */
        memcpy(target, bytes, size);
        connection->out_end += size;
        rp_zmtp_drain(port, connection);
    }
}

/* ---- coming and going ---- */

/* It came, or is of use: the last of its kind to be given up. */
static void use(struct zmtp_port *port, struct connection *connection) {
    connection->used = ++port->uses;
    connection->used_s = port->seconds;
}

/* A session holds one place, so that a client with one session cannot hold many by moving it. */
void rp_zmtp_answered(struct zmtp_port *port, struct connection *connection, uint32_t session) {
    for (uint32_t i = 0; connection->session != session && i < RP_ZMTP_CONNECTIONS_MAX; i++) {
        if (port->connections[i].session == session) {
            port->connections[i].session = 0;
        }
    }
    connection->session = session;
    if (session) {
        use(port, connection);
    }
}

static enum hold hold_of(const struct zmtp_port *port, const struct connection *connection) {
    if (connection->stage != OPEN) {
        return HOLD_NO_HANDSHAKE;
    }
    if (!connection->session) {
        return HOLD_NO_SESSION;
    }
    return port->seconds - connection->used_s < RP_ZMTP_IDLE_S ? HOLD_IN_USE : HOLD_IDLE;
}

struct connection *rp_zmtp_place(struct zmtp_port *port, uint64_t host) {
    struct connection *free_one = NULL, *found[2] = {NULL, NULL}; /* of all, of this host */
    enum hold holds[2] = {HOLD_IN_USE, HOLD_IN_USE};
    uint32_t of_host = 0;
    for (uint32_t i = 0; i < RP_ZMTP_CONNECTIONS_MAX; i++) {
        struct connection *each = &port->connections[i];
        if (each->stage == FREE) {
            free_one = free_one ? free_one : each;
            continue;
        }
        enum hold hold = hold_of(port, each);
        int same = each->host == host;
        of_host += host && same;
        for (int k = 0; k <= same; k++) {
            if (hold < holds[k] || (hold == holds[k] && found[k] && each->used < found[k]->used)) {
                found[k] = each;
                holds[k] = hold;
            }
        }
    }
    int own_only = of_host >= RP_ZMTP_OF_A_HOST;
    if (free_one && !own_only) {
        return free_one;
    }
    if (found[own_only]) {
        port->displaced++;
        rp_zmtp_end(port, found[own_only]);
    }
    return found[own_only];
}

/* A connection that has come is `newcomer` until it has a place, or is refused: a forked child
 * closes it wherever it finds it. -1 with errno. */
static int take_newcomer(struct zmtp_port *port, struct sockaddr_in6 *address) {
    socklen_t size = sizeof *address;
    rp_forks_hold();
    port->newcomer = rp_socket_accept(port->listener, (struct sockaddr *)(void *)address, &size);
    int failed = errno;
    rp_forks_allow();
    errno = failed;
    return port->newcomer;
}

static void refuse_newcomer(struct zmtp_port *port) {
    port->refused++;
    rp_forks_hold();
    close(port->newcomer);
    port->newcomer = -1;
    rp_forks_allow();
}

static void seat_newcomer(struct zmtp_port *port, struct connection *connection) {
    rp_forks_hold();
    connection->socket = port->newcomer;
    connection->stage = AWAITS_GREETING;
    port->newcomer = -1;
    rp_forks_allow();
}

static void welcome(struct zmtp_port *port, const struct sockaddr_in6 *address) {
    static const uint8_t greeting[GREETING] = {
        [0] = 0xff, [9] = 0x7f, [10] = 3, [12] = 'N', [13] = 'U', [14] = 'L', [15] = 'L'};
    struct rp_peer peer;
    rp_udp_peer_pack(&peer, address);
    uint64_t host = rp_udp_host(&port->own, &peer);
    struct connection *connection = rp_zmtp_place(port, host);
    int one = 1;
    if (!connection) {
        refuse_newcomer(port);
        return;
    }
    (void)setsockopt(port->newcomer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(port->newcomer, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    seat_newcomer(port, connection);
    connection->generation++;
    connection->host = host;
    connection->session = 0;
    use(port, connection);
    port->open++;
    (void)rp_ready_add(&port->ready, connection->socket, rp_zmtp_index(port, connection),
                       RP_READY_IN);
    say(port, connection, greeting, sizeof greeting);
}

static void watch_listener(struct zmtp_port *port, uint32_t events) {
    rp_ready_change(&port->ready, port->listener, LISTENER, events);
}

void rp_zmtp_accept(struct zmtp_port *port) {
    for (int i = 0; i < ACCEPTS; i++) {
        struct sockaddr_in6 address = {0};
        if (take_newcomer(port, &address) >= 0) {
            welcome(port, &address);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            port->not_accepted++; /* the listener stays readable: to look on would be to spin */
            watch_listener(port, 0);
            return;
        }
    }
}

void rp_zmtp_second(struct zmtp_port *port) {
    port->seconds += rp_ready_seconds(&port->ready);
    watch_listener(port, RP_READY_IN);
}

/* ---- what they say ---- */

static void read_greeting(struct zmtp_port *port, struct connection *connection) {
    static const uint8_t ready[] = {COMMAND, 28, 5,   'R', 'E', 'A', 'D', 'Y', 11,  'S',
                                    'o',     'c', 'k', 'e', 't', '-', 'T', 'y', 'p', 'e',
                                    0,       0,  0,   6,   'R', 'O', 'U', 'T', 'E', 'R'};
    static const uint8_t mechanism[20] = "NULL";
    const uint8_t *bytes = connection->in; /* nothing came before it */
    _Static_assert(sizeof ready == 30, "READY is 28 bytes behind its head");
    if (connection->in_end < GREETING) {
        return;
    }
    if (bytes[0] != 0xff || !(bytes[9] & 1) || bytes[10] < 3
        || memcmp(bytes + 12, mechanism, sizeof mechanism) != 0) {
        expel(port, connection);
        return;
    }
    connection->in_first = GREETING;
    connection->stage = AWAITS_READY;
    say(port, connection, ready, sizeof ready);
}

/* The next whole frame: 1, with its flags and bytes; 0: there is none, or the connection ended. */
static int next_frame(struct zmtp_port *port, struct connection *connection, uint8_t *flags,
                      const uint8_t **bytes, uint32_t *size) {
    const uint8_t *at = connection->in + connection->in_first;
    uint32_t have = connection->in_end - connection->in_first;
    uint32_t head = have && (at[0] & LONG) ? LONG_HEAD : SHORT_HEAD;
    uint64_t length = 0;
    if (have < head) {
        return 0;
    }
    for (uint32_t i = 1; i < head; i++) {
        length = length << 8 | at[i];
    }
    if ((at[0] & ~(MORE | LONG | COMMAND)) || length > RP_MTU_MAX) {
        expel(port, connection);
        return 0;
    }
    if (have < head + length) {
        return 0;
    }
    *flags = at[0];
    *bytes = at + head;
    *size = (uint32_t)length;
    connection->in_first += head + (uint32_t)length;
    return 1;
}

struct pong { /* the answer to the newest PING of a visit; of size 0: none came */
    uint8_t bytes[SHORT_HEAD + 5 + CONTEXT_MAX];
    uint32_t size;
};

/* READY opens, PING is answered; what else libzmq says in commands changes nothing here. */
static void take_command(struct zmtp_port *port, struct connection *connection,
                         const uint8_t *bytes, uint32_t size, struct pong *pong) {
    if (connection->stage == AWAITS_READY) {
        if (size < 6 || memcmp(bytes, "\5READY", 6) != 0) {
            expel(port, connection);
            return;
        }
        connection->stage = OPEN;
    } else if (size >= 7 && size <= 7 + CONTEXT_MAX && memcmp(bytes, "\4PING", 5) == 0) {
        *pong = (struct pong){{COMMAND, (uint8_t)(size - 2), 4, 'P', 'O', 'N', 'G'},
                              SHORT_HEAD + size - 2};
        memcpy(pong->bytes + SHORT_HEAD + 5, bytes + 7, size - 7);
    }
}

static void lend(struct zmtp_port *port, const struct connection *connection,
                 const uint8_t *bytes, uint32_t size, struct rp_packet *packet) {
    uint32_t slot = port->slots.free[--port->slots.free_count];
    uint32_t index = rp_zmtp_index(port, connection);
    memset(packet, 0, sizeof *packet);
    packet->data = memcpy(rp_slots_buffer(&port->slots, slot), bytes, size);
    packet->size = size;
    packet->token = slot;
    packet->peer.size = 16;
    memcpy(packet->peer.bytes, &index, 4);
    memcpy(packet->peer.bytes + 4, &connection->generation, 4);
    memcpy(packet->peer.bytes + 8, &connection->host, 8);
}

uint32_t rp_zmtp_take(struct zmtp_port *port, struct connection *connection,
                            struct rp_packet *packets, uint32_t count) {
    const uint8_t *bytes;
    uint32_t lent = 0, size;
    uint8_t flags;
    struct pong pong = {.size = 0};
    if (connection->stage == AWAITS_GREETING) {
        read_greeting(port, connection);
    }
    for (int i = 0; i < FRAMES_A_VISIT && lent < count && connection->stage > AWAITS_GREETING;
         i++) {
        if (!next_frame(port, connection, &flags, &bytes, &size)) {
            break;
        }
        if (flags & COMMAND) {
            take_command(port, connection, bytes, size, &pong);
        } else if (connection->stage != OPEN) {
            expel(port, connection);
        } else if (size == 0 || size > port->base.mtu) {
            port->base.dropped_in++;
        } else {
            lend(port, connection, bytes, size, &packets[lent++]);
        }
    }
    if (pong.size && connection->stage == OPEN) { /* one call of the kernel, however many asked */
        say(port, connection, pong.bytes, pong.size);
    }
    return lent;
}

int rp_zmtp_read(struct zmtp_port *port, struct connection *connection) {
    uint32_t have = connection->in_end - connection->in_first;
    if (connection->in_first) {
        memmove(connection->in, connection->in + connection->in_first, have);
        connection->in_first = 0;
        connection->in_end = have;
    }
    ssize_t got = recv(connection->socket, connection->in + have, RP_ZMTP_IN_BYTES - have,
                       MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        rp_zmtp_end(port, connection);
    } else if (got > 0) {
        connection->in_end += (uint32_t)got;
    }
    return got > 0;
}
